"""Measurements of pytest-benchmark without our meter: none is lost silently."""

from __future__ import annotations

import collections
import json
import shutil
from typing import Any, Counter, Dict, List

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipubench.plugins.record.record import ITSELF, of_test
from ipubench.plugins.results.lines import read_lines
from ipubench.plugins.results.run_results import RunResults
from tests.support.baselines import load
from tests.support.own_project import INI, OwnProject
from tests.support.stored import record_of

FEW = ("--budget=0.02", "--target-precision=50%")

HEAD = """
import asyncio
import unittest

import pytest
from pytest_benchmark.fixture import BenchmarkFixture


@pytest.fixture
def make_bench(request):
    def make(name=None):
        session = request.config._benchmarksession
        found = BenchmarkFixture(
            request.node,
            add_stats=session.benchmarks.append,
            logger=session.logger,
            warner=request.node.warn,
            disabled=session.disabled,
            **session.options,
        )
        found.name = name or found.name
        return found

    return make


def work():
    return sum(range(500))
"""
MANY = """

@pytest.mark.parametrize("size", [1, 2])
def test_many(make_bench, size):
    for name in ("a b", "sort"):
        make_bench(name).pedantic(work, rounds=3, iterations=5)


def test_unnamed(make_bench):
    make_bench().pedantic(work, rounds=3)
    make_bench()(work)


def test_late(request):
    request.getfixturevalue("benchmark")(work)


def test_late_meter(request):
    request.getfixturevalue("meter")(work, unit="sums")


def test_fails(make_bench):
    make_bench().pedantic(work, rounds=3)
    assert False


def test_nothing(request):
    pass
"""


def results_of(own: OwnProject) -> RunResults:
    """Return the results of the latest run."""
    (journal, *_) = sorted((own.folder / "results").glob("run-*.jsonl"), reverse=True)
    return RunResults.of(read_lines(journal))


def test_each_result_of_a_test_is_a_case_also_from_workers(own: OwnProject) -> None:
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    own.write(HEAD + MANY)
    own.run(*FEW, "-n", "2").assert_code(1)
    results = results_of(own)
    found = {name.split("::")[1]: one.record for name, one in results.benchmarks.items()}
    assert {key: record.name for key, record in found.items()} == {
        "test_many[1-a-b]": "test_many-1-a-b",
        "test_many[1-sort]": "test_many-1-sort",
        "test_many[2-a-b]": "test_many-2-a-b",
        "test_many[2-sort]": "test_many-2-sort",
        "test_unnamed": "test_unnamed",
        "test_unnamed[2]": "test_unnamed-2",
        "test_late": "test_late",
        "test_late_meter": "test_late_meter",
        "test_fails": "test_fails",
    }
    assert found["test_many[2-sort]"].rounds.batches_per_step == 5
    assert found["test_many[2-sort]"].effective["measured_by"] == ITSELF
    assert "measured_by" not in found["test_late"].effective
    assert found["test_late_meter"].throughput.unit == "sums/s"
    assert set(results.selected) == set(results.benchmarks) == set(results.outcomes)
    failed = {key for key, outcome in results.outcomes.items() if outcome == "failed"}
    assert failed == {"tests/test_own.py::test_fails"}


@pytest.mark.slow
def test_they_are_stored_and_compared(own: OwnProject) -> None:
    own.write(HEAD + MANY.replace("assert False", "pass"))
    words = (*FEW, "-k", "unnamed or late", "--keep-disturbed", "--processes=2")
    own.run(*words, "--baseline-save=main").assert_code(0)
    stored = load(own.folder / "baselines" / "main.json")
    kept = {name.split("::")[1]: len(one.record.processes) for name, one in stored.items()}
    assert set(kept) == {"test_unnamed", "test_unnamed[2]", "test_late", "test_late_meter"}
    assert min(kept.values()) >= 2  # more if others disturb some
    own.write((HEAD + MANY).replace("    make_bench()(work)\n", ""))
    gated = ("--baseline=main", "--gate=99%", "--gate-time=1s")
    # A deselected test is not missing, but one that no longer measures is.
    own.run(*FEW, "-k", "late", *gated).line("against baselines/main.json")
    results = results_of(own)
    assert set(results.verdicts) == {
        f"tests/test_own.py::{name}" for name in kept if "late" in name
    }
    own.run(*FEW, "-k", "unnamed", *gated)
    assert results_of(own).kind("tests/test_own.py::test_unnamed[2]") == "missing"


