"""`--count=instructions`: counts the selected cases before the first one, and judges their counts.

All cases are counted in one process, on both sides of a comparison at once. Those that look worse
are counted in a second one, together, before any test runs: each test then has its verdict.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import pytest

from ipubench.fixtures.case.errors import counted
from ipubench.fixtures.devices.lease import idle_key
from ipubench.plugins.command_line.words import is_worker, measures, only_tests
from ipubench.plugins.compare.against_plugin import against_key
from ipubench.plugins.compare.baseline_plugin import comparison_key
from ipubench.plugins.compare.policy import count_threshold_of
from ipubench.plugins.count import counter, judge
from ipubench.plugins.count.judge import SUSPECT, Judgement
from ipubench.plugins.count.process import CountingProcess, Line
from ipubench.plugins.count.state import Counting, alone, counting_key, counts
from ipubench.plugins.record.counts import Counts
from ipubench.plugins.record.record import INSTRUCTIONS, differences, record_of
from ipubench.plugins.record.text import percent
from ipubench.plugins.record.verdict import (
    IMPROVED,
    INCOMPARABLE,
    INCONCLUSIVE,
    NEW,
    PASS,
    REGRESSED,
    UNJUDGED,
    Verdict,
)
from ipubench.plugins.run.progress import progress_key
from ipubench.plugins.run.results import run_key
from ipubench.plugins.run.time_spent import spent_key
from ipubench.plugins.selection.selected import case_of, selection_key

#: The kinds of a verdict, the worst first; of two the worse one is that of the case.
WORST_FIRST = (REGRESSED, INCONCLUSIVE, INCOMPARABLE, IMPROVED, PASS, UNJUDGED)
NO_COUNTS = "the baseline has no instructions of it: save it with --count=instructions"
NOT_COUNTED = "its instructions are not judged: add --count=instructions"


def prepare(config: pytest.Config) -> None:
    """Choose how to count, before anything runs. Raises UsageError where nothing can."""
    option = config.option
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
    device = config.stash[selection_key].device
    if device not in ("cpu", "fake"):
        raise pytest.UsageError(
            f"{flag}: nobody counts the instructions of the device {device}; choose --device=cpu"
        )
    if alone(config) and option.baseline_save is not None:
        raise pytest.UsageError(
            "--gate=instructions takes no times, which --baseline-save stores: save the baseline "
            "in a run of its own, with --count=instructions"
        )
    way = counter.choose(_way_before(config))
    if not way:
        raise pytest.UsageError(counter.NOTHING_COUNTS)
    against = config.stash.get(against_key, None)
    there = [] if against is None else [CountingProcess(config, way, against.environment)]
    if against is not None and not against.environment.counts:
        raise pytest.UsageError(
            f"{flag}: the suite of --against={option.against} cannot count; leave out {flag}"
        )
    counting = Counting(CountingProcess(config, way), there, alone(config))
    counting.why_not = lambda nodeid: _judgement(config, counting, nodeid, None).reason
    config.stash[counting_key] = counting


def _way_before(config: pytest.Config) -> str:
    """Return how the baseline's instructions were counted, to count them in the same way."""
    comparison = config.stash.get(comparison_key, None)
    entries = [] if comparison is None else comparison.entries
    found = (Counts.of_record(record_of(entry).get(INSTRUCTIONS)) for entry in entries)
    return next((str(one.how.get("by", "")) for one in found if one is not None), "")


def count_cases(session: pytest.Session) -> None:
    """Count the selected cases, and once more those that look worse."""
    config = session.config
    counting = config.stash.get(counting_key, None)
    items = {item.nodeid: item for item in session.items if case_of(item) is not None}
    if counting is None or not items:
        return
    progress = config.stash[progress_key]
    commands = [name for name in items if items[name].get_closest_marker("spec") is not None]
    for name in commands:
        counting.counted[name] = [{"uncountable": "a command does its work"}]
    names = [name for name in items if name not in commands]
    wanted = config.option.processes or (2 if config.option.baseline_save is not None else 1)
    with config.stash[spent_key].during("count"):
        for _ in range(min(wanted, 2)):
            progress.line(f"counting the instructions of {counted(len(names), 'case')}")
            _count(counting, names)
        suspects = [name for name in names if _is_suspect(items[name], counting)]
        if suspects:
            cases = counted(len(suspects), "case that looks", "cases that look")
            progress.line(f"counting {cases} slower in one more process")
            _count(counting, suspects)
    config.stash[idle_key] = counting.alone and all(map(counting.replaces_times, items))


def _count(counting: Counting, names: Sequence[str]) -> None:
    """Count cases once more, on both sides at once."""
    sides = [(counting.here, counting.counted)]
    sides += [(there, counting.counted_there) for there in counting.there]
    with _ending([side for side, _ in sides]), ThreadPoolExecutor(len(sides)) as pool:
        running = [(pool.submit(side.count, names), found) for side, found in sides]
        for future, found in running:
            lines: Dict[str, Line] = future.result()
            for name in names:
                found.setdefault(name, []).append(lines[name])


@contextlib.contextmanager
def _ending(sides: Sequence[CountingProcess]) -> Iterator[None]:
    """End the processes if something ends the wait for them."""
    try:
        yield
    finally:
        for side in sides:
            side.end()


def _is_suspect(item: pytest.Item, counting: Counting) -> bool:
    threshold = count_threshold_of(item)
    found = _judgement(item.config, counting, item.nodeid, threshold)
    return found.kind == SUSPECT


