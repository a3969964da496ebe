"""Writes tables as CSV."""

from __future__ import annotations

import csv
import io
from typing import Iterable, Sequence

from ipubench.fixtures.case.untrusted import printable

# Characters that start a formula in a spreadsheet.
FORMULA = ("=", "+", "-", "@")


def csv_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows under headings."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(map(csv_cell, headings))
    writer.writerows(map(csv_cell, row) for row in rows)
    return output.getvalue()


def csv_cell(value: object) -> object:
    """Return a value as a cell that no spreadsheet takes for a formula.

    Control characters are escaped: a carriage return would start a new row.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        value = "; ".join(map(str, value))
    if isinstance(value, str):
        text = printable(value, len(value))
        return f"'{text}" if text.startswith(FORMULA) else text
    return value
