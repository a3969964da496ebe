"""Another project under ``-p ipubench``: its tests are measured, stored and judged."""

from __future__ import annotations

import re
from typing import List

import pytest

from ipubench.plugins.baseline.store import save
from tests.support.baselines import document, entry, load
from tests.support.harness import (
    ROOT,
    run_command,
)
from tests.support.own_project import INI, WORK, OwnProject, git
from tests.support.stored import changed

TESTS = """
import asyncio
import dataclasses

import pytest

import work
from ipubench import CaseConfig, cases, option


@pytest.mark.parametrize("count", [10, 100])
def test_sum(benchmark, count):
    assert benchmark(sum, range(count)) == sum(range(count))


def test_work(benchmark):
    assert benchmark(work.done) == work.COUNT


def test_pedantic(benchmark):
    assert benchmark.pedantic(sum, args=([1, 2],), rounds=7, iterations=50) == 3


@pytest.mark.benchmark(min_rounds=9, max_time=0.01, group="told")
def test_told(benchmark):
    benchmark.extra_info.update(kept=1, keys={("a", 1): 2})  # of any type, as parameters
    benchmark(work.done)


@pytest.mark.benchmark(group="mine")
def test_group(benchmark):
    benchmark(work.done)


def test_meter(meter):
    meter(work.done, items=work.COUNT, unit="numbers")


def test_async(meter):
    async def nothing():
        await asyncio.sleep(0)

    meter(nothing)


@dataclasses.dataclass(frozen=True)
class Sort(CaseConfig):
    size: int = option(50, "numbers", minimum=1)


@cases(Sort(name="sort"), data=("generated",))
def test_sorted(config, meter):
    numbers = list(range(config.size))[::-1]
    meter(lambda: sorted(numbers), items=config.size, unit="numbers")


@pytest.mark.benchmark(timer=lambda: 0.0, min_rounds=2)
def test_stopped(benchmark):
    benchmark.pedantic(work.done, rounds=2)


def test_nothing():
    assert work.COUNT


def test_no_case(config):
    pass
"""


@pytest.fixture
def own(own: OwnProject) -> OwnProject:
    own.write(TESTS)
    return own


FEW = ("--budget=0.1", "--target-precision=50%")

# The page on other repositories leaves this to its reader.
READERS = """
LINE = TEXT = "a line"
count = parse = len
"""


def test_the_pages_files_are_cases_as_written(own: OwnProject) -> None:
    page = (ROOT / "docs" / "how-to" / "own-repository.md").read_text(encoding="utf-8")
    settings = re.findall(r"```ini\n(.*?)```", page, re.DOTALL)
    (own.folder / "pytest.ini").write_text("".join(settings))
    written = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (own.folder / "tests" / "bench_page.py").write_text("".join([READERS, *written]))
    own.run("tests/bench_page.py", *FEW).assert_code(0)
    names = {"test_sort", "test_parse", "text-lines10-synthetic", "text-lines1000-synthetic"}
    assert set(own.records()) == names


@pytest.mark.entry_point
@pytest.mark.slow
def test_tests_of_pytest_benchmark_and_callables_are_recorded(own: OwnProject) -> None:
    own.environment["ONEDNN_MAX_CPU_ISA"] = "AVX2"  # a CPU that uses float32 for 16 bits
    outcome = own.run(*FEW, "-k", "not no_case and not stopped", alone=True).assert_code(0)
    assert "float32" not in outcome.text  # a callable chooses its own precision
    found = own.records()
    names = ("sum-10", "sum-100", "work", "pedantic", "told", "group", "meter", "async")
    assert set(found) == {*(f"test_{name}" for name in names), "sort-generated"}
    records = {name: one["extra_info"]["ipubench"] for name, one in found.items()}
    for name in ("test_work", "test_group", "test_meter", "test_async", "test_sum-10"):
        assert records[name]["framework"] == "python"
        assert records[name]["canary"]["seconds"], name
        assert records[name]["rounds"]["stopped_by"] != "pytest-benchmark", name
    for name, rounds, batches in (("test_pedantic", 7, 50), ("test_told", 9, None)):
        assert records[name]["effective"]["measured_by"] == "pytest-benchmark"
        assert records[name]["rounds"]["count"] >= rounds
        assert batches in (None, records[name]["rounds"]["batches_per_step"])
    assert records["test_pedantic"]["rounds"]["count"] == 7
    assert found["test_told"]["group"] == "told" and found["test_group"]["group"] == "mine"
    extra = found["test_told"]["extra_info"]
    assert extra["kept"] == 1 and extra["keys"] == "{('a', 1): 2}"
    assert found["test_sum-10"]["params"]["count"] == 10
    assert found["test_work"]["fullname"] == "tests/test_own.py::test_work"
    assert records["test_meter"]["throughput"]["unit"] == "numbers/s"
    ratio = (
        records["test_meter"]["items_per_round"]
        / records["test_meter"]["rounds"]["batches_per_step"]
    )
    assert ratio == 2000
    outcome.line("test_work (calls/s) ")
    outcome.line("10 passed, 2 deselected")


