"""The table at the end of a run: its rows, their order, and what fits the terminal's width."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ipubench.plugins.baseline.rows import interval_text, place
from ipubench.plugins.record.record import (
    compile_text,
    ran_by,
    record_of,
    shown_throughput,
    spread_of,
)
from ipubench.plugins.record.text import aligned, cut_middle, percent, share_text, short_number

HEADINGS = (
    "case",
    "throughput",
    "engine",
    "±",
    "p50 ms",
    "p99 ms",
    "compile s",
    "peak",
    "verdict",
    "change",
    "interval",
)
# Left out in this order on a terminal that is too narrow: the interval and the verdict as soon as a
# name would be cut, the others only where less than this would be left of it.
FOR_ROOM = ("compile s", "peak", "p99 ms", "p50 ms", "±", "engine")
NARROWEST_NAME = 24
SHORTEST_NAME = 12
# In the column of changes, for want of a column of verdicts.
SHORT_KINDS = {"incomparable": "incomp."}
GAPS = (2, 1)  # between columns; the narrow one where a name would be cut


class Row(NamedTuple):
    """The cells of one case under HEADINGS, or the one cell of a group's heading."""

    cells: Tuple[str, ...]
    kind: str = ""  # of its verdict


def table_rows(
    benchmarks: Sequence[Dict[str, Any]], verdicts: Dict[str, Dict[str, Any]]
) -> List[Row]:
    """Return the rows, grouped by bench function, and by unit where a function has several.

    In the order of the run; where the run was compared, regressions first: both the groups and
    their cases.
    """
    groups: Dict[Tuple[str, str], List[Dict[str, Any]]] = {}
    for benchmark in benchmarks:
        unit = record_of(benchmark)["throughput"]["unit"]
        groups.setdefault((benchmark["fullname"].split("[")[0], unit), []).append(benchmark)

    def worst(benchmark: Dict[str, Any]) -> Tuple[int, float]:
        return place(verdicts.get(benchmark["fullname"], {}))

    ordered = sorted(groups.items(), key=lambda group: min(map(worst, group[1])))
    rows = []
    for (function, unit), members in ordered:
        rows.append(Row((f"{function.split('::')[-1]} ({unit})",)))
        rows += [_row(one, verdicts.get(one["fullname"])) for one in sorted(members, key=worst)]
    return rows


def _row(benchmark: Dict[str, Any], verdict: Any) -> Row:
    record = record_of(benchmark)
    latency = record["latency"]
    share = (record["compute"] or {}).get("share")
    kind = "" if verdict is None else str(verdict["kind"])
    cells = (
        f"  {record['name']}",
        short_number(shown_throughput(benchmark, verdict)),
        ran_by(record) or "-",
        share_text(spread_of(record)) or "-",
        short_number(latency["p50_ms"]),
        short_number(latency["p99_ms"]),
        compile_text(record) or "-",
        "-" if share is None else percent(share, 0),
        kind or "-",
        change_text(verdict),
        interval_text(verdict),
    )
    return Row(cells, kind)


def change_text(verdict: Any) -> str:
    """Return the change against the baseline, or '-'."""
    if verdict is None or verdict.get("change") is None:
        return "-"
    return percent(verdict["change"], sign=True)


def layout(rows: Sequence[Row], width: int) -> List[Row]:
    """Align the rows under the headings within ``width`` columns; each becomes one line.

    Columns that are empty throughout, and those that do not fit, are left out; a name that does
    not fit is cut in its middle, where names differ least. Figures are never cut.
    """
    full = [row.cells for row in rows if len(row.cells) > 1]
    if not full:
        return []
    fits = _with_verdicts(full, width)
    if fits is None:
        rows = [_without_verdict(row) if len(row.cells) > 1 else row for row in rows]
        full = [row.cells for row in rows if len(row.cells) > 1]
        fits = _without_verdicts(full, width)
    shown, gap = fits
    widths = _widths(full)
    widths[0] = min(widths[0], max(SHORTEST_NAME, _room(shown, widths, gap, width)))
    lines = []
    for row in (Row(HEADINGS), *rows):
        if len(row.cells) == 1:
            lines.append(Row((row.cells[0][: width - 1],)))
            continue
        cells = [row.cells[index] for index in shown]
        line = aligned(cells, [widths[index] for index in shown], " " * gap)
        lines.append(Row((line,), row.kind))
    return lines


def _without_verdict(row: Row) -> Row:
    """Return a row that says its verdict where it has no change to show."""
    verdict, change = HEADINGS.index("verdict"), HEADINGS.index("change")
    cells = list(row.cells)
    if cells[change] == "-":
        cells[change] = SHORT_KINDS.get(cells[verdict], cells[verdict])
    return Row(tuple(cells), row.kind)


def _widths(full: Sequence[Tuple[str, ...]]) -> List[int]:
    return [max(len(cells[index]) for cells in (HEADINGS, *full)) for index in range(len(HEADINGS))]


def _used(full: Sequence[Tuple[str, ...]]) -> List[int]:
    """Return the columns that have something to show."""
    return [
        index
        for index in range(len(HEADINGS))
        if index < 2 or any(cells[index] not in ("-", "") for cells in full)
    ]


def _with_verdicts(full: Sequence[Tuple[str, ...]], width: int) -> Optional[Tuple[List[int], int]]:
    """Return the columns to show and the gap between them, where no name has to be cut."""
    widths, shown = _widths(full), _used(full)
    for columns in (shown, [index for index in shown if HEADINGS[index] != "interval"]):
        for gap in GAPS:
            if _room(columns, widths, gap, width) >= widths[0]:
                return columns, gap
    return None


def _without_verdicts(full: Sequence[Tuple[str, ...]], width: int) -> Tuple[List[int], int]:
    """Return the columns to show and the gap between them, as many as leave room for the names.

    Names that are cut stay different from each other where fewer columns can make them so.
    """
    widths, names = _widths(full), {cells[0] for cells in full}
    shown = [index for index in _used(full) if HEADINGS[index] not in ("interval", "verdict")]
    for dropped in ("", *FOR_ROOM):
        shown = [index for index in shown if HEADINGS[index] != dropped]
        for gap in GAPS:
            room = _room(shown, widths, gap, width)
            if room >= widths[0]:
                return shown, gap
        if room >= NARROWEST_NAME and len({cut_middle(name, room) for name in names}) == len(names):
            break
    return shown, gap


def _room(shown: Sequence[int], widths: Sequence[int], gap: int, width: int) -> int:
    """Return what is left for the names."""
    return width - 1 - sum(widths[index] + gap for index in shown[1:])
