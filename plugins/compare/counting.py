"""`--count=instructions`: counts the selected cases before the first one, and judges their counts.

Another process counts all cases in children, on both sides of a comparison at once. If the least
counts of both sides differ, or one side's disagree, more children count these cases. All this ends
before any test runs: each test then has its verdict.
"""

from __future__ import annotations

import threading
import time
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import pytest
from msgspec.structs import replace

from ipubench.fixtures import devices
from ipubench.fixtures.case.errors import CaseError, counted
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.pytest_fixtures import shared_of
from ipubench.plugins.compare.loop import settle
from ipubench.plugins.compare.policy import count_threshold_of
from ipubench.plugins.count import judge, ways
from ipubench.plugins.count.judge import Judgement
from ipubench.plugins.count.process import NO_SUCH_CASE, CountingProcess
from ipubench.plugins.count.state import Counting, alone, counts
from ipubench.plugins.gate.decision import Need
from ipubench.plugins.processes.remote_case import PAUSE_SECONDS
from ipubench.plugins.record.counts import Counts
from ipubench.plugins.record.differences import differences
from ipubench.plugins.record.record import INSTRUCTIONS
from ipubench.plugins.record.structs import Benchmark, CountedCase, GrownFunction, Record
from ipubench.plugins.record.verdict import (
    IMPROVED,
    INCOMPARABLE,
    INCONCLUSIVE,
    NEW,
    PASS,
    REGRESSED,
    UNJUDGED,
    JudgedMetric,
    Verdict,
)
from ipubench.plugins.results.lines import CountLine
from ipubench.plugins.run.progress import Progress, time_left
from ipubench.plugins.selection.selected import case_of
from ipubench.plugins.state import Run

#: The number of children that count each case first, and at most.
FIRST_CHILDREN, ALL_CHILDREN = 2, 6
#: The kinds of a verdict, worst first; a case gets the worse of two.
WORST_FIRST = (REGRESSED, INCONCLUSIVE, INCOMPARABLE, IMPROVED, PASS, UNJUDGED)
NO_COUNTS = "the baseline has no instructions of it: save it with --count=instructions"
NOT_COUNTED = "its instructions are not judged: add --count=instructions"


def prepare(run: Run) -> None:
    """Choose a way to count before anything runs. Raises UsageError if there is none."""
    config, option = run.config, options_of(run.config)
    if not (counts(config) and run.role.measures) or run.selection.own_tests:
        return
    flag = "--gate=instructions" if option.count is None else "--count=instructions"
    if run.role.shares_work:
        raise pytest.UsageError(
            f"{flag} counts all cases of a run in one process, on this host: leave out -n, --dist, "
            "and --tx"
        )
    if option.profile is not None:
        raise pytest.UsageError(f"{flag}: --profile measures nothing; leave one of them out")
    if not devices.of(run.selection.device).in_process:
        raise pytest.UsageError(
            f"{flag} cannot count the instructions of the device {run.selection.device}; choose "
            "--device=cpu"
        )
    if alone(config) and option.baseline_save is not None:
        raise pytest.UsageError(
            "--gate=instructions takes no times, which --baseline-save stores: save the baseline "
            "in a separate run, with --count=instructions"
        )
    way = ways.choose(_way_before(run))
    if not way:
        raise pytest.UsageError(ways.NOTHING_COUNTS)
    there = [] if run.against is None else [CountingProcess(run, way, run.against.environment)]
    if not all(side.place.counts for side in there):
        raise pytest.UsageError(
            f"{flag}: the suite of --against={option.against} cannot count; leave out {flag}"
        )
    run.counting = Counting(CountingProcess(run, way), there, alone(config))


def _way_before(run: Run) -> str:
    """Return how the baseline's instructions were counted, so that this run uses the same way."""
    entries = [] if run.baseline is None else run.baseline.entries
    found = (Counts.of_record(entry.record.instructions) for entry in entries)
    return next((str(one.how.get("by", "")) for one in found if one is not None), "")


def count_cases(run: Run, items: Sequence[pytest.Item]) -> None:
    """Count the selected cases: first all of them, then those that are not sure in more children.

    A baseline is counted by as many as there can be, because nothing adds to it later.
    """
    counting = run.counting
    cases = {item.nodeid: item for item in items if case_of(item) is not None}
    if counting is None or not cases:
        return
    shared_of(run.config).untimed = counting.alone
    names = [name for name in cases if cases[name].get_closest_marker("spec") is None]
    for name in cases.keys() - set(names):
        counting.counted[name] = [CountedCase(uncountable="a command does its work")]
    with run.spent.during("count"):
        waiting = [CountCase(run, counting, cases[name]) for name in names]
        settle(run.gate_time, waiting, ChildRunner(run, counting))