@pytest.mark.slow
def test_fresh_processes_measure_as_the_command_line_asks(own: OwnProject) -> None:
    words = ["-k", "test_work", "--benchmark-min-rounds", "6", "--benchmark-max-time=0.01"]
    words += ["--import-mode=importlib", "--processes=2", "--keep-disturbed"]
    own.run(*words, "--baseline-save=main").assert_code(0)
    own.work.write_text(WORK.replace("2000", "6000"))
    outcome = own.run(*words, "--baseline=main", "--gate=10%")
    # Otherwise our meter would measure again, which is incomparable.
    said = outcome.line("test_work (calls/s) ")
    assert "regressed" in said or "inconclusive" in said, outcome.text
    (record,) = own.records().values()
    assert record["extra_info"]["ipubench"]["effective"]["measured_by"] == "pytest-benchmark"


OPTIONS = """
def pytest_addoption(parser):
    parser.getgroup("mine").addoption("--size", type=int, default=10)
    parser.addoption("--deep", action="store_true")
"""
SIZED = """
import pytest

@pytest.mark.parametrize("url", ["http://a/./b"])
def perf_sized(benchmark, request, url):
    option = request.config.option
    with open("seen", "a") as file:
        print(option.size, option.deep, file=file)
    benchmark(sum, range(option.size))
"""


@pytest.mark.slow
def test_fresh_processes_have_the_projects_own_options(own: OwnProject) -> None:
    """Otherwise they would measure other work than the run; also for a worker's processes."""
    (own.folder / "conftest.py").write_text(OPTIONS)
    (own.folder / "tests" / "test_own.py").write_text(SIZED)
    # pytest's cache is disabled here, so its settings are unknown.
    ini = INI.replace("--device=cpu", "--device=cpu --deep")
    strict = "filterwarnings = error:Unknown config option:pytest.PytestConfigWarning\n"
    (own.folder / "pytest.ini").write_text(ini + strict)
    words = ("-o", "python_functions=perf_*", "--size=700", "--processes=2", "--keep-disturbed")
    outcome = own.run(*FEW, *words, "-n", "auto", "--baseline-save=main").assert_code(0)
    outcome.line("baseline with 1 case")
    outcome.line("1 worker ")  # a CPU is one device
    seen = (own.folder / "seen").read_text().splitlines()
    # Others may disturb one, which is then replaced.
    assert len(seen) >= 2 and set(seen) == {"700 True"}


@pytest.mark.slow
def test_a_revision_of_a_project_that_only_uses_the_plugin(own: OwnProject) -> None:
    own.commit("as it was")
    own.work.write_text(WORK.replace("2000", "6000"))
    words = (
        "--against=git:HEAD",
        "--gate=10%",
        "--gate-time=15s",
        "--gate-cap=3",
        "--budget=0.1",
        "--batches-per-step=200",
        "-k",
        "test_work",
    )
    conftest = own.folder / "tests" / "conftest.py"
    conftest.write_text(f"import sys\n\nsys.path.insert(0, {str(own.work.parent)!r})\n")
    git(own.folder, "commit", "-q", "-m", "the path of the checkout", "tests/conftest.py")
    outcome = own.run(*words).assert_code(4)
    assert re.search("refused: .*: work ", outcome.text)
    # PYTHONPATH names the checkout too, as an editable installation does.
    conftest.write_text("")
    git(own.folder, "commit", "-q", "-m", "as it was", "tests/conftest.py")
    outcome = own.run(*words, alone=True)
    said = outcome.line("test_work (calls/s) ")
    assert "regressed" in said or "inconclusive" in said, outcome.text
    outcome.line("the same versions; commit ")
    assert "alternating processes" not in outcome.text  # instead of alternating rounds
    (own.folder / "conftest.py").write_text(OPTIONS)
    outcome = own.run(*words, "--size=3").assert_code(4)
    outcome.line("unrecognized arguments: --size=3")


def test_options_without_effect_are_refused(own: OwnProject) -> None:
    for word in ("--baseline-save", "--set=steps=3"):
        outcome = own.refused("-k", "test_nothing", word if "=" in word else f"{word}=x")
        outcome.line(f"{word}: no selected test ")
    own.refused("-k", "test_work", "--set=size=2").line("--set: no selected case has")
    own.refused("-k", "test_work", "--set=batches_per_step=2,3").line("one value of an option")
    # In the settings they apply to runs that measure.
    (own.folder / "pytest.ini").write_text(INI.rstrip() + " --report=out --history\n")
    own.run("-k", "test_nothing").assert_code(0).line("1 passed")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["-k", "no_case or test_nothing or stopped or pedantic", "-rA"],
            [
                "test_no_case is not a case: ",
                "test_stopped: not recorded: ",
                "PASSED tests/test_own.py::test_pedantic",
                "3 passed, 8 deselected",
            ],
        ),
        (
            ["-k", "test_work or pedantic", "--profile=here"],
            ["cannot be profiled", "profiled and not timed", "1 failed, 1 passed"],
        ),
    ],
)
def test_options_for_a_test_without_cases(
    own: OwnProject, words: List[str], said: List[str]
) -> None:
    outcome = own.run(*words).assert_code(1)
    for one in said:
        outcome.line(one)


