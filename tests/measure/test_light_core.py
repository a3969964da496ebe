"""The plugin's cost for another project: none of the suite's libraries, and little time."""

from __future__ import annotations

import pytest

from tests.support.harness import QUIETLY, Outcome
from tests.support.own_project import OwnProject
from tests.support.repository import run_alone

BLOCKED = "numpy scipy PIL yaml jinja2 ruptures tqdm torch tensorflow onnx pandas"
SITE = f"""\
import sys
for name in {BLOCKED!r}.split():
    sys.modules[name] = None  # an import is a ModuleNotFoundError
"""
MEASURES = "import work\n\ndef test_work(benchmark):\n    benchmark(work.done)\n"
#: What a process neither of a comparison nor at the end of a run needs.
UNUSED = (
    "ipubench.fixtures.data.provider",
    "ipubench.fixtures.servers",
    "ipubench.plugins.baseline",
    "ipubench.plugins.benchmarks_yml.named_files",
    "ipubench.plugins.compare",
    "ipubench.plugins.count.counter",
    "ipubench.plugins.fleet",
    "ipubench.plugins.listing",
    "ipubench.plugins.report",
    "ipubench.plugins.web",
)
LIST = f"""\
import sys
UNUSED = {UNUSED}
def pytest_unconfigure():
    names = [name for name in sys.modules if name.startswith("ipubench.")]
    print("msgspec:", "msgspec" in sys.modules)
    print("ours:", len(names), "session:", "ipubench.plugins.session" in names)
    print("unused:", *[name for name in names if name.startswith(UNUSED)])
"""
ORDINARY = "\n".join(f"def test_{n}():\n    pass\n" for n in range(20))


def test_a_gate_needs_no_library_of_the_suite(own: OwnProject) -> None:
    (own.folder / "sitecustomize.py").write_text(SITE)
    own.environment["PYTHONPATH"] += f":{own.folder}"

    def run(*words: str) -> Outcome:
        return run_alone(own.folder, own.environment, "-m", "pytest", *QUIETLY, *words)

    (own.folder / "tests" / "test_mine.py").write_text(MEASURES)
    save = ["--baseline-save=main", "--processes=2", "--budget=0.05", "--keep-disturbed"]
    run(*save).assert_code(0)
    gate = run("--baseline=main", "--gate=50%", "--budget=0.05", "--gate-cap=3")
    assert gate.code in (0, 1, 6) and "Traceback" not in gate.text


@pytest.mark.entry_point
@pytest.mark.parametrize("measures", [False, True])
def test_tests_that_measure_nothing_do_not_import_the_run(own: OwnProject, measures: bool) -> None:
    (own.folder / "tests" / "conftest.py").write_text(LIST)
    (own.folder / "tests" / "test_ordinary.py").write_text(ORDINARY)
    if measures:
        (own.folder / "tests" / "test_mine.py").write_text(MEASURES)
    outcome = own.run("--collect-only", "-q", "-s", alone=True).assert_code(0)
    assert outcome.line("msgspec: ").split()[-1] == str(measures)
    words = outcome.line("ours: ").split()
    assert words[-1] == str(measures)
    assert measures or int(words[1]) <= 31
    assert outcome.line("unused:").split() == ["unused:"]
