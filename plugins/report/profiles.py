"""What a report says of the operations of a case that was profiled (plugins/compare/explain.py)."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

from ipubench.plugins.count.show import count_text, grown_text
from ipubench.plugins.record.text import percent, short_number

MOST_SHOWN = 5
HEADINGS = ("operation", "share before", "share now", "ms before", "ms now")
#: Where nothing is known of before.
HEADINGS_OF_COUNTS = ("function", "instructions before", "instructions now")
HEADINGS_OF_NOW = ("operation", "share now", "ms now")


def explained(rows: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Return the rows of regressed cases that were profiled."""
    return [row for row in rows if row["profile"] and row["kind"] == "regressed"]


def shown(row: Dict[str, Any]) -> Dict[str, Any]:
    """Return what a page and a comment show of the operations of one explained row."""
    headings, lines = table_of(row["profile"])
    if not lines and row["profile"].get("functions"):
        headings, lines = HEADINGS_OF_COUNTS, functions_of(row["profile"])
    words = {"name": row["name"], "caption": caption(row["profile"])}
    return {**words, "headings": headings, "lines": lines}


def table_of(profile: Dict[str, Any]) -> Tuple[Sequence[str], List[Sequence[str]]]:
    """Return headings and lines: what grew, or the largest where only this side is known."""
    if profile.get("grown"):
        return HEADINGS, [
            (
                one["name"],
                percent(one["before"]),
                percent(one["now"]),
                _milliseconds(one["seconds_before"]),
                _milliseconds(one["seconds_now"]),
            )
            for one in profile["grown"][:MOST_SHOWN]
        ]
    largest = [] if profile.get("there") else profile.get("here", [])
    return HEADINGS_OF_NOW, [
        (one["name"], percent(one["share"]), _milliseconds(one["seconds"]))
        for one in largest[:MOST_SHOWN]
    ]


def functions_of(profile: Dict[str, Any]) -> List[Sequence[str]]:
    """Return the functions whose instructions grew, as lines of a table."""
    return [
        (one["name"], count_text(one["before"]), count_text(one["now"]))
        for one in profile["functions"][:MOST_SHOWN]
    ]


def one_line(profile: Dict[str, Any]) -> str:
    """Return for the terminal what grew, or what takes the time now, and why no more is known."""
    functions = grown_text(profile.get("functions", ()))
    if functions and not profile.get("grown"):
        return "; ".join([f"instructions a call: {functions}", *profile.get("notes", ())])
    lines = table_of(profile)[1]
    if profile.get("grown"):
        parts = [f"{name} {before} -> {now}" for name, before, now, *_ in lines]
        text = f"share of the time: {', '.join(parts)}"
    elif lines:
        text = f"the time goes to: {', '.join(f'{name} {now}' for name, now, _ in lines)}"
    else:
        text = "no operation's share of the time grew" if profile.get("there") else "not explained"
    return "; ".join([text, *profile.get("notes", ())])


def caption(profile: Dict[str, Any]) -> str:
    """Return the sentence above a table of operations."""
    if profile.get("grown"):
        text = "Operations whose share of the time grew, in one profiled call of each side."
    elif profile.get("functions"):
        text = "Functions of compiled code whose instructions grew, in a call of each side."
    elif profile.get("there"):
        text = "No operation's share of the time grew, in one profiled call of each side."
    else:
        text = "What takes the time now, in one profiled call."
    notes = "; ".join(profile.get("notes", ()))
    return f"{text} {notes[:1].upper()}{notes[1:]}." if notes else text


def _milliseconds(seconds: float) -> str:
    return short_number(1000 * seconds)
