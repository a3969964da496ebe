"""Trends as text for the command line."""

from __future__ import annotations

from typing import Dict, Iterator, List, Sequence, Tuple

from ipubench.plugins.baseline.history.store import Trend, level_change
from ipubench.plugins.baseline.show import HASH_LENGTH, when
from ipubench.plugins.record.statistics import median
from ipubench.plugins.record.text import cut_middle, percent, short_number, table, terminal_width


def trend_overview(trends: Sequence[Tuple[Trend, Sequence[int]]]) -> Iterator[str]:
    """Yield one line per trend, by machine: its level now, and when it last moved."""
    machines: Dict[str, List[Tuple[Trend, Sequence[int]]]] = {}
    for trend, changes in trends:
        machines.setdefault(trend.key.fingerprint, []).append((trend, changes))
    for machine, entries in machines.items():
        yield cut_middle(f"{machine} ({len(entries)} trends)", terminal_width())
        rows: List[Tuple[str, ...]] = [("  case", "runs", "level", "unit", "last change")]
        for trend, changes in entries:
            start = changes[-1] if changes else 0
            level = median([point.throughput for point in trend.points[start:]])
            last = "-"
            if changes:
                point = trend.points[start]
                change = percent(level_change(trend, changes, len(changes) - 1), sign=True)
                last = f"{change} at {point.revision or when(point.time)}"
            name = "  " + trend.key.nodeid.split("::")[-1]
            runs = str(len(trend.points))
            rows.append((name, runs, short_number(level), trend.unit, last))
        yield from table(rows, terminal_width())


def trend_details(trend: Trend, changes: Sequence[int]) -> Iterator[str]:
    """Yield a trend run by run, its change points marked."""
    yield trend.key.nodeid
    yield f"  {trend.key.fingerprint}, configuration {trend.key.config_hash[:HASH_LENGTH]}"
    rows: List[Tuple[str, ...]] = [
        ("  run (UTC)", "revision", trend.unit, "processes", "change of level")
    ]
    for index, point in enumerate(trend.points):
        mark = ""
        if index in changes:
            number = list(changes).index(index)
            mark = f"<-- {percent(level_change(trend, changes, number), sign=True)}"
        rows.append(
            (
                f"  {when(point.time)}",
                point.revision or "-",
                short_number(point.throughput),
                str(point.processes),
                mark,
            )
        )
    yield from table(rows, terminal_width())
