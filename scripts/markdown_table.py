"""A table in Markdown, as the pages of docs/explanation have it."""

from __future__ import annotations

from typing import Iterable, Sequence


def markdown_row(cells: Sequence[str]) -> str:
    """Return one row of a table; a bar in a cell is a part of its text."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; without rows what one begins with that is printed row by row."""
    return "\n".join(map(markdown_row, [head, ["---"] * len(head), *rows]))
