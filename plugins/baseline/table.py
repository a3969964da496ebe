"""Tables for the command line, within the terminal's width."""

from __future__ import annotations

import shutil
from typing import List, Sequence

from plugins.units import cut_middle

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