EXTRA = """
import pytest


@pytest.fixture
def later(benchmark):
    yield benchmark
    benchmark.extra_info["in_fixture"] = float("inf")


def test_extra(later):
    later.extra_info["before"] = 1
    later(sum, [1])
    later.extra_info["machine_state"] = {"hot": True}
"""


def test_facts_added_after_the_measurement_are_kept(own: OwnProject) -> None:
    own.write(EXTRA)
    words = (
        "--baseline-save=main",
        "--processes=1",
        "--keep-disturbed",
        "--benchmark-json=own.json",
    )
    own.run(*FEW, *words).assert_code(0)
    (journal,) = results_of(own).benchmarks.values()
    (stored,) = load(own.folder / "baselines" / "main.json").values()
    for benchmark in (journal, stored):
        assert benchmark.extra_info.others == {
            "before": 1,
            "machine_state": {"hot": True},
            "in_fixture": None,
        }
    (theirs,) = json.loads((own.folder / "own.json").read_text())["benchmarks"]
    assert theirs["extra_info"]["machine_state"] == {"hot": True}


@pytest.mark.parametrize(
    ("typed", "added", "said"),
    [
        ("--benchmark-group-by=func", "", "Name (time in "),
        ("", "--benchmark-group-by=func", "Name (time in "),
        ("--benchmark-time-unit=ns", "", "Name (time in ns)"),
    ],
)
def test_table_options_of_pytest_benchmark_show_it(
    own: OwnProject, typed: str, added: str, said: str
) -> None:
    own.write(EXTRA)
    (own.folder / "pytest.ini").write_text(f"{INI.rstrip()} {added}\n")
    words = ["--benchmark-max-time=0.01", *filter(None, [typed])]
    own.run(*FEW, *words).assert_code(0).line(said)


BUILTIN = """
def test_sort(benchmark):
    benchmark(sorted, [3, 1, 2], reverse=True)
"""


def test_a_profile_has_the_measured_builtin(own: OwnProject) -> None:
    own.write(BUILTIN)
    outcome = own.run("--benchmark-cprofile=tottime", "--benchmark-max-time=0.01").assert_code(0)
    outcome.line("<built-in method builtins.sorted>")


def test_options_of_our_meter_without_effect_are_named(own: OwnProject) -> None:
    own.write(BUILTIN)
    ini = f"{INI.rstrip()} --benchmark-max-time=0.01\n"
    (own.folder / "pytest.ini").write_text(ini)
    said = "--budget: without effect on cases that pytest-benchmark measures: leave out --benchmark"
    own.run("--budget", "1").assert_code(0).line(said)
    assert "without effect" not in own.run().text


@pytest.mark.parametrize(
    ("word", "shown"), [("-q", True), ("-qq", False), ("--benchmark-quiet", False)]
)
def test_quiet_runs(own: OwnProject, word: str, shown: bool) -> None:
    own.write(BUILTIN)
    outcome = own.run("--budget=0.05", word).assert_code(0)
    assert ("test_sort (calls/s)" in outcome.text) is shown
    assert not any(line.startswith(("time: ", "test_sort: ")) for line in outcome.lines)


SAME = """
def test_here(benchmark):
    benchmark(sum, [1])


def test_late(request):
    request.getfixturevalue("benchmark")(sum, [1])
"""