class CountCase:
    """A case whose instructions are counted."""

    can_share = True

    def __init__(self, run: Run, counting: Counting, item: pytest.Item) -> None:
        self._run, self._counting, self._item = run, counting, item
        self.name = item.nodeid
        self.is_open = True

    @property
    def done(self) -> int:
        """The number of children that have counted it."""
        return len(self._counting.counted.get(self.name, ()))

    def decide(self) -> Optional[Need]:
        """Return the need for more counts; None if they suffice, or if there are all."""
        saves = options_of(self._run.config).baseline_save is not None
        if not self.done:
            return Need(counts=ALL_CHILDREN if saves else FIRST_CHILDREN)
        if self.done < ALL_CHILDREN and _needs_more(self._run, self._counting, self._item):
            return Need(counts=ALL_CHILDREN - self.done)
        self.is_open = False
        return None

    def conclude(self, reasons: Sequence[str]) -> None:
        """End with the counts so far."""
        self.is_open = False
        found = self._counting.counted.setdefault(self.name, [])
        found += [] if found else [CountedCase(uncountable="; ".join(reasons))]


class ChildRunner:
    """Counts cases in children of another process, on both sides at once."""

    def __init__(self, run: Run, counting: Counting) -> None:
        self._run, self._counting = run, counting
        #: The seconds of one count; unknown before the first.
        self._each = 0.0

    def seconds(self, cases: Sequence[CountCase], need: Need) -> float:
        """Return about how long it takes to count these cases."""
        return self._each * len(cases) * need.counts

    seconds_left = seconds  # it needs no more if its counts agree

    def obtain(self, cases: Sequence[CountCase], need: Need) -> None:
        """Count the cases in as many children as they need."""
        done = cases[0].done
        number = counted(len(cases), "case")
        what = f"counting the instructions of {number}"
        if done:
            what = f"counting again, because counts differ: {number}"
        started = time.monotonic()
        names = [case.name for case in cases]
        _count(self._run, self._counting, names, range(done, done + need.counts), what)
        self._each = (time.monotonic() - started) / (len(cases) * need.counts)

    def show(
        self, cases: Sequence[CountCase], waiting: Mapping[CountCase, Need], left: float
    ) -> None:
        """Show nothing more: counting shows its progress."""

    def stop(self, cases: Sequence[CountCase], need: Need, left: float) -> None:
        """Show nothing: the verdicts have the reason."""


def _count(run: Run, counting: Counting, names: Sequence[str], children: range, what: str) -> None:
    """Count cases in children of another process, on both sides at once."""
    progress = CountProgress(run.progress, what, len(names) * len(children))
    others = [Side(there, names, children, progress.of_side()) for there in counting.there]
    for other in others:
        other.start()
    ours = progress.of_side()

    def told(done: int) -> None:
        ours(done)
        progress.show()

    for name, found in counting.here.count(names, children, told).items():
        counting.counted.setdefault(name, []).extend(found)
    ours(progress.most)
    for other in others:
        for name, found in other.result(progress).items():
            counting.counted_there.setdefault(name, []).extend(found)


class CountProgress:
    """Shows how many counts there are, on the slower side, and the time left."""

    def __init__(self, progress: Progress, what: str, most: int) -> None:
        progress.line(what)
        self._progress, self.most = progress, most
        self._done: List[int] = []
        self._first: Optional[Tuple[int, float]] = None

    def of_side(self) -> Callable[[int], None]:
        """Return a function that takes the number of counts of one more side."""
        side = len(self._done)
        self._done.append(0)

        def told(done: int) -> None:
            self._done[side] = done

        return told

    def show(self) -> None:
        """Show the present state."""
        done, now = min(self._done), time.monotonic()
        if done and self._first is None:
            self._first = done, now  # the start of the process took the time until here
        text = f"counted {100 * done // self.most}%"
        if self._first is not None and done > self._first[0]:
            each = (now - self._first[1]) / (done - self._first[0])
            text += f", {time_left(each * (self.most - done))}"
        self._progress.passing(text)


class Side(threading.Thread):
    """Counts the other side meanwhile. An interrupted run does not wait for it.

    The supervisor of its process ends that with the run.
    """

    def __init__(
        self,
        process: CountingProcess,
        names: Sequence[str],
        children: range,
        told: Callable[[int], None],
    ) -> None:
        super().__init__(daemon=True)
        self._process, self._names, self._children, self._told = process, names, children, told
        self._found: Dict[str, List[CountedCase]] = {}

    def run(self) -> None:
        """Count."""
        try:
            self._found = self._process.count(self._names, self._children, self._told)
        except CaseError as error:
            self._found = {name: [CountedCase(uncountable=str(error))] for name in self._names}

    def result(self, progress: CountProgress) -> Dict[str, List[CountedCase]]:
        """Wait for the end; return the counts."""
        while self.is_alive():
            self.join(PAUSE_SECONDS)
            progress.show()
        return self._found


def _needs_more(run: Run, counting: Counting, item: pytest.Item) -> bool:
    before, _ = _before(run, counting, item.nodeid, None)
    threshold = count_threshold_of(run.policy, item)
    return before is not None and judge.needs_more(before, counting.of(item.nodeid), threshold)


