"""Numbers as people read them."""

from __future__ import annotations

import math
import shutil
from typing import List, Sequence


def short_number(value: float) -> str:
    """Return four significant digits without an exponent, thousands separated: 12,340 or 98.76."""
    if not math.isfinite(value):
        return "-"
    if value == 0:
        return "0"
    rounded = float(f"{value:.4g}")
    decimals = 3 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(0, decimals)}f}"


def percent(value: float, digits: int = 1, sign: bool = False) -> str:
    """Return a fraction as a percentage."""
    if not math.isfinite(value):
        return "-"
    rounded = round(100 * value, digits) + 0.0  # no minus before a zero
    return f"{rounded:{'+' if sign else ''}.{digits}f}%"


def cut_middle(text: str, width: int) -> str:
    """Return a text in at most ``width`` columns, cut in its middle, where names differ least."""
    if len(text) <= width:
        return text
    head = (width - 2) // 2
    return text[:head] + ".." + text[len(text) - (width - 2 - head) :]


GAP = "  "
NARROWEST = 12


def terminal_width() -> int:
    """Return the columns to print in: the terminal's, or 80."""
    return shutil.get_terminal_size((80, 24)).columns


def table(rows: Sequence[Sequence[str]], width: int, left: int = 1) -> List[str]:
    """Align rows, the first of them the headings: ``left`` columns to the left, others right.

    The first column is cut in its middle, where names differ least, to fit into ``width``.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    others = sum(widths[1:]) + len(GAP) * (len(widths) - 1)
    widths[0] = max(NARROWEST, min(widths[0], width - others))
    lines = []
    for row in rows:
        cells = [cut_middle(row[0], widths[0]), *row[1:]]
        aligned = [
            cell.ljust(size) if column < left else cell.rjust(size)
            for column, (cell, size) in enumerate(zip(cells, widths))
        ]
        lines.append(GAP.join(aligned).rstrip())
    return lines
