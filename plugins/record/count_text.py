"""Counts of instructions as people read them."""

from __future__ import annotations

from typing import Optional, Sequence

from ipubench.plugins.record.counts import Counts
from ipubench.plugins.record.record import INSTRUCTIONS
from ipubench.plugins.record.structs import GrownFunction, Instructions
from ipubench.plugins.record.text import percent
from ipubench.plugins.record.verdict import Verdict

#: Letters of a thousand, a million and so on.
PREFIXES = ("", "k", "M", "G", "T", "P")
UNCOUNTABLE = "uncountable"
#: A smaller difference between the processes that count is not shown.
LEAST_SPREAD = 0.0005


def count_text(value: float) -> str:
    """Return a count in four digits: 886.8k, 5.246G."""
    power = 0
    while value >= 999.95 and power < len(PREFIXES) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.4g}{PREFIXES[power]}"


def instructions_text(found: Optional[Instructions], verdict: Verdict) -> str:
    """Return the instructions of a call, with the difference between the processes that counted.

    If they were compared, the change follows. Without a count it is ''.
    """
    counts = Counts.of_record(found)
    if counts is None:
        return ""
    if counts.uncountable:
        return UNCOUNTABLE
    also = [one.change for one in verdict.also if one.metric == INSTRUCTIONS]
    changes = [change for change in also if change is not None]
    change = f" {percent(changes[0], 2, sign=True)}" if changes else ""
    spread = f" ±{percent(counts.spread)}" if counts.spread >= LEAST_SPREAD else ""
    return count_text(counts.value) + spread + change


def grown_text(grown: Sequence[GrownFunction]) -> str:
    """Return the functions whose instructions grew, the one that grew most first."""
    return ", ".join(
        f"{one.name} {count_text(one.before)} -> {count_text(one.now)}" for one in grown
    )
