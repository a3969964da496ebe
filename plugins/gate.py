"""The rule that turns a comparison into a verdict. Pure functions over benchmarks.

First rule: the ratio of canary-normalised 25% quantiles of the rounds' seconds per item. A case
that looks slower than the threshold is measured again in fresh processes, and only their median
ratio decides, because a process keeps the speed that its memory layout happened to give it.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Dict, List, Sequence, Tuple

from plugins.record import record_of, rounds_of
from plugins.statistics import median, normalised_quartile, quantile_interval

FRESH_PROCESSES = 3
PASS, REGRESSED, IMPROVED = "pass", "regressed", "improved"
NEW, MISSING, INCOMPARABLE = "new", "missing", "incomparable"
COMPARED = (PASS, REGRESSED, IMPROVED)


@dataclass(frozen=True)
class Verdict:
    """What the gate says of a case. Rates in items per second; change is relative, + is faster."""

    kind: str
    before: float = math.nan
    now: float = math.nan
    unit: str = ""
    change: float = math.nan
    low: float = math.nan
    high: float = math.nan
    threshold: float = math.nan
    processes: int = 1
    reasons: Tuple[str, ...] = field(default_factory=tuple)

    def as_dict(self) -> Dict[str, Any]:
        """Return JSON values; unknown numbers are null."""
        return {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in dataclasses.asdict(self).items()
        }


def differences(now: Dict[str, Any], before: Dict[str, Any]) -> List[str]:
    """Return why two records may not be compared, in words; empty where they may."""
    found = []
    if now["device"]["fingerprint"] != before["device"]["fingerprint"]:
        found.append(
            f"another machine ({before['device']['fingerprint']}, "
            f"now {now['device']['fingerprint']})"
        )
    if now["config_hash"] != before["config_hash"]:
        ours, theirs = now["effective_options"], before.get("effective_options", {})
        changed = [
            f"{key} {theirs.get(key)} -> {ours.get(key)}"
            for key in sorted({*ours, *theirs})
            if ours.get(key) != theirs.get(key)
        ]
        found.append(f"another configuration ({', '.join(changed) or 'hash differs'})")
    for group in ("conditions", "effective"):
        for key in sorted({*now[group], *before[group]}):
            if now[group].get(key) != before[group].get(key):
                found.append(f"{key} {before[group].get(key)} -> {now[group].get(key)}")
    ours, theirs = _source(now), _source(before)
    if ours != theirs:
        found.append(f"other data ({theirs}, now {ours})")
    if bool(now["canary"]["seconds"]) != bool(before["canary"]["seconds"]):
        found.append("canaries on one side only")
    if now["throughput"]["unit"] != before["throughput"]["unit"]:
        found.append(f"unit {before['throughput']['unit']} -> {now['throughput']['unit']}")
    return found


def _source(record: Dict[str, Any]) -> str:
    """Return what the input was, without the unreadable files that happened to be met."""
    return ", ".join(f"{k} {v}" for k, v in sorted(record["data"].items()) if k != "corrupt")


def speed_ratio(now: Dict[str, Any], before: Dict[str, Any]) -> float:
    """Return the speed now over the speed before: canary-normalised, above 1 is faster."""
    return _seconds_per_item(before) / _seconds_per_item(now)


def _seconds_per_item(benchmark: Dict[str, Any]) -> float:
    record = record_of(benchmark)
    quartile = normalised_quartile(rounds_of(benchmark), record["canary"]["seconds"])
    return quartile / float(record["items_per_round"])


def compare(
    now: Dict[str, Any],
    before: Dict[str, Any],
    threshold: float,
    fresh: Sequence[Dict[str, Any]] = (),
) -> Verdict:
    """Judge a benchmark against its baseline.

    ``threshold`` is the relative slow-down that counts (0.05 for 5%). With ``fresh`` benchmarks
    the median of their ratios decides, and the interval spans their ratios; without, it is the 95%
    interval of the quartiles of the two runs' rounds.
    """
    record, stored = record_of(now), record_of(before)
    unit = record["throughput"]["unit"]
    rates = {"before": stored["throughput"]["median"], "now": record["throughput"]["median"]}
    reasons = differences(record, stored)
    if reasons:
        return Verdict(
            INCOMPARABLE, unit=unit, threshold=threshold, reasons=tuple(reasons), **rates
        )
    if fresh:
        ratios = [speed_ratio(benchmark, before) for benchmark in fresh]
        rates["now"] = median([record_of(item)["throughput"]["median"] for item in fresh])
        ratio, low, high = median(ratios), min(ratios), max(ratios)
    else:
        ratio = speed_ratio(now, before)
        low, high = _ratio_interval(now, before, ratio)
    # Slower by 5% means 5% more time per item.
    kind = PASS
    if 1 / ratio > 1 + threshold:
        kind = REGRESSED
    elif ratio > 1 + threshold:
        kind = IMPROVED
    return Verdict(
        kind,
        unit=unit,
        change=ratio - 1,
        low=low - 1,
        high=high - 1,
        threshold=threshold,
        processes=len(fresh) or 1,
        **rates,
    )


def _ratio_interval(
    now: Dict[str, Any], before: Dict[str, Any], ratio: float
) -> Tuple[float, float]:
    """Widen the ratio by the intervals of both runs' quartiles (rounds only, within a process)."""
    fast_now, slow_now = _relative_interval(rounds_of(now))
    fast_before, slow_before = _relative_interval(rounds_of(before))
    low = math.hypot(math.log(slow_now), math.log(fast_before))
    high = math.hypot(math.log(fast_now), math.log(slow_before))
    return ratio * math.exp(-low), ratio * math.exp(high)


def _relative_interval(rounds: List[float]) -> Tuple[float, float]:
    low, high = quantile_interval(rounds, 0.25)
    middle = normalised_quartile(rounds, [])
    return low / middle, high / middle


def message(name: str, verdict: Verdict, record: str) -> str:
    """Return the paragraph with which a regressed case fails."""
    how = (
        f"the median of {verdict.processes} fresh processes"
        if verdict.processes > 1
        else "one process"
    )
    return (
        f"{name} has become slower: {verdict.before:.4g} {verdict.unit} before, "
        f"{verdict.now:.4g} {verdict.unit} now. Its speed at equal machine speed changed by "
        f"{verdict.change:+.1%} ({verdict.low:+.1%} to {verdict.high:+.1%}, {how}); the gate "
        f"allows {100 * verdict.threshold:.3g}% more time per item. The full record is in {record}."
    )