NAMED_AS_OURS = """
import pytest


@pytest.fixture
def meter():
    return "theirs"


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("case", ["a"])
def test_theirs(benchmark, meter, device, case):
    assert (meter, case) == ("theirs", "a")
    benchmark(len, device)


class TestWrapped:
    @pytest.fixture
    def benchmark(self, benchmark):
        benchmark.extra_info["by"] = "theirs"
        return benchmark

    def test_theirs_wrapped(self, benchmark):
        benchmark(len, "abc")
"""
THEIR_DEVICE = """
import pytest


@pytest.fixture(scope="session")
def device():
    return "theirs"


@pytest.fixture
def peaks(device):
    return [device]


@pytest.fixture
def case(peaks):
    return peaks
"""
THEIR_TEST = """

def test_theirs_too(meter, case, device):
    meter(lambda: case.index(device))
"""


def test_a_projects_fixtures_and_parameters_may_have_our_names(own: OwnProject) -> None:
    (own.folder / "tests" / "test_names.py").write_text(NAMED_AS_OURS)
    (own.folder / "tests" / "conftest.py").write_text(THEIR_DEVICE)
    text = TESTS.replace("def test_sorted(config, meter):", "def test_sorted(config, meter, case):")
    (own.folder / "tests" / "test_own.py").write_text(text + THEIR_TEST)
    own.run("-k", "theirs or test_sorted", *FEW).assert_code(0)
    combined = {"test_theirs-a-cpu", "test_theirs-a-gpu"}
    names = {"test_theirs_wrapped", "test_theirs_too", "sort-generated"}
    assert set(own.records()) == {*combined, *names}


EXPECTED_TO_FAIL = """
import pytest


@pytest.mark.xfail(reason="known")
def test_wrong(benchmark):
    assert benchmark(len, "a") == 2


def test_ordinary():
    pass
"""


def test_expected_failures_are_counted_as_pytest_does(own: OwnProject) -> None:
    (own.folder / "tests" / "test_own.py").write_text(EXPECTED_TO_FAIL)
    outcome = own.run("-rA", *FEW).assert_code(0)
    outcome.line("1 passed, 1 xfailed")
    outcome.line("test_wrong failed as expected")
    outcome.line("XFAIL tests/test_own.py::test_wrong")
    assert not re.search(r"\[ *[0-9]+%\]", outcome.text), "pytest's share of the ordinary tests"


def test_without_a_request_nothing_is_measured(own: OwnProject) -> None:
    (own.folder / "pytest.ini").write_text("[pytest]\n")
    text = TESTS[: TESTS.index("def test_meter")].replace("from ipubench", "# ")
    (own.folder / "tests" / "test_own.py").write_text(text)
    outcome = own.run("-k", "pedantic", alone=True).assert_code(0)
    assert "ipubench" not in outcome.text and not (own.folder / "results").exists()


SORTED = "tests/test_own.py::test_sorted[sort-generated]"


@pytest.mark.entry_point
def test_prune_collects_with_the_project_options(own: OwnProject) -> None:
    (own.folder / "pytest.ini").write_text(
        INI.replace("--strict", "-k nothing_at_all --lf --strict")
    )
    names = (SORTED, SORTED.replace("sort-", "gone-"))
    kept, gone = (changed(entry(), {"fullname": name}) for name in names)
    stored = own.folder / "baselines" / "main.json"
    save(stored, document(kept, gone))
    words = ("ipubench.plugins.baseline", "prune", "main")
    outcome = run_command(own.folder, own.environment, *words).assert_code(0)
    assert outcome.lines == [f"  {gone.fullname}", "1 case was pruned"], outcome.text
    assert set(load(stored)) == {SORTED}


def test_the_package_may_be_imported_before_the_plugin_is_named(own: OwnProject) -> None:
    words = ["-W", "error", "-k", "test_work", *FEW]
    (own.folder / "pytest.ini").write_text(INI.replace("-p ipubench ", ""))
    text = 'from ipubench import option\n\npytest_plugins = ["ipubench"]\n'
    (own.folder / "conftest.py").write_text(text)
    own.run(*words, alone=True).assert_code(0)
    assert list(own.records()) == ["test_work"]
