"""`--within=10min`: fit the selection into a time, with fewer rounds and then with fewer cases.

What a case takes is known from the latest journals of the results folder, else it is assumed. While
the run goes on, each case gets its share of the time that is really left, and the rest is skipped
where the time is over.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from typing import Any, Callable, Dict, Generator, List, Optional

import pytest

from ipubench.fixtures.case.errors import counted
from ipubench.fixtures.case.untrusted import NUMBER, has_fields
from ipubench.fixtures.machine.files import user_path
from ipubench.plugins.record.files import read_lines
from ipubench.plugins.record.record import record_of, rounds_of, spent_of
from ipubench.plugins.record.text import duration_text, without_identifier
from ipubench.plugins.run.journal import journals
from ipubench.plugins.run.results import SessionResults, run_key
from ipubench.plugins.run.time_spent import seconds_of_start
from ipubench.plugins.selection.selected import case_of, leave_out, selection_key
from ipubench.plugins.selection.time_plan import (
    LEAST_BUDGET,
    Expected,
    fitting_budget,
    fitting_cases,
)

#: The first case of a function imports a framework, builds and compiles in so many seconds.
UNKNOWN = Expected(15.0)
#: The journals that are looked at, the latest first: this run's own, and five before it.
MOST_JOURNALS = 6
#: What another program's use of the device or of the CPUs did, which says nothing.
OF_OTHERS = ("device", "quiet")
#: What the budget decides, where nothing else has ended the rounds.
MEASURING = ("warm_up", "rounds", "latency")
BY_BUDGET = ("precision", "budget", "disturbed", "end")
FIELDS: Dict[str, Any] = {
    "stats.data": list,
    "stats.iterations": NUMBER,
    "extra_info.ipubench.device.kind": str,
    "extra_info.ipubench.rounds.stopped_by": str,
}


def expected_of(benchmark: Dict[str, Any]) -> Optional[Expected]:
    """Return what a recorded case took; None where the record does not say."""
    if not has_fields(benchmark, FIELDS):
        return None
    spent, rounds = spent_of(benchmark), benchmark["stats"]["data"]
    if not spent or not rounds or not all(isinstance(seconds, float) for seconds in rounds):
        return None
    has_budget = record_of(benchmark)["rounds"]["stopped_by"] in BY_BUDGET
    left_out = OF_OTHERS + (MEASURING if has_budget else ())
    overhead = math.fsum(seconds for part, seconds in spent.items() if part not in left_out)
    return Expected(overhead, statistics.median(rounds_of(benchmark)), has_budget)


class TimeLimit:
    """The time of a run, what its cases are expected to take, and the budget left to them."""

    def __init__(self, seconds: float, budget: float, clock: Callable[[], float]) -> None:
        """``seconds`` from now on, for cases of ``budget`` seconds of rounds at most."""
        self.budget = budget
        self.known: Dict[str, Expected] = {}
        #: The cases that are still to come, in order.
        self.waiting: List[str] = []
        #: Those that were skipped because the time was over.
        self.skipped: List[str] = []
        self._longest: Dict[str, Expected] = {}  # of the known cases of each function
        self._any_begun = False
        self._clock = clock
        self._end = clock() + seconds

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self._end - self._clock()

    @property
    def least_budget(self) -> float:
        """The budget that no case gets less than."""
        return min(LEAST_BUDGET, self.budget)

    def keep(self, seconds: float) -> None:
        """Leave so much of the time to others; no case gets it."""
        self._end -= seconds

    def learn(self, nodeid: str, found: Expected) -> None:
        """Take in what a case took."""
        self.known[nodeid] = found
        function = without_identifier(nodeid)
        longest = self._longest.setdefault(function, found)
        if found.seconds(self.budget) > longest.seconds(self.budget):
            self._longest[function] = found

    def expected(self, nodeid: str) -> Expected:
        """Return what a case takes; of one that is not known, the longest of its function."""
        return self.known.get(nodeid, self._longest.get(without_identifier(nodeid), UNKNOWN))

    def choose(self, nodeids: List[str]) -> List[str]:
        """Return the cases that fit; the others are left out."""
        cases = [self.expected(nodeid) for nodeid in nodeids]
        if fitting_budget(cases, self.left, self.budget) is None:
            functions = list(map(without_identifier, nodeids))
            kept = fitting_cases(cases, functions, self.left, self.least_budget)
            nodeids = [nodeids[i] for i in kept]
        self.waiting = list(nodeids)
        return nodeids

    def share(self) -> float:
        """Return the budget of each case that waits, the least one where they do not fit."""
        cases = [self.expected(nodeid) for nodeid in self.waiting]
        found = fitting_budget(cases, self.left, self.budget)
        return self.least_budget if found is None else found

    def begin(self, nodeid: str) -> Optional[float]:
        """Return the budget of a case that is to begin; None where there is no time for it.

        The first one runs in any case: what it takes is what later runs know.
        """
        budget = self.share()
        self.waiting = [other for other in self.waiting if other != nodeid]
        if self._any_begun and self.expected(nodeid).seconds(budget) > self.left:
            self.skipped.append(nodeid)
            return None
        self._any_begun = True
        return budget


limit_key = pytest.StashKey[TimeLimit]()


def pytest_configure(config: pytest.Config) -> None:
    """Begin the time with the process; refuse what measures outside of the run's own cases."""
    option = config.option
    if option.within is None:
        return
    if config.getoption("dist", "no") != "no":
        raise pytest.UsageError(
            "--within plans one case after the other, and workers take them as they come: leave "
            "out -n"
        )
    for flag in ("--against", "--baseline-save", "--processes"):
        if config.getoption(flag) is not None:
            raise pytest.UsageError(
                f"{flag} measures every case several times, as often as it must: leave out "
                "--within, and give --budget and --gate-time"
            )
    seconds = option.within - seconds_of_start()
    config.stash[limit_key] = TimeLimit(seconds, option.budget, time.monotonic)