def _before(
    config: pytest.Config, counting: Counting, nodeid: str, benchmark: Optional[Dict[str, Any]]
) -> Tuple[Optional[Counts], Optional[Dict[str, Any]]]:
    """Return the counts that a case is compared with and, of a baseline, their record.

    Without its ``benchmark``, before it ran, they are those of the newest entry of its name.
    """
    if counting.there:
        return counting.of_other(nodeid), None
    comparison = config.stash.get(comparison_key, None)
    if comparison is None:
        return None, None
    entry = comparison.newest(nodeid) if benchmark is None else comparison.find(benchmark)
    record = {} if entry is None else record_of(entry)
    return Counts.of_record(record.get(INSTRUCTIONS)), record or None


def _judgement(
    config: pytest.Config,
    counting: Counting,
    nodeid: str,
    threshold: Optional[float],
    benchmark: Optional[Dict[str, Any]] = None,
) -> Judgement:
    """Return what the counts of a case say; its reason if they say nothing."""
    now = counting.of(nodeid)
    before, record = _before(config, counting, nodeid, benchmark)
    if before is None:
        return Judgement("", reason=now.uncountable or (NO_COUNTS if record is not None else ""))
    if benchmark is not None and record is not None:
        changed = differences(_on_one_machine(record_of(benchmark), record), record)
        if changed:
            return Judgement("", reason="; ".join(changed))
    return judge.judge(before, now, threshold)


def _on_one_machine(now: Dict[str, Any], before: Dict[str, Any]) -> Dict[str, Any]:
    """Return a record without what matters to times alone: the machine, its canary, its threads."""
    conditions = {**now["conditions"]}
    for name in ("affinity", "omp_num_threads"):
        conditions.pop(name, None)
        if name in before["conditions"]:
            conditions[name] = before["conditions"][name]
    same = {name: before[name] for name in ("device", "canary")}
    return {**now, **same, "conditions": conditions}


def keep_counts(item: pytest.Item, nodeid: str) -> None:
    """Put the counts of a case that has been measured into the run's results."""
    counting = item.config.stash.get(counting_key, None)
    if counting is None:
        return
    if nodeid not in counting.counted:  # a test that turned out to measure
        with item.config.stash[spent_key].during("count"):
            _count(counting, [nodeid])
    run = item.config.stash[run_key]
    for line in counting.counted[nodeid]:
        run.add({"type": "count", "case": nodeid, "count": dict(line)})
    why = counting.of(nodeid).uncountable
    if why:
        name = record_of(run.results.benchmarks[nodeid])["name"]
        run.closing.append(f"{name}: uncountable: {why}")


def is_counted_alone(item: pytest.Item) -> bool:
    """Whether a case has no times that could be judged."""
    counting = item.config.stash.get(counting_key, None)
    return counting is not None and counting.alone and counting.replaces_times(item.nodeid)


def verdict_by_counts(
    item: pytest.Item, benchmark: Dict[str, Any], timed: Optional[Verdict]
) -> Optional[Verdict]:
    """Return the verdict on a case by its times, if it has one, and by its instructions."""
    config, nodeid = item.config, benchmark["fullname"]
    counting, threshold = config.stash.get(counting_key, None), count_threshold_of(item)
    if counting is None:
        if timed is None or threshold is None:
            return timed
        return replace(timed, reasons=(*timed.reasons, NOT_COUNTED))
    before, record = _before(config, counting, nodeid, benchmark)
    if not counting.there and (comparison_key not in config.stash or record is None):
        return timed or (Verdict(NEW) if comparison_key in config.stash else None)
    found = _judgement(config, counting, nodeid, threshold, benchmark)
    if not found.kind:
        if timed is None:
            return Verdict(INCOMPARABLE, metric=INSTRUCTIONS, reasons=(found.reason,))
        return replace(timed, reasons=(*timed.reasons, found.reason))
    kind = INCONCLUSIVE if found.kind == SUSPECT else found.kind
    also: Tuple[Dict[str, Any], ...] = ({**found.as_dict(), "kind": kind},)
    sizes = len(counting.of(nodeid).values), 0 if before is None else len(before.values)
    if timed is None:
        now, then = sizes
        return Verdict(kind, metric=INSTRUCTIONS, also=also, processes=now, processes_before=then)
    return joined(timed, kind, also)


def joined(timed: Verdict, kind: str, also: Tuple[Dict[str, Any], ...]) -> Verdict:
    """Return a verdict on times with one on counts: the worse of both is the case's.

    Where times cannot be compared, or nothing judges them, the counts decide.
    """
    kinds = [timed.kind, kind]
    if kind != UNJUDGED:
        kinds = [one for one in kinds if one not in (INCOMPARABLE, UNJUDGED)]
    worst = min(kinds, key=WORST_FIRST.index)
    decided = INSTRUCTIONS if worst == kind != timed.kind else timed.metric
    return replace(timed, kind=worst, metric=decided, also=(*timed.also, *also))


def functions_that_grew(item: pytest.Item) -> List[Dict[str, Any]]:
    """Return the functions of compiled code whose instructions grew, where that is known."""
    config, nodeid = item.config, item.nodeid
    counting = config.stash.get(counting_key, None)
    if counting is None:
        return []
    benchmark = config.stash[run_key].results.benchmarks[nodeid]
    before, _ = _before(config, counting, nodeid, benchmark)
    if before is None or not before.functions:
        return []
    return judge.grown(before.functions, counting.of(nodeid).functions)


def change_in_words(one: Dict[str, Any]) -> str:
    """Return by how much a count changed, to a hundredth of a percent."""
    return percent(one["change"], 2, sign=True)
