"""A table in Markdown, as the pages of docs/explanation have it."""

from __future__ import annotations

from typing import Sequence


def markdown_row(cells: Sequence[str]) -> str:
    """Return one row of a table."""
    return f"| {' | '.join(cells)} |"
