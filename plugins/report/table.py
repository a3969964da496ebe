"""The table at the end of a run: its rows, their order, and its fit to the terminal."""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ipubench.plugins.baseline.rows import interval_text, place
from ipubench.plugins.count.show import instructions_text
from ipubench.plugins.gate.shown_throughput import shown_compute, shown_throughput
from ipubench.plugins.record.record import compile_text, is_timed, joules_per_item, ran_by
from ipubench.plugins.record.structs import Benchmark
from ipubench.plugins.record.text import (
    aligned,
    apart_from,
    cut_middle,
    distinct_names,
    energy_text,
    name_of_test,
    percent,
    rate_text,
    share_text,
    time_text,
    without_identifier,
)
from ipubench.plugins.record.verdict import Verdict
from ipubench.plugins.report.columns import shared_line, shown_columns
from ipubench.plugins.report.groups import Ratio, groups_of

HEADINGS = (
    "case",
    "before",
    "throughput",
    "ratio",
    "ratio 95%",
    "instr",
    "engine",
    "±",
    "p50",
    "p99",
    "J/item",
    "compile s",
    "peak",
    "verdict",
    "change",
    "interval",
)
# A narrow terminal lacks these columns, in this order: the interval if a name would otherwise be
# cut, the others only if less than NARROWEST_NAME would remain of it.
FOR_ROOM = (
    "interval",
    "compile s",
    "peak",
    "p99",
    "p50",
    "ratio 95%",
    "±",
    "before",
    "engine",
    "J/item",
    "instr",
)
NARROWEST_NAME = 24
SHORTEST_NAME = 11
GAPS = (2, 1)  # between columns; the narrow one if a name would otherwise be cut


class Row(NamedTuple):
    """The cells of one case under HEADINGS, or the single cell of a group's heading."""

    cells: Tuple[str, ...]
    kind: str = ""  # of its verdict


def table_rows(benchmarks: Sequence[Benchmark], verdicts: Mapping[str, Verdict]) -> List[Row]:
    """Return the rows in blocks: a group, or a bench function's cases of one unit.

    The order is the run's, in a group the fastest first; after a comparison, regressions come
    first, for blocks and for cases. Functions with the same name also show their file, cases with
    the same name pytest's identifier.
    """
    groups = groups_of({benchmark.fullname: benchmark for benchmark in benchmarks}, verdicts)
    group_of = {nodeid: group for group in groups for nodeid in group.ratios}
    ratios = {nodeid: ratio for group in groups for nodeid, ratio in group.ratios.items()}
    blocks: Dict[Tuple[str, str], List[Benchmark]] = {}
    for benchmark in benchmarks:
        nodeid, unit = benchmark.fullname, benchmark.record.throughput.unit
        name = group_of[nodeid].name if nodeid in group_of else without_identifier(nodeid)
        blocks.setdefault((name, unit), []).append(benchmark)

    def worst(benchmark: Benchmark) -> Tuple[int, float]:
        return place(verdicts.get(benchmark.fullname))

    def in_block(benchmark: Benchmark) -> Tuple[Tuple[int, float], float]:
        ratio = ratios.get(benchmark.fullname)
        return worst(benchmark), 0.0 if ratio is None else ratio.value

    ordered = sorted(blocks.items(), key=lambda block: min(map(worst, block[1])))
    named = {group.name for group in groups}
    headings = distinct_names(
        {name: name if name in named else name_of_test(name) for name, _ in blocks}
    )
    rows = []
    for (name, unit), members in ordered:
        heading = f"{headings[name]} ({unit})"
        names = distinct_names({one.fullname: one.record.name for one in members})
        if [*names.values()] == [headings[name]]:  # its only row would repeat it
            (only,) = members
            rows.append(_row(heading, only, verdicts.get(only.fullname)))
            continue
        rows.append(Row((heading,)))
        for one in sorted(members, key=in_block):
            nodeid = one.fullname
            rows.append(_row(f"  {names[nodeid]}", one, verdicts.get(nodeid), ratios.get(nodeid)))
    return rows


def _row(
    name: str, benchmark: Benchmark, verdict: Optional[Verdict], ratio: Optional[Ratio] = None
) -> Row:
    record = benchmark.record
    latency, rate = record.latency, shown_throughput(benchmark, verdict)
    share = shown_compute(benchmark, rate).share
    kind, timed = "" if verdict is None else verdict.kind, is_timed(record)
    found = verdict or Verdict("")
    before, change = found.before, found.change
    cells = (
        name,
        "-" if before is None else rate_text(before),
        rate_text(rate.median) if timed else "-",
        *(("-", "-") if ratio is None else ratio.texts),
        instructions_text(record.instructions, verdict),
        ran_by(record) or "-",
        share_text(rate.spread) or "-",
        time_text(latency.p50_ms / 1000) if timed else "-",
        time_text(latency.p99_ms / 1000) if timed else "-",
        energy_text(joules_per_item(record)) or "-",
        compile_text(record.compile, record.compile_seconds) or "-",
        "-" if share is None else percent(share, 0),
        kind or "-",
        "-" if change is None else percent(change, sign=True),
        interval_text(found.low, found.high),
    )
    return Row(cells, kind)


def layout(rows: Sequence[Row], width: int) -> List[Row]:
    """Align the rows under the headings within ``width`` columns; each becomes one line.

    Leaves out columns that are empty, facts that all rows share, and what does not fit. A long name
    is cut in the middle, but only while names stay different. Figures are never cut.
    """
    if all(len(row.cells) == 1 for row in rows):
        return []
    full = [HEADINGS, *(row.cells for row in rows if len(row.cells) > 1)]
    widths = [max(map(len, column)) for column in zip(*full)]
    for count in range(len(FOR_ROOM) + 1):
        left_out = FOR_ROOM[:count]
        shown = [
            index for index in shown_columns(HEADINGS, full[1:]) if HEADINGS[index] not in left_out
        ]
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
    return shared_line(HEADINGS, [row.cells for row in rows if len(row.cells) > 1])


def _can_be_cut(full: Sequence[Tuple[str, ...]], room: int) -> bool:
    """Return whether names that are cut to this width keep enough text and stay different."""
    names = [cells[0] for cells in full[1:]]
    return room >= NARROWEST_NAME and apart_from(names, room) == room
