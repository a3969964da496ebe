"""Leaves out columns of a table that are empty, and facts that all rows share. Pure functions."""

from __future__ import annotations

from typing import Dict, List, Sequence

#: Columns that may hold a fact instead of a figure, and what a line below the table calls them.
FACTS = {"engine": "engine", "compile s": "compilation"}
EMPTY, CASE = ("", "-"), "case"


def shown_columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> List[int]:
    """Return the columns that are not empty in all rows and not a fact that all rows share."""
    shared = shared_facts(headings, rows)
    return [
        index
        for index, (heading, *cells) in enumerate(zip(headings, *rows))
        if heading == CASE or not (heading in shared or set(cells) <= set(EMPTY))
    ]


def shared_facts(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Dict[str, str]:
    """Return the facts that all of two or more rows share: heading -> value."""
    return {
        heading: cells[0]
        for heading, *cells in zip(headings, *rows)
        if len(cells) > 1
        and heading in FACTS
        and len(set(cells)) == 1
        and cells[0] not in EMPTY
        and not cells[0][0].isdigit()
    }


def shared_line(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a line with the facts that all rows share, or ''."""
    facts = [f"{FACTS[heading]} {value}" for heading, value in shared_facts(headings, rows).items()]
    return f"all cases: {', '.join(facts)}" if facts else ""
