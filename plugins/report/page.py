"""Writes report.html: one file that opens from disk, without a network."""

from __future__ import annotations

import math
from typing import Dict, List, Optional, Sequence, Tuple
from urllib.parse import quote

from msgspec import to_builtins

from ipubench.plugins.baseline.case_row import CaseRow, environment, process_rows
from ipubench.plugins.baseline.rows import (
    Report,
    by_change,
    conclusion,
    counts,
    named,
    place,
)
from ipubench.plugins.baseline.run_facts import BAD, MEASURED
from ipubench.plugins.record.record import compile_text
from ipubench.plugins.record.structs import Benchmark, Facts, Json
from ipubench.plugins.record.text import (
    distinct_names,
    energy_text,
    minute_of,
    rate_text,
    share_text,
    time_text,
)
from ipubench.plugins.record.verdict import how_compared
from ipubench.plugins.report import published
from ipubench.plugins.report.groups import GROUP_HEADINGS, group_tables
from ipubench.plugins.report.markdown import change_of
from ipubench.plugins.report.mean_change import mean_in_words
from ipubench.plugins.report.profiles import shown
from ipubench.plugins.web.templates import render, script

# Rounds per process; with more, only every n-th is shown, so that the file stays small.
MOST_ROUNDS = 300
# Keys of a row that the charts and the filters use.
CHART_KEYS = (
    "id",
    "name",
    "function",
    "framework",
    "mode",
    "data",
    "kind",
    "batch_size",
    "series",
    "unit",
    "throughput",
    "low",
    "high",
    "p50_ms",
    "p90_ms",
    "p99_ms",
    "achieved_flops",
    "peak_flops",
    "peak_bytes",
    "flops_per_item",
    "weight_bytes_per_item",
    "change",
    "change_low",
    "change_high",
    "threshold",
    "load",
)
FILTERS = (("kind", "Verdict"), ("framework", "Framework"), ("mode", "Mode"), ("data", "Data"))
# Heading, sort key, whether the column has numbers.
COLUMNS: Tuple[Tuple[str, str, bool], ...] = (
    ("case", "name", False),
    ("change", "change", True),
    ("before", "before", True),
    ("throughput", "throughput", True),
    ("verdict", "kind", False),
    ("±", "spread", True),
    ("p50", "p50_ms", True),
    ("p99", "p99_ms", True),
    ("J/item", "energy", True),
    ("compile s", "compile_seconds", True),
    ("peak", "share", True),
    ("memory MiB", "host_memory_bytes", True),
)


def page(report: Report) -> str:
    """Return the page. Raises ImportError without jinja2."""
    rows = by_change(named(report.rows()))
    kinds = counts(rows)
    values: Dict[str, object] = {
        "headline": conclusion(report, rows),
        "mean": mean_in_words((row.change, row.change_low, row.change_high) for row in rows),
        "worst": "bad" if report.ended_badly or any(kind in kinds for kind in BAD) else "good",
        "problems": report.problems,
        "counts": kinds,
        "overview": _overview(report),
        "how": how_compared(any(row.in_turns for row in rows)),
        "filters": [
            {"key": key, "label": label, "values": values}
            for key, label in FILTERS
            for values in [_values(rows, key)]
            if len(values) > 1
        ],
        "columns": _columns(rows),
        "rows": [_line(row) for row in rows],
        "groups": group_tables(report, rows),
        "group_headings": GROUP_HEADINGS,
        "profiles": shown(rows),
        "published": published.lines_of(report.document.benchmarks),
        "published_heading": published.HEADING,
        "environment": environment(report.document),
        "data": {
            "rows": _charted(rows),
            "details": _details(report),
        },
        "style": script("style.css"),
        "script": script("table.js", "plot.js", "charts.js"),
    }
    return render("page.html", values)


def _columns(rows: Sequence[CaseRow]) -> List[Tuple[str, str, bool]]:
    """Return the columns that are not empty in all rows, and verdicts that differ.

    The counts above the table have a verdict that all rows share.
    """
    kinds = {row.kind for row in rows}
    judged = len(kinds) > 1 or any(row.reasons for row in rows)
    judged = judged or (len(rows) == 1 and kinds != {MEASURED})
    filled = {key for row in rows for key, (text, _) in _cells(row).items() if text}
    return [
        ("now" if key == "throughput" and "before" in filled else heading, key, number)
        for heading, key, number in COLUMNS
        if key in filled or key == "name" or (key == "kind" and judged)
    ]


