"""Is a case's number of instructions larger than before? Pure functions.

A count has no confidence interval to speak of. The least count of several processes is the case's,
if a second process came to it too; then the change alone decides. Else time, chance or addresses
decide what the case does, and only a change far beyond the differences of equal code is certain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Mapping, Optional

from ipubench.plugins.record.counts import UNIT, Counts
from ipubench.plugins.record.record import INSTRUCTIONS
from ipubench.plugins.record.structs import GrownFunction
from ipubench.plugins.record.text import percent
from ipubench.plugins.record.verdict import (
    IMPROVED,
    INCONCLUSIVE,
    PASS,
    REGRESSED,
    UNJUDGED,
    JudgedMetric,
)

#: What a case may grow by unless something else is given.
DEFAULT_THRESHOLD = 0.005
#: Counts of equal code agree within this share of the threshold, or more processes count.
TOLERANCE = 0.1
#: Of all instructions of a call: less growth of one function is not worth a line.
LEAST_GROWTH = 0.0005
MOST_GROWN = 5
INSTEAD = "--gate=5% judges its time"
#: What has to be the same for counts to be comparable.
ALIKE = ("by", "valgrind", "processor", "machine", "addresses", "hash_seed", "threads", "gc")


@dataclass(frozen=True)
class Judgement:
    """What the counts say: ``kind`` is a verdict's, or '' if they cannot be compared."""

    kind: str
    before: float = 0.0
    now: float = 0.0
    threshold: Optional[float] = None
    reason: str = ""

    @property
    def metrics(self) -> List[JudgedMetric]:
        """What a verdict holds of it; nothing without counts."""
        if not self.before:
            return []
        numbers = UNIT, self.before, self.now, self.now / self.before - 1
        return [JudgedMetric(INSTRUCTIONS, self.kind, *numbers, threshold=self.threshold)]


def judge(before: Counts, now: Counts, threshold: Optional[float]) -> Judgement:
    """Compare the counts of a case; without a threshold the change is shown only.

    A case that cannot be counted is inconclusive.
    """
    for side, counts in (("", now), ("before, ", before)):
        if counts.uncountable:
            kind = "" if threshold is None else INCONCLUSIVE
            return Judgement(kind, reason=f"uncountable: {side}{counts.uncountable}; {INSTEAD}")
    changed: List[str] = [
        f"{name} {before.how.get(name)} -> {now.how.get(name)}"
        for name in ALIKE
        if before.how.get(name) != now.how.get(name)
    ]
    if changed:
        reason = f"its instructions were counted differently: {', '.join(changed)}"
        return Judgement("", reason=reason)
    if threshold is None:
        return Judgement(UNJUDGED, before.value, now.value)
    spread = before.spread + now.spread
    if are_sure(before, now, threshold):
        least = most = now.value / before.value - 1
        kind = PASS
    else:
        least = now.value / max(before.values) - 1 - spread
        most = max(now.values) / before.value - 1
        kind = PASS if most <= threshold else INCONCLUSIVE
        most += spread
    if least > threshold:
        kind = REGRESSED
    elif most < -threshold:
        kind = IMPROVED
    reason = ""
    if kind == INCONCLUSIVE:
        reason = (
            f"its counts differ by {percent(max(before.spread, now.spread))} between processes of "
            f"equal code: time, chance or addresses decide what it does; {INSTEAD}"
        )
    return Judgement(kind, before.value, now.value, threshold, reason)


def are_sure(before: Counts, now: Counts, threshold: float) -> bool:
    """Return whether each side's least count was found twice."""
    tolerance = TOLERANCE * threshold
    return before.is_found_again(tolerance) and now.is_found_again(tolerance)


def needs_more(before: Counts, now: Counts, threshold: Optional[float]) -> bool:
    """Return whether more processes should count a case, because the least counts differ."""
    found = judge(before, now, threshold)
    if threshold is None or not found.metrics:
        return False
    differ = abs(now.value / before.value - 1) > TOLERANCE * threshold
    return differ or not are_sure(before, now, threshold)


def grown(before: Mapping[str, float], now: Mapping[str, float]) -> List[GrownFunction]:
    """Return the functions whose instructions grew, the one that grew most first."""
    total = sum(now.values()) or 1.0
    found = [
        GrownFunction(name, before.get(name, 0.0), value)
        for name, value in now.items()
        if value - before.get(name, 0.0) >= LEAST_GROWTH * total
    ]
    return sorted(found, key=lambda one: one.before - one.now)[:MOST_GROWN]
