"""Is a case's number of instructions larger than before? Pure functions.

A count has no confidence interval to speak of: equal code differs by some hundredths of a percent.
A change beyond the threshold, and beyond what the case's own counts before differ by, is a
regression as soon as a second process has counted it too. A case whose counts of equal code differ
by more than LARGEST_SPREAD is uncountable: time, chance or addresses decide what it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Mapping, Optional

from ipubench.plugins.record.counts import UNIT, Counts
from ipubench.plugins.record.record import INSTRUCTIONS
from ipubench.plugins.record.structs import GrownFunction
from ipubench.plugins.record.verdict import IMPROVED, PASS, REGRESSED, UNJUDGED, JudgedMetric

#: What a case may grow by unless something else is given.
DEFAULT_THRESHOLD = 0.005
#: Of all instructions of a call: less growth of one function is not worth a line.
LEAST_GROWTH = 0.0005
MOST_GROWN = 5
#: Counts of equal code that were made after other cases differ by less. What those did decides
#: where some objects lie (docs/explanation/instructions.md).
OTHER_BEFORE = 0.0075
#: A case that has become worse in one process alone.
SUSPECT = "suspect"
#: What has to be the same for counts to be comparable.
ALIKE = ("by", "valgrind", "processor", "machine", "addresses", "hash_seed", "threads", "gc")


@dataclass(frozen=True)
class Judgement:
    """What the counts say: ``kind`` is a verdict's, SUSPECT, or '' with the reason why none."""

    kind: str
    before: float = 0.0
    now: float = 0.0
    threshold: Optional[float] = None
    reason: str = ""

    @property
    def change(self) -> float:
        """The relative change; + is more, so worse."""
        return self.now / self.before - 1

    def metric(self, kind: str) -> JudgedMetric:
        """Return what a verdict of this kind holds."""
        return JudgedMetric(
            INSTRUCTIONS,
            kind,
            UNIT,
            self.before,
            self.now,
            self.change,
            threshold=self.threshold,
        )


def why_incomparable(before: Counts, now: Counts) -> str:
    """Return why two counts may not be compared, or ''."""
    for side, counts in (("", now), ("before, ", before)):
        if counts.uncountable:
            return f"uncountable: {side}{counts.uncountable}"
    changed: List[str] = [
        f"{name} {before.how.get(name)} -> {now.how.get(name)}"
        for name in ALIKE
        if before.how.get(name) != now.how.get(name)
    ]
    return f"its instructions were counted differently: {', '.join(changed)}" if changed else ""


def judge(before: Counts, now: Counts, threshold: Optional[float]) -> Judgement:
    """Compare the counts of a case; without a threshold the change is shown only."""
    reason = why_incomparable(before, now)
    if reason:
        return Judgement("", reason=reason)
    if threshold is None:
        return Judgement(UNJUDGED, before.value, now.value)
    allowed = max(threshold, before.spread)
    if before.how.get("after") != now.how.get("after"):
        allowed = max(allowed, OTHER_BEFORE)
    changes = [value / before.value - 1 for value in now.values]
    if min(changes) > allowed:
        kind = REGRESSED if len(changes) > 1 else SUSPECT
    elif max(changes) < -allowed:
        kind = IMPROVED
    else:
        kind = PASS
    return Judgement(kind, before.value, now.value, threshold)


def grown(before: Mapping[str, float], now: Mapping[str, float]) -> List[GrownFunction]:
    """Return the functions whose instructions grew, the one that grew most first."""
    total = sum(now.values()) or 1.0
    found = [
        GrownFunction(name, before.get(name, 0.0), value)
        for name, value in now.items()
        if value - before.get(name, 0.0) >= LEAST_GROWTH * total
    ]
    return sorted(found, key=lambda one: one.before - one.now)[:MOST_GROWN]
