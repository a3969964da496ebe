"""The entries of a baseline: their keys, how to merge them, and how to compare them."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import (
    AbstractSet,
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    TypeVar,
)

from msgspec.structs import replace

from ipubench.fixtures.case.errors import some_of
from ipubench.plugins.gate.countable import LEAST_FRESH, disturbance_text, is_clean
from ipubench.plugins.gate.stored import StoredRule, judge
from ipubench.plugins.record.host_process import software_changes
from ipubench.plugins.record.record import (
    THROUGHPUT,
    of_test,
    processes_of,
    with_processes,
    with_record,
)
from ipubench.plugins.record.structs import Accepted, Benchmark, Facts, as_plain
from ipubench.plugins.record.text import without_identifier
from ipubench.plugins.record.verdict import (
    MISSING,
    NEW,
    REGRESSED,
    Verdict,
    of_verdicts,
)
from ipubench.plugins.results.places import EntryKey, place_of
from ipubench.plugins.results.run_results import RunResults

#: An entry keeps this many accepted slow-downs; the history has them all.
MOST_ACCEPTED = 20
MOST_NAMES = 3  # in a message
HASH_LENGTH = 8  # shown digits of a configuration's hash

Name = TypeVar("Name")
Value = TypeVar("Value")


class Key(NamedTuple):
    """The key of an entry: its case, configuration and machine."""

    nodeid: str
    config_hash: str
    fingerprint: str


def key_of(benchmark: Benchmark) -> Key:
    """Return the key of an entry."""
    record = benchmark.record
    return Key(benchmark.fullname, record.config_hash, record.device.fingerprint)


def configurations_of(keys: Sequence[Key]) -> List[str]:
    """Return a suffix for each entry's name: its configuration, if a machine has several, or ''."""
    counts = collections.Counter((key.nodeid, key.fingerprint) for key in set(keys))
    return [
        f" {key.config_hash[:HASH_LENGTH]}" if counts[key.nodeid, key.fingerprint] > 1 else ""
        for key in keys
    ]


def measured(results: RunResults) -> List[Benchmark]:
    """Return the results of a run for a baseline: its credible cases with all their processes."""
    return [benchmark for benchmark in results.whole if not benchmark.record.implausible]


def unproven(results: RunResults) -> Dict[str, str]:
    """Return case -> outcome for the measured cases whose result may be wrong.

    Their tests did not pass, for another reason than a regression.
    """
    return {
        nodeid: outcome
        for nodeid, outcome in results.outcomes.items()
        if outcome != "passed"
        and nodeid in results.benchmarks
        and results.kind(nodeid) != REGRESSED
    }


def left_out(kinds: Mapping[str, str], what: str) -> List[str]:
    """Return a line for each kind of cases that are left out; ``what`` is the consequence."""
    lines = []
    for kind in sorted(set(kinds.values())):
        names = [nodeid for nodeid, found in kinds.items() if found == kind]
        lines.append(f"{len(names)} {kind}, {what}: {some_of(names, MOST_NAMES)}")
    return lines


def why_disturbed(benchmark: Benchmark) -> str:
    """Return why a benchmark is too disturbed for a baseline, or ''."""
    processes = processes_of(benchmark)
    deciding = [sample for sample in processes if sample.fresh] or processes
    clean = sum(map(is_clean, deciding))
    return "" if clean >= min(LEAST_FRESH, len(deciding)) else disturbance_text(processes)


def complete(benchmark: Benchmark) -> Benchmark:
    """Return a benchmark whose record has its processes; at least the one that wrote it."""
    return benchmark if benchmark.record.processes else with_processes(benchmark)


def grouped(values: Iterable[Value], name_of: Callable[[Value], Name]) -> Dict[Name, List[Value]]:
    """Return the values of each name, in their original order."""
    found: Dict[Name, List[Value]] = {}
    for value in values:
        found.setdefault(name_of(value), []).append(value)
    return found


def by_case(benchmarks: Iterable[Benchmark]) -> Dict[str, List[Benchmark]]:
    """Return the entries of each case, by its node id."""
    return grouped(benchmarks, lambda benchmark: benchmark.fullname)


def by_machine(benchmarks: Iterable[Benchmark]) -> Dict[str, List[Benchmark]]:
    """Return the entries of each machine, by its fingerprint."""
    return grouped(benchmarks, lambda benchmark: key_of(benchmark).fingerprint)


def find(
    entries: Mapping[str, Sequence[Benchmark]], nodeid: str, config_hash: str, fingerprint: str
) -> Optional[Benchmark]:
    """Return the entry to compare a case with, or None if the case is new.

    Prefers the exact entry, then one of the same machine, then one of the same configuration, and
    the newest of equals. A comparison then shows what differs. ``entries`` as :func:`by_case`
    returns them.
    """

    def likeness(benchmark: Benchmark) -> Any:
        key = key_of(benchmark)
        same = (key.fingerprint == fingerprint, key.config_hash == config_hash)
        return same, benchmark.record.time

    return max(entries.get(nodeid, ()), key=likeness, default=None)


