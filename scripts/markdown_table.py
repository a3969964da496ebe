"""Formats Markdown tables for the pages of docs/explanation."""

from __future__ import annotations

from typing import Iterable, Sequence


def markdown_row(cells: Sequence[str]) -> str:
    """Return one row of a table; a bar in a cell is escaped."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. Without rows, return its head, for rows that are printed later."""
    return "\n".join(map(markdown_row, [head, ["---"] * len(head), *rows]))