def test_two_files_with_one_node_id_are_refused(own: OwnProject) -> None:
    """If two packages have settings, pytest takes the first as its root."""
    (own.folder / "pytest.ini").unlink()
    for name in ("pkg-a", "pkg-b"):
        package = own.folder / name
        package.mkdir()
        (package / "pytest.ini").write_text(INI)
        (package / "test_same.py").write_text(SAME)
    words = (*FEW, "--import-mode=importlib", "pkg-a", "pkg-b")
    own.refused(*words).line(" node id, test_same.py::test_here")
    own.run(*words, "-k", "late").assert_code(1).line("1 failed, 1 passed")
    root = ("-c", "pkg-a/pytest.ini", f"--rootdir={own.folder}")
    own.run(*words, *root).assert_code(0)
    assert len(results_of(own).benchmarks) == 4


MARKED = """

@pytest.mark.benchmark
@pytest.mark.parametrize("size", [1, 2])
def test_marked(size, tmp_path):
    work()


@pytest.mark.benchmark(rounds=1)
def test_rounds(request):
    with open("called", "a") as file:
        print(file=file)


@pytest.mark.benchmark(max_rounds=3, group="mine")
def test_most():
    work()


@pytest.mark.benchmark
def test_not_twice(tmp_path):
    (tmp_path / "made").mkdir()


@pytest.mark.benchmark
class TestMarked:
    def test_method(self):
        work()


@pytest.mark.benchmark
def test_fails():
    assert False


class TestOther(unittest.TestCase):
    @pytest.mark.benchmark
    def test_of_unittest(self):
        work()
"""


def test_the_call_of_a_marked_test_is_measured(own: OwnProject) -> None:
    own.write(HEAD + MARKED)
    outcome = own.run(*FEW).assert_code(1)
    outcome.line("1 failed, 7 passed")
    found = own.records()
    rounds = {name: record_of(one)["rounds"]["count"] for name, one in found.items()}
    names = {"test_marked-1", "test_marked-2", "test_rounds", "test_most", "test_not_twice"}
    assert set(found) == {*names, "test_method"}
    assert (rounds["test_rounds"], rounds["test_most"], rounds["test_not_twice"]) == (1, 3, 1)
    assert "measured_by" not in record_of(found["test_marked-2"])["effective"]
    assert found["test_most"]["group"] == "mine"
    assert (own.folder / "called").read_text() == "\n"
    outcome.line("test_not_twice: measured ")
    outcome.line("2 cases: measured once")
    own.run("--benchmark-disable", "-k", "rounds or twice").assert_code(0).line("2 passed")
    own.run("--benchmark-disable", "-k", "rounds", "--against=git:HEAD").assert_code(4)
    assert (own.folder / "called").read_text() == "\n\n"


AWAITED = """

async def fetch(value=1):
    await asyncio.sleep(0)
    assert asyncio.get_running_loop() is LOOPS[-1]
    return value


LOOPS = []


def in_a_loop(function):
    async def noted():
        LOOPS.append(asyncio.get_running_loop())
        return await function()

    return asyncio.run(noted())


def test_call(benchmark):
    async def measured():
        return await benchmark(fetch, 2)

    assert in_a_loop(measured) == 2


def test_pedantic(benchmark):
    async def measured():
        return await benchmark.pedantic(fetch, args=(3,), rounds=4, iterations=2)

    assert in_a_loop(measured) == 3


@pytest.mark.benchmark(min_rounds=5, max_time=0.01)
def test_told(benchmark):
    async def measured():
        return await benchmark(fetch, 4)

    assert in_a_loop(measured) == 4


def test_meter(meter):
    async def measured():
        await meter(fetch)

    in_a_loop(measured)


def test_raises(benchmark):
    async def fails():
        raise KeyError("mine")

    async def measured():
        with pytest.raises(KeyError, match="mine"):
            await benchmark(fails)

    in_a_loop(measured)


def test_without_a_loop(benchmark):
    async def alone():
        return 5

    assert benchmark(alone) == 5
"""


