"""`--count=instructions`: counts the selected cases before the first one, and judges their counts.

All cases are counted in one process, on both sides of a comparison at once. If some look worse, all
are counted in a second one, as the same calls before it make a count the same. Both end before any
test runs: each test then has its verdict.
"""

from __future__ import annotations

import threading
from typing import Dict, List, Optional, Sequence, Tuple

import pytest
from msgspec.structs import replace

from ipubench.fixtures.case.errors import CaseError, counted
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.pytest_fixtures import shared_of
from ipubench.plugins.command_line.arguments import is_worker, measures, only_tests
from ipubench.plugins.compare.policy import count_threshold_of
from ipubench.plugins.count import judge, ways
from ipubench.plugins.count.judge import SUSPECT, Judgement
from ipubench.plugins.count.process import NO_SUCH_CASE, CountingProcess
from ipubench.plugins.count.state import Counting, alone, counts
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
from ipubench.plugins.run.lines import CountLine
from ipubench.plugins.selection.selected import case_of
from ipubench.plugins.state import Run

#: The kinds of a verdict, worst first; a case gets the worse of two.
WORST_FIRST = (REGRESSED, INCONCLUSIVE, INCOMPARABLE, IMPROVED, PASS, UNJUDGED)
NO_COUNTS = "the baseline has no instructions of it: save it with --count=instructions"
NOT_COUNTED = "its instructions are not judged: add --count=instructions"


def prepare(run: Run) -> None:
    """Choose a way to count before anything runs. Raises UsageError if there is none."""
    config, option = run.config, options_of(run.config)
    if not (counts(config) and measures(config)) or only_tests(config):
        return
    flag = "--gate=instructions" if option.count is None else "--count=instructions"
    if is_worker(config) or config.getoption("dist", "no") != "no" or option.hosts is not None:
        raise pytest.UsageError(
            f"{flag} counts all cases of a run in one process, on this host: leave out -n, --dist, "
            "--tx and --hosts"
        )
    if option.profile is not None:
        raise pytest.UsageError(f"{flag}: --profile measures nothing; leave one of them out")
    if run.selection.device not in ("cpu", "fake"):
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
    counting = Counting(CountingProcess(run, way), there, alone(config))
    counting.why_not = lambda nodeid: _why_timed(run, counting, nodeid)
    run.counting = counting


def _why_timed(run: Run, counting: Counting, nodeid: str) -> str:
    """Return why a case cannot be judged by its instructions; '' also for a new one."""
    before, _ = _before(run, counting, nodeid, None)
    is_new = before is not None and before.reason == NO_SUCH_CASE
    return "" if is_new else _judgement(run, counting, nodeid, None).reason


def _way_before(run: Run) -> str:
    """Return how the baseline's instructions were counted, so that this run uses the same way."""
    entries = [] if run.baseline is None else run.baseline.entries
    found = (Counts.of_record(entry.record.instructions) for entry in entries)
    return next((str(one.how.get("by", "")) for one in found if one is not None), "")


def count_cases(run: Run, items: Sequence[pytest.Item]) -> None:
    """Count the selected cases, and once more if some look worse."""
    counting = run.counting
    cases = {item.nodeid: item for item in items if case_of(item) is not None}
    if counting is None or not cases:
        return
    commands = [name for name in cases if cases[name].get_closest_marker("spec") is not None]
    for name in commands:
        counting.counted[name] = [CountedCase(uncountable="a command does its work")]
    names = [name for name in cases if name not in commands]
    option = options_of(run.config)
    wanted = option.processes or (2 if option.baseline_save is not None else 1)
    what = f"counting the instructions of {counted(len(names), 'case')}"
    with run.spent.during("count"):
        for _ in range(min(wanted, 2)):
            run.progress.line(what)
            _count(counting, names)
        suspects = [name for name in names if _is_suspect(run, counting, cases[name])]
        if suspects:
            looks = counted(len(suspects), "case looks", "cases look")
            run.progress.line(f"{what} once more: {looks} slower")
            _count(counting, names)
    untimed = counting.alone and all(map(counting.replaces_times, cases))
    shared_of(run.config).untimed = untimed


def _count(counting: Counting, names: Sequence[str]) -> None:
    """Count cases in another process, on both sides at once."""
    others = [Side(there, names) for there in counting.there]
    for other in others:
        other.start()
    ours = counting.here.count(names) if names else {}
    for name in names:
        counting.counted.setdefault(name, []).append(ours[name])
    for other in others:
        for name, line in other.result().items():
            counting.counted_there.setdefault(name, []).append(line)


class Side(threading.Thread):
    """Counts the other side meanwhile. An interrupted run does not wait for it.

    The supervisor of its process ends that with the run.
    """

    def __init__(self, process: CountingProcess, names: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self._process, self._names = process, names
        self._found: Dict[str, CountedCase] = {}

    def run(self) -> None:
        """Count."""
        try:
            self._found = self._process.count(self._names)
        except CaseError as error:
            self._found = {name: CountedCase(uncountable=str(error)) for name in self._names}

    def result(self) -> Dict[str, CountedCase]:
        """Wait for the end; return the counts."""
        self.join()
        return self._found


def _is_suspect(run: Run, counting: Counting, item: pytest.Item) -> bool:
    threshold = count_threshold_of(run.policy, item)
    return _judgement(run, counting, item.nodeid, threshold).kind == SUSPECT


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
            _count(counting, [nodeid])
    for found in counting.counted[nodeid]:
        run.add(CountLine(nodeid, found))
    why = counting.of(nodeid).uncountable
    if why:
        name = run.results.benchmarks[nodeid].record.name
        run.closing.append(f"{name}: uncountable: {why}")


def is_counted_alone(run: Run, nodeid: str) -> bool:
    """Return whether a case has no times to judge."""
    counting = run.counting
    return counting is not None and counting.alone and counting.replaces_times(nodeid)


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
    if before is not None and before.reason == NO_SUCH_CASE:
        return timed or Verdict(NEW)
    found = _judgement(run, counting, nodeid, threshold, benchmark)
    if not found.kind:
        if timed is None:
            return Verdict(INCOMPARABLE, metric=INSTRUCTIONS, reasons=(found.reason,))
        return replace(timed, reasons=(*timed.reasons, found.reason))
    kind = INCONCLUSIVE if found.kind == SUSPECT else found.kind
    also = (found.metric(kind),)
    if timed is not None:
        return joined(timed, kind, also)
    sizes = len(counting.of(nodeid).values), len(before.values) if before is not None else 0
    return Verdict(
        kind, metric=INSTRUCTIONS, also=also, processes=sizes[0], processes_before=sizes[1]
    )


def joined(timed: Verdict, kind: str, also: Tuple[JudgedMetric, ...]) -> Verdict:
    """Return the verdict on times combined with that on counts: the worse one wins.

    Where times cannot be compared, or nothing judges them, the counts decide.
    """
    kinds = [timed.kind, kind]
    if kind != UNJUDGED:
        kinds = [one for one in kinds if one not in (INCOMPARABLE, UNJUDGED)]
    worst = min(kinds, key=WORST_FIRST.index)
    decided = INSTRUCTIONS if worst == kind != timed.kind else timed.metric
    return replace(timed, kind=worst, metric=decided, also=(*timed.also, *also))


def functions_that_grew(run: Run, nodeid: str) -> List[GrownFunction]:
    """Return the functions of compiled code whose instructions grew, if known."""
    counting = run.counting
    if counting is None:
        return []
    before, _ = _before(run, counting, nodeid, run.results.benchmarks[nodeid])
    return judge.grown(before.functions, counting.of(nodeid).functions) if before else []
