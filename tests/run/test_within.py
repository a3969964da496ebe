"""`--within`: each case's share of the time, and the cases that are left out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, List

import pytest

from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.devices.fake import FakeClock
from ipubench.plugins.compare import fresh_processes
from ipubench.plugins.run import within
from ipubench.plugins.run.within import LEAST_BUDGET, MEASURED, TimeLimit
from tests.support.command_line import given_options
from tests.support.harness import Project, run_command


def limit_of(seconds: float, cases: int, clock: FakeClock, budget: float = 5.0) -> TimeLimit:
    made = TimeLimit(seconds, budget, clock)
    made.waiting = cases
    return made


@pytest.mark.parametrize(
    ("seconds", "budgets"),
    [(200.0, [5.0] * 4), (80.0, [5.0, 2.5, 2.5, 2.5]), (60.0, [5.0, 1.0, 1.0, None])],
)
def test_rounds_are_reduced_before_cases_are_dropped(seconds: float, budgets: List[Any]) -> None:
    clock = FakeClock()
    limit = limit_of(seconds, 4, clock)
    for case, expected in zip("abcd", budgets):
        budget = limit.begin(case)
        assert budget == (expected and pytest.approx(expected, abs=0.01))
        if budget is not None:
            clock.advance(MEASURED * budget + 14.999)  # besides its rounds
            limit.end()
    assert limit.skipped == ["d"] * budgets.count(None)


@pytest.mark.parametrize(
    ("seconds", "budget", "given"), [(1000.0, 5.0, 5.0), (1.0, 5.0, LEAST_BUDGET), (1.0, 0.3, 0.3)]
)
def test_the_first_case_runs_with_a_budget_within_bounds(
    seconds: float, budget: float, given: float
) -> None:
    assert limit_of(seconds, 2, FakeClock(), budget).begin("a") == given


@pytest.mark.parametrize(
    ("gate", "given", "gate_time", "left"),
    [
        (0.02, None, 30.0, 59.0),
        (0.02, 20.0, 20.0, 69.0),
        (None, None, None, 89.0),
    ],
)
def test_at_most_a_third_of_the_time_is_for_the_fresh_processes_of_a_gate(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
    gate: Any,
    given: Any,
    gate_time: Any,
    left: float,
) -> None:
    monkeypatch.setattr(within, "seconds_of_start", lambda: 1.0)
    monkeypatch.setattr(within, "time", SimpleNamespace(monotonic=lambda: 0.0))
    option = given_options(
        within=90.0, baseline="main", gate=gate, gate_policy=None, gate_time=given, budget=5.0
    )
    config: Any = SimpleNamespace(option=option, stash={}, rootpath=tmp_path)
    config.getoption = lambda name, default=None: default
    limit = within.limit_of(config)
    fresh_processes.reserve_gate_time(config, limit)
    assert options_of(config).gate_time == gate_time
    assert limit is not None and limit.left == left


#: There is no time after one case.
LONGER = """

def pytest_runtest_teardown(item):
    from ipubench.plugins.state import run_of

    limit = run_of(item.config).limit
    if limit is not None:
        limit.keep(1000.0)
"""


def test_a_case_without_time_is_skipped_and_not_missing(project: Project) -> None:
    project.run("-k", "beta", "--baseline-save=main", "--processes=1").assert_code(0)
    project.add_to_conftest(LONGER)
    words = ("--within=1min", "-k", "beta", "--baseline=main", "--gate=50%", "-rs")
    outcome = project.run(*words).assert_code(0)
    outcome.line("1 case was skipped: the time of --within=1min was over: bench_fake[beta-gen")
    outcome.line("(gate 50.0%): 1 pass")
    assert "missing" not in outcome.text
    assert set(project.records()) == {"beta-synthetic"}
    pytest.importorskip("jinja2", reason="pip install jinja2")
    project.run("--within=1min", "-k", "beta").assert_code(0)
    journal = str(project.journals()[-1])
    report = (journal, "--out=out", "--baseline=baselines/main.json")
    outcome = run_command(project.folder, project.environment, "ipubench.plugins.report", *report)
    outcome.assert_code(6).line(
        "1 case of the baseline was not selected"
    )  # one process decides nothing


@pytest.mark.parametrize("flag", ["--against", "--baseline-save", "--processes", "dist"])
def test_options_that_measure_a_case_repeatedly_are_refused(flag: str) -> None:
    given = {flag[2:].replace("-", "_"): 1} if flag != "dist" else {}
    config: Any = SimpleNamespace(option=given_options(within=60.0, **given))
    config.getoption = lambda name, default=None: "load" if name == flag else default
    with pytest.raises(pytest.UsageError, match="--within"):
        within.limit_of(config)