def _before(
    run: Run, counting: Counting, nodeid: str, benchmark: Optional[Benchmark]
) -> Tuple[Optional[Counts], Optional[Record]]:
    """Return the counts that a case is compared with and, of a baseline, their record.

    Without its ``benchmark``, before it ran, they are those of the newest entry of its name.
    """
    if counting.there:
        return counting.of_other(nodeid), None
    if run.baseline is None:
        return None, None
    entry = run.baseline.newest(nodeid) if benchmark is None else run.baseline.find(benchmark)
    if entry is None:
        return None, None
    return Counts.of_record(entry.record.instructions), entry.record


def _judgement(
    run: Run,
    counting: Counting,
    nodeid: str,
    threshold: Optional[float],
    benchmark: Optional[Benchmark] = None,
) -> Judgement:
    """Return the judgement on a case's counts, with a reason if they cannot be judged."""
    now = counting.of(nodeid)
    before, record = _before(run, counting, nodeid, benchmark)
    if before is None:
        return Judgement("", reason=now.uncountable or (NO_COUNTS if record is not None else ""))
    if benchmark is not None and record is not None:
        changed = differences(_on_one_machine(benchmark.record, record), record)
        if changed:
            return Judgement("", reason="; ".join(changed))
    return judge.judge(before, now, threshold)


def _on_one_machine(now: Record, before: Record) -> Record:
    """Return a record without the facts that affect only times: machine, canary, threads."""
    conditions = {**now.conditions}
    for name in ("affinity", "omp_num_threads"):
        conditions.pop(name, None)
        if name in before.conditions:
            conditions[name] = before.conditions[name]
    return replace(now, device=before.device, canary=before.canary, conditions=conditions)


def keep_counts(run: Run, nodeid: str) -> None:
    """Add the counts of a measured case to the run's results."""
    counting = run.counting
    if counting is None:
        return
    if nodeid not in counting.counted:  # a plain test that measures something
        with run.spent.during("count"):
            _count(run, counting, [nodeid], range(ALL_CHILDREN), f"counting {nodeid}")
    for found in counting.counted[nodeid]:
        run.add(CountLine(nodeid, found))
    why = counting.of(nodeid).uncountable
    if why:
        name = run.results.benchmarks[nodeid].record.name
        run.closing.append(f"{name}: uncountable: {why}")


def is_counted_alone(run: Run) -> bool:
    """Return whether there are no times to judge."""
    counting = run.counting
    return counting is not None and counting.alone


def with_counts(
    run: Run, item: pytest.Item, benchmark: Benchmark, timed: Optional[Verdict]
) -> Optional[Verdict]:
    """Return the verdict on a case by its times, if it has one, and by its instructions."""
    nodeid, counting = benchmark.fullname, run.counting
    threshold = count_threshold_of(run.policy, item)
    if counting is None:
        if timed is None or threshold is None:
            return timed
        return replace(timed, reasons=(*timed.reasons, NOT_COUNTED))
    before, record = _before(run, counting, nodeid, benchmark)
    if not counting.there and record is None:
        return timed or (Verdict(NEW) if run.baseline is not None else None)
    if before is not None and before.uncountable == NO_SUCH_CASE:
        return timed or Verdict(NEW)
    found = _judgement(run, counting, nodeid, threshold, benchmark)
    reasons = (found.reason,) if found.reason else ()
    if timed is not None:
        return joined(timed, found.kind, found.metrics, reasons)
    sizes = len(counting.of(nodeid).values), len(before.values) if before is not None else 0
    return Verdict(
        found.kind or INCOMPARABLE,
        metric=INSTRUCTIONS,
        also=found.metrics,
        processes=sizes[0],
        processes_before=sizes[1],
        reasons=reasons,
    )


def joined(
    timed: Verdict, kind: str, also: Sequence[JudgedMetric], reasons: Sequence[str]
) -> Verdict:
    """Return the verdict on times combined with that on counts: the worse one wins.

    If times cannot be compared, or nothing judges them, the counts decide; and if counts cannot be
    compared, the times.
    """
    kinds = [one for one in (timed.kind, kind) if one not in (INCOMPARABLE, UNJUDGED, "")]
    worst = min(kinds or [timed.kind], key=WORST_FIRST.index)
    decided = INSTRUCTIONS if worst == kind != timed.kind else timed.metric
    return replace(
        timed,
        kind=worst,
        metric=decided,
        also=(*timed.also, *also),
        reasons=(*timed.reasons, *reasons),
    )


def functions_that_grew(run: Run, nodeid: str) -> List[GrownFunction]:
    """Return the functions of compiled code whose instructions grew, if known."""
    counting = run.counting
    if counting is None:
        return []
    before, _ = _before(run, counting, nodeid, run.results.benchmarks[nodeid])
    return judge.grown(before.functions, counting.of(nodeid).functions) if before else []