def _charted(rows: Sequence[CaseRow]) -> List[Facts]:
    """Return the data for the charts, per row.

    ``panel`` names the chart of a row: its function, plus mode or file if names are not distinct.
    """
    panels = [row.function + (f", {row.mode}" if row.mode else "") for row in rows]
    owners = [f"{row.file}::{panel}" for row, panel in zip(rows, panels)]
    called = distinct_names(dict(zip(owners, panels)))
    return [
        {**to_builtins({key: getattr(row, key) for key in CHART_KEYS}), "panel": called[owner]}
        for row, owner in zip(rows, owners)
    ]


def _overview(report: Report) -> Dict[str, str]:
    """Return the facts about the run: machine, time, comparison."""
    groups = environment(report.document)
    facts = {
        "device": groups.get("device", {}).get("name"),
        "fingerprint": groups.get("device", {}).get("fingerprint"),
        "git": groups.get("code", {}).get("git"),
        "compared with": f"{report.baseline} ({report.gate})" if report.baseline else None,
        "command": report.command or None,
    }
    if report.started is not None:
        facts["started"] = minute_of(report.started)
    if report.started is not None and report.ended is not None:
        facts["took"] = duration(report.ended - report.started)
    return {key: value for key, value in facts.items() if value}


def duration(seconds: float) -> str:
    """Return seconds as hours, minutes and seconds."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _values(rows: Sequence[CaseRow], key: str) -> List[str]:
    """Return the values that a column can be filtered by."""
    return sorted({str(getattr(row, key)) for row in rows if getattr(row, key)})


def _line(row: CaseRow) -> Facts:
    """Return a row of the table: its texts, its cells, and the sort value of each column.

    Verdicts are sorted by importance, not alphabetically.
    """
    return {
        **{key: getattr(row, key) for key in ("name", "engine", "kind", "reasons")},
        "function": "" if row.name.startswith(row.function) else row.function,
        "link": quote(row.id) if row.throughput is not None else "",
        "cells": _cells(row),
        "sorted_by": {
            **{key: _sortable(row, key) for _, key, _ in COLUMNS},
            "kind": str(place(row)[0]),
        },
    }


def _cells(row: CaseRow) -> Dict[str, Tuple[str, str]]:
    """Return the text of each column of figures, and a note in small letters."""
    change, _, interval = change_of(row).partition(" ")
    memory = row.host_memory_bytes
    return {
        "change": (change, interval),
        "before": (_rate(row.before), ""),
        "throughput": (_rate(row.throughput), row.unit or ""),
        "spread": (share_text(row.spread), ""),
        "p50_ms": (_time(row.p50_ms), ""),
        "p99_ms": (_time(row.p99_ms), ""),
        "energy": (energy_text(row.energy), ""),
        "compile_seconds": (compile_text(row.compile, row.compile_seconds), ""),
        "share": (share_text(row.share, 0), ""),
        "host_memory_bytes": ("" if memory is None else f"{memory / 2**20:,.0f}", ""),
    }


def _rate(value: Optional[float]) -> str:
    return "" if value is None else rate_text(value)


def _time(milliseconds: Optional[float]) -> str:
    return "" if milliseconds is None else time_text(milliseconds / 1000)


def _sortable(row: CaseRow, key: str) -> str:
    """Return a row's value for sorting a column; empty if the cell has no number."""
    value = getattr(row, key)
    return "" if value is None else str(value)


def _details(report: Report) -> Facts:
    """Return the processes of each measured case, those that it was compared with, its options."""
    found: Dict[str, Json] = {}
    for name, benchmark in report.measured().items():
        before = report.before.get(name)
        found[name] = {
            "processes": _processes(benchmark),
            "before": _processes(before) if before is not None else [],
            "options": benchmark.record.effective_options,
        }
    return found


def _processes(benchmark: Benchmark) -> List[Facts]:
    """Return each process's measurements; only every n-th round if there are many."""
    found: List[Facts] = []
    for process in process_rows(benchmark):
        every = max(1, math.ceil(len(process.rates) / MOST_ROUNDS))
        found.append(
            {
                **process._asdict(),
                "rounds": len(process.rates),
                "every": every,
                "at": process.at[::every],
                "rates": _thinned(process.rates, every),
                "canaries_ms": _thinned(process.canaries_ms, every),
                "disturbed": process.disturbed[::every],
                "left_out": len(process.disturbed),
            }
        )
    return found


def _thinned(values: Sequence[float], every: int) -> List[float]:
    return [float(f"{value:.5g}") for value in values[::every]]
