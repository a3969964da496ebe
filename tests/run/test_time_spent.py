"""How a run's time is divided."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Dict, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.plugins.run import time_spent
from ipubench.plugins.run.time_spent import WORDS, TimeSpent, seconds_of_start, time_summary
from tests.support.fake_device import FakeClock
from tests.support.harness import Project

PARTS = st.tuples(st.sampled_from(sorted(WORDS)), st.floats(0, 1e4))


def spent_on(clock: FakeClock, parts: List[Tuple[str, float]]) -> TimeSpent:
    """Return a stopwatch with consecutive parts, on a clock that starts at zero."""
    spent = TimeSpent(clock)
    for part, seconds in parts:
        spent.enter(part)
        clock.advance(seconds)
    return spent


@given(st.lists(PARTS))
def test_the_parts_add_up_to_the_elapsed_time(parts: List[Tuple[str, float]]) -> None:
    clock = FakeClock()
    found = spent_on(clock, parts).of_run()
    assert math.fsum(found.values()) == pytest.approx(clock.now, abs=1e-3)


def test_a_nested_part_counts_once() -> None:
    clock = FakeClock()
    spent = TimeSpent(clock, before=3.0)
    clock.advance(1.0)
    with spent.during("build"):
        clock.advance(2.0)
        with spent.during("import"):
            clock.advance(5.0)
        clock.advance(4.0)
    assert spent.of_run() == {"start": 4.0, "build": 6.0, "import": 5.0}


def test_a_case_has_the_parts_since_its_start() -> None:
    clock = FakeClock()
    spent = spent_on(clock, [("start", 7.0), ("rounds", 2.0), ("between", 1.0)])
    spent.begin_case()
    clock.advance(0.5)
    with spent.during("rounds"):
        clock.advance(3.0)
    assert spent.of_case() == {"other": 0.5, "rounds": 3.0}
    spent.enter("record")
    clock.advance(0.25)
    assert spent.of_case() == {"other": 0.5, "rounds": 3.0, "record": 0.25}


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ({"compile": 6.0, "rounds": 3.0}, {"compile": 6.0, "rounds": 3.0, "start": 1.0}),
        ({"rounds": 11.0}, {"build": 10.0}),  # more than there was
        ({}, {"start": 10.0}),
    ],
)
def test_another_process_reports_its_parts(told: Dict[str, float], found: Dict[str, float]) -> None:
    clock = FakeClock()
    spent = spent_on(clock, [("build", 10.0)])
    spent.split(told)
    assert {part: seconds for part, seconds in spent.of_run().items() if seconds} == found


def test_the_largest_part_comes_first_and_tiny_ones_are_left_out() -> None:
    parts = {"start": 3.0, "rounds": 170.0, "compile": 44.0, "other": 0.2}
    spent = spent_on(FakeClock(), list(parts.items()))
    (line,) = time_summary(spent, 80)
    assert line.startswith("time: 217 s: 78% rounds, 20% compiling, 1% starting")
    assert line.count("%") == 3
    assert time_summary(TimeSpent(FakeClock()), 80) == []


def test_the_times_of_workers_are_added() -> None:
    spent = spent_on(FakeClock(), [("start", 100.0)])
    spent.workers = [{"rounds": 3.0, "between": 1.0}, {"rounds": 6.0}]
    (line,) = time_summary(spent, 80)
    assert line.startswith("time of 2 workers: 10 s: 90% ")


def test_the_system_knows_the_age_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = tmp_path / "stat"
    clock = SimpleNamespace(CLOCK_BOOTTIME=7, clock_gettime=lambda _: 10.0)
    monkeypatch.setattr(time_spent, "Path", lambda _: stat)
    monkeypatch.setattr(time_spent, "time", clock)
    monkeypatch.setattr(time_spent, "os", SimpleNamespace(sysconf=lambda _: 100))
    assert seconds_of_start() == 0.0
    stat.write_text("7 (a) b) S " + "1 " * 18 + "150 5")
    assert seconds_of_start() == 8.5


@pytest.mark.parametrize(
    ("fixture", "part", "seconds"), [("pytorch", "import", 2.0), ("tmp_path", "start", 3.0)]
)
def test_slow_fixtures_are_listed_separately(fixture: str, part: str, seconds: float) -> None:
    clock = FakeClock()
    spent = TimeSpent(clock)
    with spent.of_fixture(fixture):
        clock.advance(2.0)
    clock.advance(1.0)
    assert spent.of_run()[part] == seconds


def test_records_and_the_journal_have_the_times(project: Project) -> None:
    outcome = project.run("-k", "bs8 and synthetic", "--set=loader_seconds=0.01").assert_code(0)
    assert outcome.line("time: ").startswith("time: ")
    (record,) = project.records().values()
    spent = record["spent"]
    assert {"build", "warm_up", "rounds", "input", "record"} <= set(spent) <= set(WORDS)
    end = project.journal()[-1]["spent"]
    assert {"start", "between", "close"} <= set(end) <= set(WORDS)
    assert all(end[part] >= seconds for part, seconds in spent.items())
    project.run("-k", "bs8 and synthetic", "-n", "2").assert_code(0).line("time of 2 workers: ")
