"""What the gate can say of a case, and how it says so."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Dict, Optional, Tuple

from ipubench.fixtures.case.errors import counted
from ipubench.plugins.record.files import storable
from ipubench.plugins.record.record import INSTRUCTIONS, SCALARS, THROUGHPUT

PASS, REGRESSED, IMPROVED, INCONCLUSIVE = "pass", "regressed", "improved", "inconclusive"
NEW, MISSING, INCOMPARABLE = "new", "missing", "incomparable"
#: Compared without a threshold: the change is shown.
UNJUDGED = "not judged"
#: What a gate has said something of.
COMPARED = (PASS, REGRESSED, IMPROVED, INCONCLUSIVE)
#: A smaller correction for the machine's speed is not worth a clause.
LEAST_SHOWN = 0.001
#: The exit code where a gate was asked for and no case was compared.
EXIT_NOTHING_COMPARED = 6


@dataclass(frozen=True)
class Verdict:
    """What the gate says of a case; the numbers are those of its throughput.

    Rates in items per second; ``change`` is relative, + is faster, ``low`` and ``high`` are its 95%
    interval. ``metric`` decided; ``also`` has the other metrics that were judged.
    """

    kind: str
    before: float = math.nan
    now: float = math.nan
    unit: str = ""
    change: float = math.nan
    low: float = math.nan
    high: float = math.nan
    threshold: float = math.nan
    allowed: float = math.nan  # the threshold, or the case's A/A floor where that is larger
    processes: int = 0  # whose figures these are
    processes_before: int = 0
    in_turns: bool = False  # the two sides were measured in turns, not at two times
    by_cpu_time: bool = False  # the change is that of the CPU time, beyond what others explain
    metric: str = THROUGHPUT
    also: Tuple[Dict[str, Any], ...] = field(default_factory=tuple)
    reasons: Tuple[str, ...] = field(default_factory=tuple)
    extra_info: Tuple[str, ...] = field(default_factory=tuple)  # of the test, where it changed

    def as_dict(self) -> Dict[str, Any]:
        """Return JSON values; unknown numbers are null."""
        values: Dict[str, Any] = storable(dataclasses.asdict(self))
        return values


def message(name: str, verdict: Verdict, record: str) -> str:
    """Return the paragraph with which a regressed case fails."""
    lines = []
    if verdict.metric == THROUGHPUT:
        processes = counted(verdict.processes, "process", "processes")
        how = "by its CPU time" if verdict.by_cpu_time else how_compared(verdict.in_turns)
        lines.append(
            f"{name} has become slower: {verdict.before:.4g} {verdict.unit} before, "
            f"{verdict.now:.4g} {verdict.unit} now{_correction(verdict)}. Its speed "
            f"{how} changed by {verdict.change:+.1%} ("
            f"{verdict.low:+.1%} to {verdict.high:+.1%} at 95% confidence, "
            f"{processes} now, {verdict.processes_before} before); the gate allows "
            f"{100 * verdict.allowed:.3g}% more time per item{_why_allowed(verdict)}."
        )
    for other in verdict.also:
        if other["kind"] == REGRESSED and other["metric"] == INSTRUCTIONS:
            lines.append(
                f"{name} takes more instructions: {other['before']:,.0f} a call before, "
                f"{other['now']:,.0f} now, {other['change']:+.2%}; the gate allows "
                f"{100 * other['threshold']:.3g}% more."
            )
        elif other["kind"] == REGRESSED:
            lines.append(
                f"{name}: its {SCALARS[other['metric']].words} has grown: {other['before']:.4g} "
                f"{other['unit']} before, {other['now']:.4g} {other['unit']} now, "
                f"{other['change']:+.1%} ({other['low']:+.1%} to {other['high']:+.1%}); the gate "
                f"allows {100 * other['threshold']:.3g}% more."
            )
    return " ".join([*lines, f"The full record is in {record}."])


def undecided_message(name: str, verdict: Verdict) -> str:
    """Return the paragraph with which an inconclusive case fails, if it is to fail."""
    lines = [f"{name}: the gate could not decide whether it has become slower"]
    if math.isfinite(verdict.change):
        lines[0] += (
            f": its speed changed by {verdict.change:+.1%} ({verdict.low:+.1%} to "
            f"{verdict.high:+.1%} at 95% confidence)"
        )
    lines += verdict.reasons
    return ". ".join([*lines, "--gate-inconclusive=pass lets such cases pass."])


def how_compared(in_turns: bool) -> str:
    """Return what makes the two sides of a comparison alike."""
    return "measured in turns" if in_turns else "at equal machine speed"


def _correction(verdict: Verdict) -> str:
    """Say by how much the machine itself has changed its speed, as far as a case follows it.

    It is what lies between the change of the figures that are shown and that at equal machine
    speed.
    """
    machine = verdict.now / verdict.before / (1 + verdict.change) - 1
    if verdict.in_turns or verdict.by_cpu_time or not LEAST_SHOWN <= abs(machine) < math.inf:
        return ""
    word = "faster" if machine > 0 else "slower"
    return f", on a machine that its canary found {abs(machine):.1%} {word} now"


def noisier(threshold: Optional[float], allowed: Optional[float]) -> bool:
    """Tell whether a case's own noise allows it more than its threshold does."""
    if threshold is None or allowed is None:
        return False
    return allowed > 1.001 * threshold


def _why_allowed(verdict: Verdict) -> str:
    if not noisier(verdict.threshold, verdict.allowed):
        return ""
    return f" (equal code differs by as much; the threshold is {100 * verdict.threshold:.3g}%)"
