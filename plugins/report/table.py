"""The table at the end of a run: its rows, their order, and its fit to the terminal."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Sequence, Tuple

from ipubench.plugins.record.text import (
    aligned,
    apart_from,
    cut_middle,
    distinct_names,
    name_of_test,
    without_identifier,
)
from ipubench.plugins.report.groups import groups_of
from ipubench.plugins.results.case_row import CaseRow
from ipubench.plugins.results.columns import GIVE_WAY, TERMINAL, shared_line, shown_columns
from ipubench.plugins.results.rows import rank

HEADINGS = ("case", *(column.heading for column in TERMINAL))
# The first column gives way if a name would otherwise be cut, the others only if less of it would
# remain.
NARROWEST_NAME = 24
SHORTEST_NAME = 11
GAPS = (2, 1)  # between columns; the narrow one if a name would otherwise be cut


class Row(NamedTuple):
    """The cells of one case under HEADINGS, or the single cell of a group's heading."""

    cells: Tuple[str, ...]
    kind: str = ""  # how it ended


def table_rows(rows: Sequence[CaseRow]) -> List[Row]:
    """Return measured cases in blocks: a group, or a bench function's cases of one unit.

    The order is the run's, in a group the fastest first; after a comparison, regressions come
    first, for blocks and for cases. Functions with the same name also show their file, cases with
    the same name pytest's identifier.
    """
    groups = groups_of(rows)
    grouped = {row.id: (group.name, row) for group in groups for row in group.rows}
    blocks: Dict[Tuple[str, str], List[CaseRow]] = {}
    for row in rows:
        name, row = grouped.get(row.id, (without_identifier(row.id), row))
        blocks.setdefault((name, row.rate.unit), []).append(row)

    def in_block(row: CaseRow) -> Tuple[Tuple[int, float], float]:
        return rank(row), row.ratio.value if row.ratio is not None else 0.0

    ordered = sorted(blocks.items(), key=lambda block: min(map(rank, block[1])))
    named = {group.name for group in groups}
    headings = distinct_names(
        {name: name if name in named else name_of_test(name) for name, _ in blocks}
    )
    lines = []
    for (name, unit), members in ordered:
        heading = f"{headings[name]} ({unit})"
        names = distinct_names({one.id: one.name for one in members})
        if [*names.values()] == [headings[name]]:  # its only row would repeat it
            lines.append(_row(heading, members[0]))
            continue
        lines.append(Row((heading,)))
        lines += [_row(f"  {names[one.id]}", one) for one in sorted(members, key=in_block)]
    return lines


def _row(name: str, row: CaseRow) -> Row:
    return Row((name, *(column.texts(row)[0] or "-" for column in TERMINAL)), row.kind)


def layout(rows: Sequence[Row], width: int) -> List[Row]:
    """Align the rows under the headings within ``width`` columns; each becomes one line.

    Leaves out columns that are empty, facts that all rows share, and what does not fit. A long name
    is cut in the middle, but only while names stay different. Figures are never cut.
    """
    if all(len(row.cells) == 1 for row in rows):
        return []
    full = [HEADINGS, *(row.cells for row in rows if len(row.cells) > 1)]
    widths = [max(map(len, column)) for column in zip(*full)]
    figures = shown_columns(TERMINAL, [cells[1:] for cells in full[1:]])
    for count in range(len(GIVE_WAY) + 1):
        left_out = GIVE_WAY[:count]
        shown = [0, *(index + 1 for index in figures if TERMINAL[index] not in left_out)]
        rooms = {gap: width - 1 - sum(widths[i] + gap for i in shown[1:]) for gap in GAPS}
        gap = next((gap for gap in GAPS if rooms[gap] >= widths[0]), 0)
        if gap or (left_out and _can_be_cut(full, rooms[GAPS[-1]])):
            break
    gap = gap or GAPS[-1]
    room = min(widths[0], max(SHORTEST_NAME, rooms[gap]))
    widths[0] = apart_from([cells[0] for cells in full], room)
    lines = []
    for row in (Row(HEADINGS), *rows):
        if len(row.cells) == 1:
            lines.append(Row((cut_middle(row.cells[0], width - 1),)))
            continue
        cells = [row.cells[index] for index in shown]
        line = aligned(cells, [widths[index] for index in shown], " " * gap)
        lines.append(Row((line,), row.kind))
    return lines


def shared_by(rows: Sequence[Row]) -> str:
    """Return a line with the facts that all cases of a table share, or ''."""
    return shared_line(TERMINAL, [row.cells[1:] for row in rows if len(row.cells) > 1])


def _can_be_cut(full: Sequence[Tuple[str, ...]], room: int) -> bool:
    """Return whether names that are cut to this width keep enough text and stay different."""
    names = [cells[0] for cells in full[1:]]
    return room >= NARROWEST_NAME and apart_from(names, room) == room
