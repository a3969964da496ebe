"""`--within=10min`: fit the selection into a time, with fewer rounds and then with fewer cases.

Each case gets its share of the time that is left. What cases take beside their rounds is learned
from those that have ended. When the time is over, the remaining cases are skipped.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from typing import Callable, Iterator, List, Optional

import pytest

from ipubench.fixtures.case.errors import counted, some_of
from ipubench.fixtures.command_line import change_options, options_of
from ipubench.plugins.record.text import duration_text, name_of_test
from ipubench.plugins.run.lines import SelectedLine
from ipubench.plugins.run.results import Recording
from ipubench.plugins.run.time_spent import seconds_of_start
from ipubench.plugins.selection.selected import case_of

#: Of what a budget is, a case's rounds, warm-up and latency take so much of it.
MEASURED = 1.6
#: A budget below this one makes figures of too few rounds.
LEAST_BUDGET = 1.0


class TimeLimit:
    """The time of a run, and what each of its cases gets of it."""

    def __init__(self, seconds: float, budget: float, clock: Callable[[], float]) -> None:
        """``seconds`` from now on, for cases of ``budget`` seconds of rounds at most."""
        self.budget = budget
        self.waiting = 0  # how many cases are still to come
        #: Those that were skipped because the time was over.
        self.skipped: List[str] = []
        self._clock = clock
        self._end = clock() + seconds
        self._beside: List[float] = []  # what cases took beside their budgets
        self._expected_end = 0.0

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self._end - self._clock()

    def keep(self, seconds: float) -> None:
        """Leave so much of the time to others; no case gets it."""
        self._end -= seconds

    def begin(self, nodeid: str) -> Optional[float]:
        """Return the budget of a case that is to begin; None if there is no time for it.

        The first one runs in any case: what it takes is not known before.
        """
        beside = statistics.median(self._beside) if self._beside else 0.0
        share = (self.left / max(1, self.waiting) - beside) / MEASURED
        budget = min(self.budget, max(LEAST_BUDGET, share))
        self.waiting -= 1
        if self._beside and beside + MEASURED * budget > self.left:
            self.skipped.append(nodeid)
            return None
        self._expected_end = self._clock() + MEASURED * budget
        return budget

    def end(self) -> None:
        """Learn from the case that has ended what cases take beside their budgets."""
        self._beside.append(max(0.0, self._clock() - self._expected_end))


def limit_of(config: pytest.Config) -> Optional[TimeLimit]:
    """Return the run's time, which began with the process, if it was given.

    Refuses what measures outside of the run's own cases.
    """
    option = options_of(config)
    if option.within is None:
        return None
    if config.getoption("dist", "no") != "no":
        raise pytest.UsageError(
            "--within plans one case after the other, and workers take them as they come: leave "
            "out -n"
        )
    many = {
        "--against": option.against,
        "--baseline-save": option.baseline_save,
        "--processes": option.processes,
    }
    for flag, value in many.items():
        if value is not None:
            raise pytest.UsageError(
                f"{flag} measures every case several times, as often as it must: leave out "
                "--within, and give --budget and --gate-time"
            )
    seconds = option.within - seconds_of_start()
    return TimeLimit(seconds, option.budget, time.monotonic)


@contextlib.contextmanager
def time_of_case(limit: Optional[TimeLimit], item: pytest.Item) -> Iterator[None]:
    """Learn what a case took."""
    skipped = len(limit.skipped) if limit is not None else 0
    yield
    if limit is not None and case_of(item) is not None and len(limit.skipped) == skipped:
        limit.end()


def give_budget(limit: Optional[TimeLimit], item: pytest.Item) -> None:
    """Give a case its share of what is left; skip it if that is too little."""
    if limit is None or case_of(item) is None:
        return
    budget = limit.begin(item.nodeid)
    if budget is None:
        pytest.skip(f"--within={_given(item.config)}: {max(0.0, limit.left):.0f} s are left")
    change_options(item.config, budget=budget)


def name_skipped(limit: Optional[TimeLimit], run: Recording) -> None:
    """Name below the table the cases that were skipped because the time was over.

    The run is not about them: who compares it calls none of them missing.
    """
    if limit is not None and limit.skipped and run.journal is not None:
        run.order = [nodeid for nodeid in run.order if nodeid not in limit.skipped]
        run.add(SelectedLine(run.order))
        what = counted(len(limit.skipped), "case was", "cases were")
        names = some_of(list(map(name_of_test, limit.skipped)))
        run.closing.append(
            f"{what} skipped: the time of --within={_given(run.config)} was over: {names}"
        )


def _given(config: pytest.Config) -> str:
    return duration_text(options_of(config).within or 0.0)
