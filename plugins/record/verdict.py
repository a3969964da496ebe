"""The gate's verdict on a case, and its messages."""

from __future__ import annotations

import math
from typing import Iterable, Optional, Sequence, Union

from ipubench.fixtures.case.errors import counted
from ipubench.plugins.record.record import INSTRUCTIONS, SCALARS, THROUGHPUT
from ipubench.plugins.record.structs import Part
from ipubench.plugins.record.text import percent

PASS, REGRESSED, IMPROVED, INCONCLUSIVE = "pass", "regressed", "improved", "inconclusive"
NEW, MISSING, INCOMPARABLE = "new", "missing", "incomparable"
#: Compared without a threshold: the change is shown.
UNJUDGED = "not judged"
#: The verdicts of a gate that compared something, those that decided, and those that did not.
COMPARED = (PASS, REGRESSED, IMPROVED, INCONCLUSIVE)
DECIDED = (PASS, REGRESSED, IMPROVED)
OPEN = (INCONCLUSIVE, INCOMPARABLE)
#: A smaller correction for the machine's speed is not worth a clause.
LEAST_SHOWN = 0.001
#: The exit code if there is a gate but no case was decided.
EXIT_UNDECIDED = 6
#: The kinds of verdict that fail a run.
FAILING = (REGRESSED, MISSING)


class JudgedMetric(Part, frozen=True, omit_defaults=False):
    """The verdict on a metric other than throughput; + is more, which is worse."""

    metric: str
    kind: str
    unit: str = ""
    before: Optional[float] = None
    now: Optional[float] = None
    change: Optional[float] = None
    low: Optional[float] = None
    high: Optional[float] = None
    threshold: Optional[float] = None


class Verdict(Part, frozen=True, omit_defaults=False):
    """The gate's verdict on a case, with the numbers of its throughput.

    Rates are items per second. ``change`` is relative, + is faster; ``low`` and ``high`` are its
    95% interval. ``metric`` decided; ``also`` has the other judged metrics.
    """

    kind: str
    before: Optional[float] = None
    now: Optional[float] = None
    unit: str = ""
    change: Optional[float] = None
    low: Optional[float] = None
    high: Optional[float] = None
    threshold: Optional[float] = None
    #: The larger of the threshold and the case's A/A noise floor.
    allowed: Optional[float] = None
    #: The numbers of processes behind ``now`` and ``before``.
    processes: int = 0
    processes_before: int = 0
    #: Whether both sides were measured alternately, not at two times.
    in_turns: bool = False
    #: Whether the change is that of the CPU time.
    by_cpu_time: bool = False
    metric: str = THROUGHPUT
    also: Sequence[JudgedMetric] = ()
    reasons: Sequence[str] = ()
    #: Changes in the test's own ``extra_info``.
    extra_info: Sequence[str] = ()


#: The verdict on a case that was not compared.
NO_VERDICT = Verdict("")


def of_verdicts(kinds: Iterable[str], failing: Sequence[str] = FAILING) -> int:
    """Return a gate's exit code: 1 if a verdict fails the run, 6 if no case was decided, else 0.

    It depends on nothing else: a marker such as ``xfail`` changes a test's outcome, not a verdict.
    """
    found = set(kinds)
    if found.intersection(failing):
        return 1
    return 0 if found.intersection(DECIDED) else EXIT_UNDECIDED


