# `make bench`, `make check` and `make test` set everything up first; `make setup` does only that.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
K ?= resnet50
# Each worker begins with an equal part of the tests, in our order (tests/support/plugin.py); a worker that
# finishes early takes over tests from another. Three keep two cores busy: some tests wait for
# processes and servers. Each more imports the frameworks once more.
# Pytest's look for errors in destructors would collect garbage five times, of millions of objects.
# A test that hangs fails, and shows where each of its threads is.
AT_ONCE ?= 3
WORKERS ?= -n $(AT_ONCE) --dist worksteal -p no:unraisableexception \
	-o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true
# Tests start the suite hundreds of times: without compiled files each start takes half as long again.
unexport PYTHONDONTWRITEBYTECODE
# Threads that wait do not keep a core busy: tests run side by side on the same cores. Large pages
# where glibc has them: a third of the time that tests of PyTorch spend in the kernel.
QUIETLY := OMP_WAIT_POLICY=passive KMP_BLOCKTIME=0 GLIBC_TUNABLES=glibc.malloc.hugetlb=1
# The frameworks compute as on a CPU that has AVX2 but neither AVX-512 nor bfloat16. XLA's products
# are YNNPACK's, which no variable limits: Eigen's instead.
AS_AVX2 := ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 \
	XLA_FLAGS="--xla_cpu_max_isa=AVX2 --xla_cpu_experimental_ynn_fusion_type="
# A Python 3.8, the version of the Poplar SDK, where this machine has one.
PYTHON38 ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/3.8.*/bin/python) $(shell command -v python3.8 2>/dev/null))
VENV38 := .venv38
STAMP38 := $(VENV38)/.installed

VENV26 := .venv26
STAMP26 := $(VENV26)/.installed

.PHONY: setup bench check test test-avx2 test38 tf26 nightly gate-study fuzz chaos lint docs pins format clean

setup: $(STAMP)

# Every file that is installed has the hash that is written down (scripts/install.py).
$(STAMP): pyproject.toml constraints/py311.txt constraints/cpu.txt constraints/cuda.txt constraints/uv.txt scripts/install.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python scripts/install.py constraints/py311.txt
	touch $@

bench: setup
	$(BIN)/python -m pytest -k $(K)

# The tests that need no framework; of those that run the suite, one for each command or kind of run.
FEW_RUNS := not framework and not nightly and (entry_point or not slow and not suite)

# Without those of them that take longest, marked `slow` (tests/test_makefile.py has the table).
check: lint
	$(BIN)/python -m pytest tests -m "not slow and $(FEW_RUNS)" $(WORKERS)

# Python 3.8's tests run while the large environment is installed, which keeps one core busy.
test:
	$(MAKE) --jobs=2 lint test38
	$(QUIETLY) $(BIN)/python -m pytest tests -m "not nightly" $(WORKERS)

# The tests that compare each network's numbers with a reference, once more on a smaller CPU, and
# without oneDNN in TensorFlow: some of its operations cannot do what oneDNN's can. On a CPU that
# has AVX2 only, nothing else is different.
LARGER := $(shell grep --max-count=1 avx512f /proc/cpuinfo 2>/dev/null)
NUMERIC = $(shell grep --files-with-matches --recursive --include='test_*.py' 'mark\.numeric' tests \
	$(if $(LARGER),,| xargs grep --files-with-matches tensorflow))
# These wait for nothing, and each worker would import the frameworks for few of them.
test-avx2: AT_ONCE := 2
test-avx2: setup
	$(AS_AVX2) TF_ENABLE_ONEDNN_OPTS=0 $(QUIETLY) $(BIN)/python -m pytest $(NUMERIC) -m numeric $(WORKERS)

# The SDK's Python, with the oldest supported pytest-benchmark; `make lint` finds calls of a newer
# Python's library wherever they are.
ifneq ($(PYTHON38),)
# Lint keeps a core busy beside them, and each worker collects all tests.
test38: AT_ONCE := 2
test38: $(STAMP38)
	$(VENV38)/bin/python -m pytest tests -m "$(FEW_RUNS)" $(WORKERS)

$(STAMP38): pyproject.toml constraints/py38.txt constraints/uv.txt scripts/install.py
	$(PYTHON38) -m venv $(VENV38)
	$(VENV38)/bin/python scripts/install.py constraints/py38.txt
	touch $@
else
test38:
	@echo "no Python 3.8 found: the tests under it were left out (PYTHON38=PATH names one)"
endif

# The TensorFlow cases on the SDK's versions, Python 3.8 and TensorFlow 2.6, on this CPU.
TESTS26 := $(wildcard tests/models/test_tensorflow_*.py tests/cases/test_kernel*.py tests/cases/test_tensorflow_ipu*.py) \
	tests/models/test_application_recipe.py tests/models/test_named_networks.py tests/models/test_training_mathematics.py \
	tests/data/imagenet/test_pipeline.py tests/data/imagenet/test_build_tfrecords.py tests/data/tfds/test_pipeline.py \
	tests/runtimes/tensorflow/host/test_loop.py tests/runtimes/tensorflow/host/test_training.py \
	tests/runtimes/tensorflow/host/test_application.py tests/runtimes/tensorflow/ipu
