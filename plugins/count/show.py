"""Counts of instructions as people read them."""

from __future__ import annotations

from typing import Any, Dict, Sequence

from ipubench.plugins.record.counts import Counts
from ipubench.plugins.record.record import INSTRUCTIONS
from ipubench.plugins.record.text import percent

#: Letters of a thousand, a million and so on.
PREFIXES = ("", "k", "M", "G", "T", "P")
UNCOUNTABLE = "uncountable"


def count_text(value: float) -> str:
    """Return a count in four digits: 886.8k, 5.246G."""
    power = 0
    while value >= 999.95 and power < len(PREFIXES) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.4g}{PREFIXES[power]}"


def instructions_text(plain: Any, verdict: Any) -> str:
    """Return the instructions of a call, with their change if they were compared; else '-'.

    ``plain``: that part of a record.
    """
    counts = Counts.of_record(plain)
    if counts is None:
        return "-"
    if counts.uncountable:
        return UNCOUNTABLE
    also = verdict.get("also") or () if verdict else ()
    changes = [one["change"] for one in also if one.get("metric") == INSTRUCTIONS]
    change = f" {percent(changes[0], 2, sign=True)}" if changes else ""
    return count_text(counts.value) + change


def grown_text(grown: Sequence[Dict[str, Any]]) -> str:
    """Return the functions whose instructions grew, the one that grew most first."""
    return ", ".join(
        f"{one['name']} {count_text(one['before'])} -> {count_text(one['now'])}" for one in grown
    )
