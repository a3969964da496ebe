"""How many fresh processes measure a case, and for how long. No process is started here."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Optional, cast

import pytest

from ipubench.plugins.compare.fresh_processes import (
    FreshProcesses,
    most_time,
    processes_wanted,
    seconds_of_fresh,
    too_few,
)
from ipubench.plugins.record.structs import Benchmark, Contention
from ipubench.plugins.run.gate_time import GateTime
from ipubench.plugins.run.time_spent import TimeSpent
from tests.support.command_line import given_options
from tests.support.stored import a_benchmark, changed


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> List[float]:
    """The seconds that each measurement takes, set by the test."""
    seconds: List[float] = []

    def times() -> Iterator[float]:
        while True:
            yield 100.0
            yield 100.0 + seconds.pop(0)

    monkeypatch.setattr(time, "monotonic", times().__next__)
    return seconds


def test_each_case_has_its_share_and_unused_time_of_earlier_ones(clock: List[float]) -> None:
    spent = GateTime(60.0, cases=3)
    spent.begin()
    assert spent.allows(20.0) and not spent.allows(20.1)
    assert (spent.at_most(9.0), spent.at_most(900.0)) == (9.0, 20.0)
    clock.append(5.0)
    with spent.spending():
        pass
    assert spent.latest == 5.0
    assert spent.allows(15.0) and not spent.allows(15.1)
    clock.append(1.0)
    with pytest.raises(ZeroDivisionError), spent.spending():
        raise ZeroDivisionError
    assert spent.allows(14.0) and not spent.allows(14.1)
    spent.end()
    spent.begin()
    assert spent.allows(27.0) and not spent.allows(27.1)
    for _ in range(2):
        spent.end()
    # A worker may have more cases than others.
    spent.begin()
    assert spent.allows(54.0) and not spent.allows(54.1)


class Measured(FreshProcesses):
    """Fresh processes that others disturbed (d) or not, until there is no time (-).

    A w marks processes on a CPU.
    """

    def __init__(self, how: str) -> None:
        self.how = how
        self.used = 0
        self._item = cast(Any, SimpleNamespace(config=config()))

    def __call__(self, number: int) -> Optional[Benchmark]:
        self.used = number
        clean = self.how[number - 1] != "d"
        contention = Contention(enough=clean, lost=[0.0 if clean else 0.5], limit=0.02)
        kind = {"record.device.kind": "cpu" if "w" in self.how else "ipu"}
        measured = changed(a_benchmark([0.1], contention=contention), kind)
        return None if self.how[number - 1] == "-" else measured


@pytest.mark.parametrize(
    ("how", "wanted", "used"),
    [
        ("cccc", 3, 3),
        ("cdcc", 3, 4),
        ("cc-c", 3, 3),
        ("ddd", 3, 3),  # the machine is shared
        ("ddcddcd", 3, 6),
        ("wwwww", 3, 5),  # two next to busy programs
        ("wdww-", 3, 5),
    ],
)
def test_a_baseline_prefers_clean_processes(how: str, wanted: int, used: int) -> None:
    processes = Measured(how)
    processes.for_a_baseline(wanted)
    assert processes.used == used


def config(**options: Any) -> Any:
    given = {
        **{"processes": None, "baseline_save": None, "gate_time": None},
        **{"gate_cap": 12, "budget": 5.0},
        **options,
    }
    return SimpleNamespace(option=given_options(**given))


def test_a_baseline_has_nine_processes_unless_a_number_is_given() -> None:
    assert processes_wanted(config()) == 1
    assert processes_wanted(config(baseline_save="main")) == 9
    assert processes_wanted(config(baseline_save="main", processes=2)) == 2


@pytest.mark.parametrize(
    ("processes", "fresh", "gate_time", "said"),
    [
        (9, 2, 60.0, "--gate-time left time for 2 of 8 fresh processes"),
        (9, 3, 60.0, ""),
        (9, 2, None, ""),
        (2, 1, 60.0, ""),
        (2, 0, 60.0, "--gate-time left time for 0 of 1 fresh process"),
    ],
)
def test_too_few_processes_are_named(
    processes: int, fresh: int, gate_time: Optional[float], said: str
) -> None:
    run: Any = SimpleNamespace(
        config=config(processes=processes, gate_time=gate_time),
        results=SimpleNamespace(fresh={"a.py::a": fresh * [{}]}),
    )
    assert too_few(run, "a.py::a") == said


@pytest.mark.parametrize(
    ("given", "cases", "judged", "said"),
    [
        ({}, 3, 0, None),
        ({"processes": 9}, 0, 0, None),
        ({"processes": 4}, 5, 0, "3 fresh processes for each of 5 cases"),
        ({}, 5, 2, "up to 12 fresh processes for each of 2 cases"),
        ({"processes": 4, "gate_time": 60.0}, 5, 1, "about 60 s at most"),
    ],
)
def test_the_expected_duration_is_shown_first_as_far_as_it_is_known(
    given: Dict[str, Any], cases: int, judged: int, said: Optional[str]
) -> None:
    found = most_time(config(**given), cases, judged)
    assert (found is None) == (said is None)
    assert (said or "") in (found or "")


def test_a_fresh_process_takes_as_long_as_the_run_did_for_its_case() -> None:
    """It starts and imports like the run, without the time that the run waited."""
    now = [0.0]
    spent = TimeSpent(lambda: now[0], before=2.0)
    parts = {"device": 50.0, "import": 4.0, "build": 1.0, "rounds": 5.0, "compare": 30.0}
    run: Any = SimpleNamespace(spent=spent, gate_time=GateTime(None, 2))

    def pass_time(**seconds: float) -> None:
        spent.begin_case()
        for part, value in seconds.items():
            spent.enter(part)
            now[0] += value

    pass_time(**parts)
    assert seconds_of_fresh(run) == 2 + 4 + 1 + 5
    # The second case of a run imports nothing, but its fresh process does.
    pass_time(build=1.0, rounds=3.0)
    assert seconds_of_fresh(run) == 2 + 4 + 1 + 3
    run.gate_time.beyond = 8.0
    assert seconds_of_fresh(run) == 2 + 4 + 1 + 3 + 8
