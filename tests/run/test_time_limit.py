"""The time of a run with `--within`: what each case gets of it, and what the run learns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Dict, List

import pytest

from ipubench.fixtures.case.cases import case_key
from ipubench.fixtures.devices.fake import FakeClock
from ipubench.plugins.run import within
from ipubench.plugins.run.results import run_key
from ipubench.plugins.run.within import UNKNOWN, TimeLimit
from ipubench.plugins.selection.time_plan import LEAST_BUDGET, Expected
from tests.support.reports import benchmark

SIX = [f"bench.py::bench_{function}[{case}]" for function in "ab" for case in "123"]


def limit(seconds: float, clock: FakeClock, overhead: float = 10.0) -> TimeLimit:
    """Return a limit with six cases of a known length that were all chosen where they fit."""
    made = TimeLimit(seconds, 5.0, clock)
    made.known = dict.fromkeys(SIX, Expected(overhead))
    made.choose(SIX)
    return made


def test_with_enough_time_nothing_changes() -> None:
    made = limit(6 * 18 + 1, FakeClock())
    assert (made.waiting, made.share()) == (SIX, 5.0)


def test_there_are_fewer_rounds_before_there_are_fewer_cases() -> None:
    assert limit(6 * 14, FakeClock()).share() == pytest.approx(2.5, rel=0.01)
    few = limit(3 * 11.7, FakeClock())
    assert few.waiting == [SIX[0], SIX[1], SIX[3]]
    assert few.share() == pytest.approx(LEAST_BUDGET, rel=0.1)


def test_a_case_that_took_less_leaves_its_time_to_the_others() -> None:
    clock = FakeClock()
    made = limit(6 * 14, clock)
    first = made.begin(SIX[0])
    clock.advance(2.0)
    second = made.begin(SIX[1])
    assert first is not None and second is not None and second > first


def test_a_case_that_took_longer_takes_rounds_and_then_cases_from_the_others() -> None:
    clock = FakeClock()
    made = limit(6 * 14, clock)
    made.begin(SIX[0])
    clock.advance(20.0)
    assert made.begin(SIX[1]) == pytest.approx(1.75, rel=0.02)
    clock.advance(55.0)
    assert [made.begin(nodeid) for nodeid in SIX[2:]] == [None] * 4
    assert made.skipped == SIX[2:]


def test_the_first_case_runs_however_short_the_time_is() -> None:
    made = limit(1.0, FakeClock())
    assert [made.begin(nodeid) for nodeid in SIX[:2]] == [LEAST_BUDGET, None]
    assert made.skipped == SIX[1:2]


def test_a_budget_that_is_small_already_gets_no_larger() -> None:
    made = TimeLimit(1.0, 0.3, FakeClock())
    made.choose(SIX)
    assert made.share() == 0.3


def test_what_no_journal_knows_is_taken_from_its_function_or_assumed() -> None:
    made = TimeLimit(100.0, 5.0, FakeClock())
    for nodeid, seconds in zip(SIX, (3.0, 2.0)):
        made.learn(nodeid, Expected(seconds))
    assert [made.expected(nodeid).overhead for nodeid in SIX[:3]] == [3.0, 2.0, 3.0]
    assert made.expected(SIX[3]) == UNKNOWN


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (6 * 18, []),
        (6 * 18 - 0.2, []),  # 4.98 s of 5
        (6 * 14, ["--within=84s: a case gets about 2.5s of rounds instead of 5s"]),
    ],
)
def test_the_header_says_what_of_its_budget_a_case_gets(seconds: float, said: List[str]) -> None:
    config = config_of(limit(seconds, FakeClock()), seconds)
    assert within.pytest_report_collectionfinish(config) == said


def test_the_header_does_not_take_a_small_budget_for_less_than_itself() -> None:
    made = TimeLimit(1.0, 0.24, FakeClock())
    made.choose(SIX)
    assert made.share() == 0.24
    assert within.pytest_report_collectionfinish(config_of(made, 1.0)) == []


def test_of_no_case_the_header_says_nothing() -> None:
    config = config_of(TimeLimit(-1.0, 5.0, FakeClock()), 1.0)
    assert within.pytest_report_collectionfinish(config) == []


def config_of(made: TimeLimit, seconds: float = 84.0) -> Any:
    """Return what a run with a limit has of its configuration."""
    run = SimpleNamespace(results=SimpleNamespace(benchmarks={}))
    option = SimpleNamespace(within=seconds, budget=5.0)
    return SimpleNamespace(option=option, stash={within.limit_key: made, run_key: run})


def item_of(config: Any, nodeid: str, case: Any = "a case") -> Any:
    """Return a test of a run; without a case it measures nothing."""
    return SimpleNamespace(nodeid=nodeid, config=config, stash={case_key: case})


def test_a_case_has_its_share_until_the_time_is_over() -> None:
    clock = FakeClock()
    made = limit(84.0, clock)
    config = config_of(made)
    within.pytest_runtest_setup(item_of(config, SIX[0]))
    assert config.option.budget == pytest.approx(2.5, rel=0.01)
    clock.advance(90.0)
    said = "--within=84s: 0 s are left, and the case takes about 12 s"
    with pytest.raises(pytest.skip.Exception, match=f"^{said}$"):
        within.pytest_runtest_setup(item_of(config, SIX[1]))
    assert made.skipped == SIX[1:2]


def test_a_test_that_is_no_case_runs_when_the_time_is_over() -> None:
    made = TimeLimit(-1.0, 5.0, FakeClock())
    config = config_of(made)
    made.begin(SIX[0])
    try:
        within.pytest_runtest_setup(item_of(config, "test.py::test_plain", case=None))
    except pytest.skip.Exception:
        pytest.fail("it was skipped")
    assert config.option.budget == 5.0


def test_what_a_case_took_is_learned_at_its_end() -> None:
    made = limit(84.0, FakeClock())
    config = config_of(made)
    list(within.pytest_runtest_protocol(item_of(config, SIX[0])))
    assert made.known[SIX[0]].overhead == 10.0  # it was not measured
    one = benchmark("1", "bench.py::bench_a")
    one["extra_info"]["ipubench"]["spent"] = {"compile": 3.0}
    config.stash[run_key].results.benchmarks[SIX[0]] = one
    list(within.pytest_runtest_protocol(item_of(config, SIX[0])))
    assert made.known[SIX[0]].overhead == 3.0


def test_what_was_skipped_is_none_of_the_runs_cases() -> None:
    made = limit(84.0, FakeClock())
    config = config_of(made)
    added: List[Dict[str, Any]] = []
    run = SimpleNamespace(order=list(SIX), closing=[], add=added.append)
    config.stash[run_key] = run
    session: Any = SimpleNamespace(config=config)
    within.pytest_sessionfinish(session)
    assert (run.order, added, run.closing) == (SIX, [], [])
    made.skipped = SIX[1:]
    within.pytest_sessionfinish(session)
    assert (run.order, added) == (SIX[:1], [{"type": "selected", "cases": SIX[:1]}])
    assert run.closing == ["5 cases were skipped: the time of --within=84s was over"]
