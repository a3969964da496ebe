"""What a report says of the operations of a case that was profiled (plugins/compare/explain.py)."""

from __future__ import annotations

from html import escape
from typing import Any, Dict, List, Sequence, Tuple

from ipubench.plugins.record.text import percent, short_number

MOST_SHOWN = 5
HEADINGS = ("operation", "share before", "share now", "ms before", "ms now")
#: One operation as texts, in the order of the headings.
Line = Tuple[str, str, str, str, str]


def explained(rows: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Return the rows of regressed cases that were profiled."""
    return [row for row in rows if row["profile"] and row["kind"] == "regressed"]


def lines_of(profile: Dict[str, Any]) -> List[Line]:
    """Return the operations whose share grew; where only this side is known, its largest ones."""
    if profile.get("grown"):
        return [
            (
                one["name"],
                percent(one["before"]),
                percent(one["now"]),
                _milliseconds(one["seconds_before"]),
                _milliseconds(one["seconds_now"]),
            )
            for one in profile["grown"][:MOST_SHOWN]
        ]
    if profile.get("there"):
        return []
    return [
        (one["name"], "", percent(one["share"]), "", _milliseconds(one["seconds"]))
        for one in profile.get("here", ())[:MOST_SHOWN]
    ]


def one_line(profile: Dict[str, Any]) -> str:
    """Return for the terminal what grew, or what takes the time now, and why no more is known."""
    lines = lines_of(profile)
    if profile.get("grown"):
        parts = [f"{name} {before} -> {now}" for name, before, now, _, _ in lines]
        text = f"share of the time: {', '.join(parts)}"
    elif lines:
        parts = [f"{name} {now}" for name, _, now, _, _ in lines]
        text = f"the time goes to: {', '.join(parts)}"
    else:
        text = "no operation's share of the time grew" if profile.get("there") else "not explained"
    return "; ".join([text, *profile.get("notes", ())])


def caption(profile: Dict[str, Any]) -> str:
    """Return the sentence above a table of operations."""
    if profile.get("grown"):
        text = "Operations whose share of the time grew, in one profiled call of each side."
    elif profile.get("there"):
        text = "No operation's share of the time grew, in one profiled call of each side."
    else:
        text = "What takes the time now, in one profiled call."
    notes = "; ".join(profile.get("notes", ()))
    return f"{text} {notes[:1].upper()}{notes[1:]}." if notes else text


def as_html(rows: Sequence[Dict[str, Any]]) -> str:
    """Return the section of all regressed cases that were profiled; '' without any."""
    parts = []
    for row in explained(rows):
        head = "".join(
            f'<th scope="col"{"" if heading == HEADINGS[0] else _NUMBER}>{heading}</th>'
            for heading in HEADINGS
        )
        body = "\n".join(
            f'<tr><td class="name">{escape(name)}</td>'
            + "".join(f"<td{_NUMBER}>{escape(text)}</td>" for text in texts)
            + "</tr>"
            for name, *texts in lines_of(row["profile"])
        )
        table = (
            f'<div class="scroll"><table class="operations"><thead><tr>{head}</tr></thead>'
            f"<tbody>\n{body}\n</tbody></table></div>"
        )
        parts.append(
            f"<h3>{escape(row['name'])}</h3>\n<p>{escape(caption(row['profile']))}</p>\n"
            + (table if body else "")
        )
    if not parts:
        return ""
    title = "Where the time of regressed cases went"
    inner = "\n".join(parts)
    return f'<section id="profiles" class="profiles">\n<h2>{title}</h2>\n{inner}\n</section>'


_NUMBER = ' class="n"'


def _milliseconds(seconds: float) -> str:
    return short_number(1000 * seconds)
