"""Tests of pytest-benchmark that ask for no fixture by an argument, and what they note later."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ipubench.plugins.record.files import read_lines
from ipubench.plugins.record.record import record_of
from ipubench.plugins.run.results import SessionResults
from tests.support.baselines import load
from tests.support.own_project import INI, OwnProject

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
LATE = """

def test_by_hand(make_bench):
    make_bench().pedantic(work, rounds=3)


def test_late(request):
    request.getfixturevalue("benchmark")(work)


def test_late_meter(request):
    request.getfixturevalue("meter")(work, unit="sums")


def test_nothing(request):
    pass
"""


def results_of(own: OwnProject) -> SessionResults:
    """Return what the latest run has written."""
    (journal, *_) = sorted((own.folder / "results").glob("run-*.jsonl"), reverse=True)
    return SessionResults.of(read_lines(journal))


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
def test_a_fixture_that_is_asked_for_while_a_test_runs_measures_a_case(
    own: OwnProject, workers: Any
) -> None:
    if workers:
        pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    own.write(HEAD + LATE)
    words = (*FEW, *workers, "--keep-disturbed", "--processes=2", "--baseline-save=main")
    outcome = own.run(*words).assert_code(0)
    results = results_of(own)
    found = {name.split("::")[1]: record_of(one) for name, one in results.benchmarks.items()}
    assert set(found) == {"test_late", "test_late_meter"}
    assert "measured_by" not in found["test_late"]["effective"]
    assert found["test_late_meter"]["throughput"]["unit"] == "sums/s"
    assert set(results.selected) == set(results.benchmarks) == set(results.outcomes)
    stored = load(own.folder / "baselines" / "main.json").values()
    assert min(len(record_of(one)["processes"]) for one in stored) >= 2
    if not workers:  # a fixture that the test makes itself is pytest-benchmark's alone
        outcome.line("Name (time in ")
        own.run("-k", "nothing", "--set=steps=2").assert_code(0).line("1 passed")


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


def test_what_is_noted_after_the_measurement_is_kept(own: OwnProject) -> None:
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
        extra = {**benchmark["extra_info"]}
        del extra["ipubench"]
        assert extra == {"before": 1, "machine_state": {"hot": True}, "in_fixture": None}
    (theirs,) = json.loads((own.folder / "own.json").read_text())["benchmarks"]
    assert theirs["extra_info"]["machine_state"] == {"hot": True}


@pytest.mark.parametrize("typed", [True, False], ids=["typed", "settings"])
def test_options_of_pytest_benchmarks_table_show_it(own: OwnProject, typed: bool) -> None:
    own.write(EXTRA)
    word = "--benchmark-group-by=func"
    if not typed:
        (own.folder / "pytest.ini").write_text(f"{INI.rstrip()} {word}\n")
    words = ["--benchmark-max-time=0.01", *([word] if typed else [])]
    own.run(*FEW, *words).assert_code(0).line("Name (time in ")


SAME = """
def test_here(benchmark):
    benchmark(sum, [1])


def test_late(request):
    request.getfixturevalue("benchmark")(sum, [1])
"""


def test_files_of_one_node_id_are_refused(own: OwnProject) -> None:
    """Of two packages that each have settings, the first is pytest's root."""
    (own.folder / "pytest.ini").unlink()
    for name in ("pkg-a", "pkg-b"):
        package = own.folder / name
        package.mkdir()
        (package / "pytest.ini").write_text(INI)
        (package / "test_same.py").write_text(SAME)
    words = (*FEW, "--import-mode=importlib", "pkg-a", "pkg-b")
    own.run(*words).assert_code(4).line("have one test for pytest, test_same.py::test_here")
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
    outcome.line("test_not_twice: measured by its first call, because a later one fails")
    outcome.line("2 cases: measured once")
    own.run("--benchmark-disable", "-k", "rounds or twice").assert_code(0).line("2 passed")
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


def test_a_coroutine_function_is_awaited_in_the_loop_that_runs(own: OwnProject) -> None:
    own.write(HEAD + AWAITED)
    own.run(*FEW).assert_code(0).line("6 passed")
    found = own.records()
    assert set(found) == {
        f"test_{n}" for n in ("call", "pedantic", "told", "meter", "without_a_loop")
    }
    assert record_of(found["test_pedantic"])["rounds"]["count"] == 4
    assert record_of(found["test_told"])["rounds"]["count"] >= 5
