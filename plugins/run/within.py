"""Implements `--within=10min`: fits the cases into a time limit.

Each case gets an equal share of the time left, with fewer rounds if necessary. The time that cases
need besides their rounds is estimated from finished cases. When the time is over, the remaining
cases are skipped.
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

#: Rounds, warm-up and latency of a case take this multiple of its budget.
MEASURED = 1.6
#: A smaller budget gives too few rounds.
LEAST_BUDGET = 1.0


class TimeLimit:
    """The time limit of a run, and each case's share of it."""

    def __init__(self, seconds: float, budget: float, clock: Callable[[], float]) -> None:
        """``seconds`` from now on, for cases with at most ``budget`` seconds of rounds."""
        self.budget = budget
        self.waiting = 0  # the number of cases that have not started
        #: Cases that were skipped because the time was over.
        self.skipped: List[str] = []
        self._clock = clock
        self._end = clock() + seconds
        self._overheads: List[float] = []  # of finished cases: seconds besides their budgets
        self._expected_end = 0.0

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self._end - self._clock()

    def keep(self, seconds: float) -> None:
        """Reserve some of the time for other work than cases."""
        self._end -= seconds

    def begin(self, nodeid: str) -> Optional[float]:
        """Return the budget of the next case; None if there is no time for it.

        The first case always runs, because its time is not known before.
        """
        overhead = statistics.median(self._overheads) if self._overheads else 0.0
        share = (self.left / max(1, self.waiting) - overhead) / MEASURED
        budget = min(self.budget, max(LEAST_BUDGET, share))
        self.waiting -= 1
        if self._overheads and overhead + MEASURED * budget > self.left:
            self.skipped.append(nodeid)
            return None
        self._expected_end = self._clock() + MEASURED * budget
        return budget

    def end(self) -> None:
        """Record the overhead of a case that has ended."""
        self._overheads.append(max(0.0, self._clock() - self._expected_end))


def limit_of(config: pytest.Config) -> Optional[TimeLimit]:
    """Return the time limit, which counts from the start of the process, if one is given.

    Raises UsageError with options that measure more than each case once.
    """
    option = options_of(config)
    if option.within is None:
        return None
    if config.getoption("dist", "no") != "no":
        raise pytest.UsageError(
            "--within plans one case after the other, but workers run several at once: leave out -n"
        )
    many = {
        "--against": option.against,
        "--baseline-save": option.baseline_save,
        "--processes": option.processes,
    }
    for flag, value in many.items():
        if value is not None:
            raise pytest.UsageError(
                f"{flag} measures each case an unknown number of times: leave out --within, and "
                "use --budget and --gate-time"
            )
    seconds = option.within - seconds_of_start()
    return TimeLimit(seconds, option.budget, time.monotonic)


@contextlib.contextmanager
def time_of_case(limit: Optional[TimeLimit], item: pytest.Item) -> Iterator[None]:
    """Record the overhead of a case unless it is skipped."""
    skipped = len(limit.skipped) if limit is not None else 0
    yield
    if limit is not None and case_of(item) is not None and len(limit.skipped) == skipped:
        limit.end()


def give_budget(limit: Optional[TimeLimit], item: pytest.Item) -> None:
    """Set a case's budget to its share of the time left; skip the case if it is too little."""
    if limit is None or case_of(item) is None:
        return
    budget = limit.begin(item.nodeid)
    if budget is None:
        pytest.skip(f"--within={_given(item.config)}: {max(0.0, limit.left):.0f} s are left")
    change_options(item.config, budget=budget)


def name_skipped(limit: Optional[TimeLimit], run: Recording) -> None:
    """Name the cases that were skipped because the time was over.

    Removes them from the selection, so that comparisons do not count them as missing.
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