def test_a_coroutine_function_is_awaited_in_the_running_loop(own: OwnProject) -> None:
    own.write(HEAD + AWAITED)
    own.run(*FEW).assert_code(0).line("6 passed")
    found = own.records()
    assert set(found) == {
        f"test_{n}" for n in ("call", "pedantic", "told", "meter", "without_a_loop")
    }
    assert record_of(found["test_pedantic"])["rounds"]["count"] == 4
    assert record_of(found["test_told"])["rounds"]["count"] >= 5


#: How a test measures -> its fixtures, its marker, and its lines.
WAYS: Dict[str, Any] = {
    "call": (["benchmark"], "", "benchmark(work)"),
    "pedantic": (["benchmark"], "", "benchmark.pedantic(work, rounds=2)"),
    "late": (["request"], "", "request.getfixturevalue('benchmark')(work)"),
    "marked": ([], "@pytest.mark.benchmark", "work()"),
    "no_time": (["benchmark"], "", "benchmark._timer = int; benchmark.pedantic(work, rounds=2)"),
    "none": ([], "", "work()"),
}
BESIDE: Dict[str, Any] = {
    "unnamed": (["make_bench"], "make_bench().pedantic(work, rounds=2)"),
    "named": (["make_bench"], "make_bench('mine').pedantic(work, rounds=2)"),
    "set_up": (["measures_before"], "pass"),
    "torn_down": (["measures_after"], "pass"),
}
FIXTURES = """

@pytest.fixture
def measures_before(make_bench):
    make_bench("before").pedantic(work, rounds=2)


@pytest.fixture
def measures_after(make_bench):
    yield
    make_bench("after").pedantic(work, rounds=2)
"""
HELD = """
import json


def pytest_sessionfinish(session):
    held = [one.fullname for one in session.config._benchmarksession.benchmarks]
    with open("held.json", "w") as file:
        json.dump(held, file)
"""
SHAPES = st.lists(
    st.tuples(st.sampled_from(sorted(WAYS)), st.lists(st.sampled_from(sorted(BESIDE)), max_size=3)),
    min_size=1,
    max_size=4,
)


def source(shapes: List[Any]) -> str:
    """Return the source of tests with these shapes."""
    lines = [HEAD, FIXTURES]
    for number, (way, beside) in enumerate(shapes):
        fixtures, marker, line = WAYS[way]
        # A marked test is called repeatedly and would create its fixtures each time.
        others = [] if way == "marked" else [BESIDE[name] for name in beside]
        names = dict.fromkeys([*fixtures, *(name for asked, _ in others for name in asked)])
        lines += [f"\n\n{marker}\ndef test_{number}({', '.join(names)}):", f"    {line}"]
        lines += [f"    {line}" for _, line in others]
    return "\n".join(lines) + "\n"


@pytest.mark.slow
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(shapes=SHAPES)
def test_every_result_of_pytest_benchmark_is_a_row_or_is_named(
    own: OwnProject, shapes: List[Any]
) -> None:
    own.write(source(shapes))
    (own.folder / "conftest.py").write_text(HELD)
    # On the command line they are refused if nothing measures.
    (own.folder / "pytest.ini").write_text(f"{INI.rstrip()} {' '.join(FEW)}\n")
    shutil.rmtree(own.folder / "results", ignore_errors=True)
    outcome = own.run().assert_code(0)
    held: Counter[str] = collections.Counter(json.loads((own.folder / "held.json").read_text()))
    shown: Counter[str] = collections.Counter()
    if (own.folder / "results").exists():
        shown.update(map(of_test, results_of(own).benchmarks.values()))
    else:
        assert not held or "Name (time in " in outcome.text  # pytest-benchmark's own table
        return
    named = [line.split(": ")[0] for line in outcome.lines if "not recorded" in line]
    shown.update(name if "::" in name else f"tests/test_own.py::{name}" for name in named)
    assert shown == held, outcome.text
