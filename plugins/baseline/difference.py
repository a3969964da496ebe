"""Two stored baselines against each other, with the verdicts and exit codes of the gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence

from ipubench.plugins.baseline.entries import Benchmark, find, is_gone, key_of
from ipubench.plugins.gate.rule import Rule, judge
from ipubench.plugins.record.process_sample import THROUGHPUT
from ipubench.plugins.record.record import record_of
from ipubench.plugins.record.verdict import (
    COMPARED,
    EXIT_NOTHING_COMPARED,
    MISSING,
    NEW,
    REGRESSED,
    Verdict,
)

EXIT_CHANGED = 1


@dataclass(frozen=True)
class Difference:
    """What the gate says of one case of two files; a missing one has its name from before."""

    nodeid: str
    name: str
    verdict: Verdict

    def as_dict(self) -> Dict[str, Any]:
        """Return JSON values."""
        return {"case": self.nodeid, **self.verdict.as_dict()}


def differences(
    before: Sequence[Benchmark], now: Sequence[Benchmark], threshold: Optional[float]
) -> List[Difference]:
    """Compare each entry of ``now``; cases that only ``before`` has are missing.

    A case that options of the command line made is missing only when its bench function is. Without
    a threshold the change is shown and judged by nothing.
    """
    stored = [find(before, *key_of(benchmark)) for benchmark in now]
    thresholds = {} if threshold is None else {THROUGHPUT: threshold}
    rule = Rule(thresholds, cases=max(1, sum(entry is not None for entry in stored)))
    found = []
    for benchmark, entry in zip(now, stored):
        verdict = Verdict(NEW) if entry is None else judge(benchmark, entry, rule)
        found.append(Difference(benchmark["fullname"], record_of(benchmark)["name"], verdict))
    there = {benchmark["fullname"] for benchmark in now}
    gone = {b["fullname"]: record_of(b)["name"] for b in before if is_gone(b, there)}
    found += [Difference(nodeid, name, Verdict(MISSING)) for nodeid, name in gone.items()]
    return found


def exit_code(found: Sequence[Difference], threshold: Optional[float]) -> int:
    """Return 0, 1 where a case regressed or is missing, 6 where nothing was compared."""
    if threshold is None:
        return 0
    kinds = {difference.verdict.kind for difference in found}
    if kinds & {REGRESSED, MISSING}:
        return EXIT_CHANGED
    return 0 if kinds & set(COMPARED) else EXIT_NOTHING_COMPARED