def message(name: str, verdict: Verdict, record: str) -> str:
    """Return the failure message of a regressed case."""
    lines = []
    if verdict.metric == THROUGHPUT:
        processes = counted(verdict.processes, "process", "processes")
        change, low, high = map(known, (verdict.change, verdict.low, verdict.high))
        how = "judged by its CPU time" if verdict.by_cpu_time else how_compared(verdict.in_turns)
        lines.append(
            f"{name} has become slower: {known(verdict.before):.4g} {verdict.unit} "
            f"before, {known(verdict.now):.4g} {verdict.unit} now{_correction(verdict)}. Its speed "
            f"{how} changed by {change:+.1%} ("
            f"{low:+.1%} to {high:+.1%} at 95% confidence, "
            f"{processes} now, {verdict.processes_before} before); the gate allows "
            f"{100 * known(verdict.allowed):.3g}% more time per item{_why_allowed(verdict)}."
        )
    for other in verdict.also:
        if other.kind == REGRESSED and other.metric == INSTRUCTIONS:
            before, now, change = map(known, (other.before, other.now, other.change))
            lines.append(
                f"{name} takes more instructions: {before:,.0f} a call before, {now:,.0f} now, "
                f"{change:+.2%}; the gate allows {100 * known(other.threshold):.3g}% more."
            )
        elif other.kind == REGRESSED:
            change, low, high = map(known, (other.change, other.low, other.high))
            lines.append(
                f"{name}: its {SCALARS[other.metric].words} has grown: {known(other.before):.4g} "
                f"{other.unit} before, {known(other.now):.4g} {other.unit} now, "
                f"{change:+.1%} ({low:+.1%} to {high:+.1%}); the gate "
                f"allows {100 * known(other.threshold):.3g}% more."
            )
    return " ".join([*lines, f"The full record is in {record}."])


def undecided_message(name: str, verdict: Verdict) -> str:
    """Return the failure message of an inconclusive case."""
    lines = [f"{name}: the gate could not decide whether it has become slower"]
    if verdict.change is not None:
        low, high = known(verdict.low), known(verdict.high)
        lines[0] += (
            f": its speed changed by {verdict.change:+.1%} ({low:+.1%} to "
            f"{high:+.1%} at 95% confidence)"
        )
    lines += verdict.reasons
    return ". ".join([*lines, "--gate-inconclusive=pass lets such cases pass."])


def known(figure: Optional[float]) -> float:
    """Return a number; NaN for None."""
    return math.nan if figure is None else figure


def how_compared(in_turns: bool) -> str:
    """Return the phrase for how both sides were made comparable."""
    return "measured in turns" if in_turns else "at equal machine speed"


def _correction(verdict: Verdict) -> str:
    """Return a phrase for the machine's own change of speed, as far as it affects the case.

    It is the quotient of the shown change and the change at equal machine speed.
    """
    machine = known(verdict.now) / known(verdict.before) / (1 + known(verdict.change)) - 1
    if verdict.in_turns or verdict.by_cpu_time or not LEAST_SHOWN <= abs(machine) < math.inf:
        return ""
    word = "faster" if machine > 0 else "slower"
    return f", on a machine that its canary found {abs(machine):.1%} {word} now"


def noisier(threshold: Optional[float], allowed: Optional[float]) -> bool:
    """Return whether a case's noise allows it more than its threshold."""
    if threshold is None or allowed is None:
        return False
    return allowed > 1.001 * threshold


def _why_allowed(verdict: Verdict) -> str:
    if not noisier(verdict.threshold, verdict.allowed):
        return ""
    return (
        f" (equal code differs by as much; the threshold is {100 * known(verdict.threshold):.3g}%)"
    )


def change_text(verdict: Union[Verdict, JudgedMetric]) -> str:
    """Return the change with its interval, if known; '' if nothing was compared."""
    return in_words(verdict.change, verdict.low, verdict.high)


def in_words(change: Optional[float], low: Optional[float], high: Optional[float]) -> str:
    """Return a change as text, with its interval if known; '' for None."""
    if change is None:
        return ""
    text, interval = percent(change, sign=True), interval_text(low, high)
    return f"{text} ({interval})" if interval else text


def interval_text(low: Optional[float], high: Optional[float]) -> str:
    """Return the interval of a change; '' if it is unknown."""
    if low is None or high is None:
        return ""
    return f"{percent(low, sign=True)} to {percent(high, sign=True)}"