def known_cases(config: pytest.Config) -> Dict[str, Expected]:
    """Return what the cases of the latest journals took on this kind of device, by node id."""
    known: Dict[str, Expected] = {}
    device = config.stash[selection_key].device
    with contextlib.suppress(OSError):
        folder = user_path(config.option.results_dir)
        for path in journals(folder)[: -MOST_JOURNALS - 1 : -1]:
            with contextlib.suppress(OSError):
                for nodeid, benchmark in SessionResults.of(read_lines(path)).benchmarks.items():
                    found = expected_of(benchmark)
                    if found and record_of(benchmark)["device"]["kind"] == device:
                        known.setdefault(nodeid, found)
    return known


# Before plugins/run/journal.py, which notes what the run is about: this module is registered last.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave out the cases for which there is no time, of those that are to run.

    ``--lf`` selects after all hooks that change the selection, and a resumed run has done some.
    """
    config, items = session.config, session.items
    limit = config.stash.get(limit_key, None)
    if limit is None:
        return
    for nodeid, found in known_cases(config).items():
        limit.learn(nodeid, found)
    cases = [item.nodeid for item in items if case_of(item) is not None]
    kept = set(limit.choose(cases))
    reason = f"for which --within={duration_text(config.option.within)} has no time"
    leave_out(config, items, lambda item, case: "" if item.nodeid in kept else reason)


def pytest_report_collectionfinish(config: pytest.Config) -> List[str]:
    """Say how much of their budget the cases get, where it is not all of it."""
    limit = config.stash.get(limit_key, None)
    if limit is None or not limit.waiting:
        return []
    share = round(limit.share(), 1)
    if share >= round(limit.budget, 1):
        return []
    return [
        f"--within={duration_text(config.option.within)}: a case gets about "
        f"{duration_text(share)} of rounds instead of {duration_text(limit.budget)}"
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give a case its share of what is left; skip it where that is too little."""
    limit = item.config.stash.get(limit_key, None)
    if limit is None or case_of(item) is None:
        return
    left = limit.left
    budget = limit.begin(item.nodeid)
    if budget is None:
        needed = limit.expected(item.nodeid).seconds(limit.least_budget)
        pytest.skip(
            f"--within={duration_text(item.config.option.within)}: {max(0.0, left):.0f} s are "
            f"left, and the case takes about {needed:.0f} s"
        )
    item.config.option.budget = budget


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, None, None]:
    """Learn what a case took, which says what those like it will take."""
    yield
    limit = item.config.stash.get(limit_key, None)
    run = item.config.stash.get(run_key, None)
    benchmark = run.results.benchmarks.get(item.nodeid) if run is not None else None
    if limit is None or benchmark is None:
        return
    found = expected_of(benchmark)
    if found is not None:
        limit.learn(item.nodeid, found)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Name below the table how many cases were skipped because the time was over.

    The run is not about them: who compares it calls none of them missing.
    """
    limit = session.config.stash.get(limit_key, None)
    run = session.config.stash.get(run_key, None)
    if limit is not None and limit.skipped and run is not None:
        run.order = [nodeid for nodeid in run.order if nodeid not in limit.skipped]
        run.add({"type": "selected", "cases": run.order})
        what = counted(len(limit.skipped), "case was", "cases were")
        within = duration_text(session.config.option.within)
        run.closing.append(f"{what} skipped: the time of --within={within} was over")