tf26: $(STAMP26)
	$(VENV26)/bin/python -m pytest $(TESTS26)
	$(VENV26)/bin/python -m scripts.ipu_lint
	$(VENV26)/bin/python -m scripts.image_programs
	$(VENV26)/bin/python -m pytest bench_kernels -m tensorflow --precision=32.32 --budget=0.5
	$(VENV26)/bin/python -m pytest bench_training bench_inference -k "cnn_tensorflow and synthetic" \
		--precision=32.32 --set=image_size=64 --set=micro_batch_size=2 --budget=0.5

$(STAMP26): pyproject.toml constraints/tf26.txt constraints/uv.txt scripts/install.py
	@test -n "$(PYTHON38)" || { echo "make tf26 needs a Python 3.8: PYTHON38=PATH names one"; exit 1; }
	$(PYTHON38) -m venv $(VENV26)
	$(VENV26)/bin/python scripts/install.py constraints/tf26.txt
	touch $@

# How often the gate cries wolf and what it finds: about an hour on a quiet machine for stored
# baselines, as much again beside neighbours, and both once more for --against; QUICK=1 measures
# less, sooner. A pool that exists is continued; delete the file to begin anew.
POOL ?= results/gate-study$(if $(QUICK),-quick,).jsonl
PAIRS ?= results/gate-study-pairs$(if $(QUICK),-quick,).jsonl
LOADS := one two one-on-off two-on-off
gate-study: setup
	mkdir -p $(dir $(POOL)) $(dir $(PAIRS))
	$(BIN)/python -m scripts.gate_study.collect --pool=$(POOL) $(if $(QUICK),--cases=4 --passes=13 --seconds=540,--passes=40)
	for load in $(LOADS); do \
		$(BIN)/python -m scripts.gate_study.collect --pool=$(POOL) --load=$$load --cases=4 \
			$(if $(QUICK),--passes=10 --seconds=120,--passes=40) || exit 1; \
	done
	$(BIN)/python -m scripts.gate_study.study --pool=$(POOL) $(if $(QUICK),--processes=5 --cap=4,)
	for load in quiet $(LOADS); do \
		$(BIN)/python -m scripts.gate_study.collect_pairs --pool=$(PAIRS) --load=$$load \
			$(if $(QUICK),--cases=4 --passes=6 --seconds=240,--passes=40) || exit 1; \
	done
	for more in "" --together; do \
		$(BIN)/python -m scripts.gate_study.pairs --pool=$(PAIRS) $(if $(QUICK),--cap=4,) $$more || exit 1; \
	done

# Nearly sound files and messages for every reader of them; runs that are ended at random moments.
EXAMPLES ?= 1000
fuzz: setup
	EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest tests/nightly/fuzz $(WORKERS)

TRIALS ?= 60
chaos: setup
	$(BIN)/python -m tests.nightly.chaos --trials=$(TRIALS)

# What takes hours or finds something once a year: the tests marked `nightly`, every option acts or is
# refused, the numbers of a CPU with AVX2, fuzz, chaos, the cases on TensorFlow 2.6, the frameworks'
# own loops beside ours, the gate study.
nightly: setup
	$(QUIETLY) $(BIN)/python -m pytest tests -m nightly $(WORKERS)
	$(QUIETLY) $(BIN)/python -m pytest tests/nightly $(WORKERS)
	$(MAKE) test-avx2 fuzz chaos tf26
	$(BIN)/python -m scripts.compare_peers
	$(BIN)/python -m pytest scripts/bench_overhead.py --budget=0.4
	$(MAKE) gate-study

# What Python 3.8 has not. Types are not looked at: nothing evaluates annotations.
VERMIN := --target=3.8- --violations --no-tips --no-eval-annotations --quiet
PYTHON_CODE := conftest.py ipubench/__init__.py bench_* fixtures models plugins scripts tests examples
WORKFLOWS := .github/workflows/release.yml $(wildcard docs/ci/github-*.yml)

lint: setup docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/vermin $(VERMIN) $(PYTHON_CODE)
	$(BIN)/zizmor --offline --quiet $(WORKFLOWS) .github/dependabot.yml
	$(BIN)/check-jsonschema --builtin-schema=vendor.github-workflows $(WORKFLOWS)
	$(BIN)/check-jsonschema --builtin-schema=vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --builtin-schema=vendor.github-issue-forms .github/ISSUE_TEMPLATE/*.yml
	$(BIN)/check-jsonschema --builtin-schema=vendor.gitlab-ci --data-transform=gitlab-ci docs/ci/gitlab-*.yml

# The pages of docs/ as a site in site/, with the JSON schema of baselines; a broken link or a page
# out of the navigation is an error.
docs: setup
	$(BIN)/mkdocs build --strict

# The pinned versions and the hashes of their files. ALSO=WHEEL is PyTorch's build for CPUs, which is
# not on the package index; UPGRADE=1 takes the newest versions.
pins: setup
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps --requirement constraints/uv.txt
	PATH="$(BIN):$$PATH" $(BIN)/python -m scripts.pins $(if $(UPGRADE),--upgrade) $(addprefix --also=,$(ALSO))

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Not results: they were measured.
clean:
	rm -rf $(VENV) $(VENV38) $(VENV26) site .pytest_cache .mypy_cache .ruff_cache