def software_since(
    entries: Mapping[str, Sequence[Benchmark]], benchmarks: Iterable[Benchmark]
) -> str:
    """Return the changes of versions and commits since the entries, as text, or ''.

    ``entries`` as :func:`by_case` returns them.
    """
    pairs = [(find(entries, *key_of(benchmark)), benchmark) for benchmark in benchmarks]
    return software_changes((old.record, new.record) for old, new in pairs if old is not None)


def gone(benchmarks: Iterable[Benchmark], cases: AbstractSet[str]) -> List[Benchmark]:
    """Return the entries whose cases are not among the node ids of all ``cases``.

    A case that command-line options changed is not collected without them, so it is gone only if
    its bench function is. A command of a benchmarks.yml is collected only if its file was named, so
    it is kept unless another case of that file was collected.
    """
    functions = set(map(without_identifier, cases))
    files = {case.split("::")[0] for case in cases}

    def is_gone(benchmark: Benchmark) -> bool:
        nodeid, record = benchmark.fullname, benchmark.record
        if record.spec is not None and nodeid.split("::")[0] not in files:
            return False
        if record.overrides:
            return without_identifier(nodeid) not in functions
        return of_test(benchmark) not in cases

    return list(filter(is_gone, benchmarks))


def newest(benchmarks: Iterable[Benchmark]) -> List[Benchmark]:
    """Return the newest entry of each case on each machine."""
    ordered = sorted(benchmarks, key=lambda benchmark: benchmark.record.time)
    return list({place_of(benchmark): benchmark for benchmark in ordered}.values())


def in_order(benchmarks: Iterable[Benchmark]) -> List[Benchmark]:
    """Return entries in a file's order."""
    return sorted(benchmarks, key=key_of)


def replaced(old: Iterable[Benchmark], new: Sequence[Benchmark]) -> List[Benchmark]:
    """Return ``old`` with ``new`` in place of entries of the same cases and machines.

    Entries with another configuration are replaced too, because the case's definition has changed.
    Other cases and machines keep their entries. A new entry keeps its case's accepted slow-downs.
    """
    accepted: Dict[EntryKey, List[Accepted]] = {place_of(one): [] for one in new}
    kept = []
    for one in old:
        if place_of(one) in accepted:
            accepted[place_of(one)] += one.record.accepted
        else:
            kept.append(one)
    return in_order([*kept, *(accepting(one, accepted[place_of(one)]) for one in new)])


def accepting(benchmark: Benchmark, accepted: Sequence[Accepted]) -> Benchmark:
    """Return a copy of an entry with these accepted slow-downs added.

    If the same promotion is repeated, a slow-down keeps its first time.
    """
    record = benchmark.record
    own = list(record.accepted)
    whole: List[Accepted] = []
    what: List[Accepted] = []
    for one in sorted([*accepted, *own], key=lambda one: one.time):
        timeless = replace(one, time="")
        if timeless not in what:
            whole.append(one)
            what.append(timeless)
    if whole == own:
        return benchmark
    return with_record(benchmark, replace(record, accepted=whole[-MOST_ACCEPTED:]))


def as_promoted(benchmark: Benchmark, name: str) -> Benchmark:
    """Return a copy of an entry that names the baseline it became part of."""
    return with_record(benchmark, replace(benchmark.record, promoted=name))


@dataclass(frozen=True)
class Difference:
    """The verdict on one case of two files; a missing case has its earlier name."""

    key: Key  # of the entry; for a missing case only its node id
    name: str
    verdict: Verdict

    @property
    def place(self) -> EntryKey:
        """The case and its machine."""
        return self.key.nodeid, self.key.fingerprint

    def as_plain(self) -> Facts:
        """Return JSON values."""
        nodeid, config_hash, machine = self.key
        key = {"case": nodeid, "machine": machine, "config_hash": config_hash}
        return {**key, **as_plain(self.verdict)}


def differences(
    before: Sequence[Benchmark], now: Sequence[Benchmark], threshold: Optional[float]
) -> List[Difference]:
    """Compare each entry of ``now``; cases that only ``before`` has are missing.

    A case that command-line options made is missing only if its bench function is. Without a
    threshold, changes are shown but not judged.
    """
    entries = by_case(before)
    stored = [find(entries, *key_of(benchmark)) for benchmark in now]
    thresholds = {} if threshold is None else {THROUGHPUT: threshold}
    rule = StoredRule(thresholds, cases=sum(entry is not None for entry in stored))
    found = []
    for benchmark, entry in zip(now, stored):
        verdict = Verdict(NEW) if entry is None else judge(benchmark, entry, rule)
        found.append(Difference(key_of(benchmark), benchmark.record.name, verdict))
    there = {benchmark.fullname for benchmark in now}
    lost = {b.fullname: b.record.name for b in gone(before, there)}
    missing = Verdict(MISSING)
    found += [Difference(Key(nodeid, "", ""), name, missing) for nodeid, name in lost.items()]
    return found


def exit_code(found: Sequence[Difference], threshold: Optional[float]) -> int:
    """Return 0; 1 if a case regressed or is missing; 6 if no case was decided."""
    return 0 if threshold is None else of_verdicts(one.verdict.kind for one in found)
