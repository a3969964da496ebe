"""Shows the operations of a profiled case in a report (plugins/compare/explain.py)."""

from __future__ import annotations

from typing import List, NamedTuple, Sequence, Tuple

from ipubench.plugins.record.count_text import count_text, grown_text
from ipubench.plugins.record.structs import Profile
from ipubench.plugins.record.text import percent, short_number
from ipubench.plugins.record.verdict import REGRESSED
from ipubench.plugins.results.case_row import CaseRow

MOST_SHOWN = 5
HEADINGS = ("operation", "share before", "share now", "ms before", "ms now")
#: If only the operations of now are known.
HEADINGS_OF_NOW = ("operation", "share now", "ms now")
HEADINGS_OF_COUNTS = ("function", "instructions before", "instructions now")


class ShownProfile(NamedTuple):
    """The operations of one case, as a page or a comment shows them."""

    name: str
    caption: str
    headings: Sequence[str]
    lines: Sequence[Sequence[str]]


def shown(rows: Sequence[CaseRow]) -> List[ShownProfile]:
    """Return the profiles of the regressed cases."""
    return [
        ShownProfile(row.name, caption(row.profile), *table_of(row.profile))
        for row in rows
        if row.profile is not None and row.kind == REGRESSED
    ]


def table_of(profile: Profile) -> Tuple[Sequence[str], List[Sequence[str]]]:
    """Return headings and lines: the operations that grew, or the largest if only now is known."""
    if profile.grown:
        return HEADINGS, [
            (
                one.name,
                percent(one.before),
                percent(one.now),
                _milliseconds(one.seconds_before),
                _milliseconds(one.seconds_now),
            )
            for one in profile.grown[:MOST_SHOWN]
        ]
    if profile.functions:
        return HEADINGS_OF_COUNTS, [
            (one.name, count_text(one.before), count_text(one.now))
            for one in profile.functions[:MOST_SHOWN]
        ]
    largest = [] if profile.there else profile.here
    return HEADINGS_OF_NOW, [
        (one.name, percent(one.share), _milliseconds(one.seconds)) for one in largest[:MOST_SHOWN]
    ]


def one_line(profile: Profile) -> str:
    """Return a line for the terminal: what grew, or what takes the time now, and notes."""
    lines = table_of(profile)[1]
    if profile.grown:
        parts = [f"{name} {before} -> {now}" for name, before, now, *_ in lines]
        text = f"share of the time: {', '.join(parts)}"
    elif profile.functions:
        text = f"instructions a call: {grown_text(profile.functions)}"
    elif lines:
        text = f"the time goes to: {', '.join(f'{name} {now}' for name, now, _ in lines)}"
    else:
        text = "no operation's share of the time grew" if profile.there else "not explained"
    return "; ".join([text, *profile.notes])


def caption(profile: Profile) -> str:
    """Return the caption of a table of operations."""
    if profile.grown:
        text = "Operations whose share of the time grew, in one profiled call on each side."
    elif profile.functions:
        text = "Functions of compiled code whose instructions grew, in one call on each side."
    elif profile.there:
        text = "No operation's share of the time grew, in one profiled call on each side."
    else:
        text = "What takes the time now, in one profiled call."
    notes = "; ".join(profile.notes)
    return f"{text} {notes[:1].upper()}{notes[1:]}." if notes else text


def _milliseconds(seconds: float) -> str:
    return short_number(1000 * seconds)
