"""Writes report.html: one file that opens from disk, without a network."""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple
from urllib.parse import quote

from msgspec import to_builtins

from ipubench.plugins.record.structs import Facts
from ipubench.plugins.record.text import distinct_names, minute_of
from ipubench.plugins.record.verdict import how_compared
from ipubench.plugins.report import published
from ipubench.plugins.report.environment import environment
from ipubench.plugins.report.groups import GROUP_HEADINGS, group_tables
from ipubench.plugins.report.mean_change import mean_in_words
from ipubench.plugins.report.process_rounds import processes_shown
from ipubench.plugins.report.profiles import shown
from ipubench.plugins.results.case_row import CaseRow
from ipubench.plugins.results.columns import CHARTS, COLUMNS, PAGE
from ipubench.plugins.results.next_step import notes_on_open
from ipubench.plugins.results.rows import (
    Report,
    by_change,
    conclusion,
    counts,
    named,
    rank,
)
from ipubench.plugins.results.run_facts import BAD, MEASURED
from ipubench.plugins.web.templates import render, script

#: Columns of text, aligned to the left.
LEFT = ("name", "kind")
FILTERS = (("kind", "Verdict"), ("framework", "Framework"), ("mode", "Mode"), ("data", "Data"))


def page(report: Report) -> str:
    """Return the page. Raises ImportError without jinja2."""
    rows = by_change(named(report.rows()))
    kinds = counts(rows)
    values: Dict[str, object] = {
        "headline": conclusion(report, rows),
        "mean": mean_in_words(row.verdict for row in rows),
        "worst": "bad" if report.ended_badly or any(kind in kinds for kind in BAD) else "good",
        "problems": report.problems,
        "counts": kinds,
        "overview": _overview(report),
        "how": how_compared(any(row.verdict.in_turns for row in rows)),
        "filters": [
            {"key": key, "label": label, "values": values}
            for key, label in FILTERS
            for values in [_values(rows, key)]
            if len(values) > 1
        ],
        "columns": _columns(rows),
        "rows": [_line(row) for row in rows],
        "groups": group_tables(rows),
        "group_headings": GROUP_HEADINGS,
        "profiles": shown(rows),
        "published": published.lines_of(report.benchmarks),
        "published_heading": published.HEADING,
        "environment": environment(report),
        "data": {
            "rows": _charted(rows),
            "details": _details(rows),
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
    filled = {column.name for column in PAGE for row in rows if column.texts(row)[0]}
    headings = {"throughput": "now"} if "before" in filled else {}
    return [
        (headings.get(one.name, one.heading), one.name, one.name not in LEFT)
        for one in PAGE
        if one.name in filled and (one.name != "kind" or judged)
    ]


def _charted(rows: Sequence[CaseRow]) -> List[Facts]:
    """Return the data for the charts, per row.

    ``panel`` names the chart of a row: its function, plus mode or file if names are not distinct.
    """
    modes = [COLUMNS["mode"].value(row) for row in rows]
    panels = [row.function + (f", {mode}" if mode else "") for row, mode in zip(rows, modes)]
    owners = [f"{row.file}::{panel}" for row, panel in zip(rows, panels)]
    called = distinct_names(dict(zip(owners, panels)))
    return [
        {
            **{column.name: column.value(row) for column in CHARTS},
            "load": to_builtins(row.load),
            "panel": called[owner],
        }
        for row, owner in zip(rows, owners)
    ]


def _overview(report: Report) -> Dict[str, str]:
    """Return the facts about the run: machine, time, comparison."""
    groups, whole = environment(report), report.facts
    facts = {
        "device": groups.get("device", {}).get("name"),
        "fingerprint": groups.get("device", {}).get("fingerprint"),
        "git": groups.get("code", {}).get("git"),
        "compared with": f"{whole.baseline} ({whole.gate})" if whole.baseline else None,
        "command": whole.command or None,
    }
    if whole.started is not None:
        facts["started"] = minute_of(whole.started)
    if whole.started is not None and whole.ended is not None:
        facts["took"] = duration(whole.ended - whole.started)
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
    values = (COLUMNS[key].value(row) for row in rows)
    return sorted({str(value) for value in values if value})


def _line(row: CaseRow) -> Facts:
    """Return a row of the table: its texts, its cells, and the sort value of each column.

    Verdicts are sorted by importance, not alphabetically.
    """
    values = {column.name: column.value(row) for column in PAGE}
    return {
        "name": row.name,
        "engine": COLUMNS["engine"].texts(row)[0],
        "kind": row.kind,
        "reasons": [*row.reasons, *notes_on_open(row)],
        "function": "" if row.name.startswith(row.function) else row.function,
        "link": quote(row.id) if row.benchmark is not None else "",
        "cells": {column.name: column.texts(row) for column in PAGE},
        "sorted_by": {
            **{key: "" if value is None else str(value) for key, value in values.items()},
            "kind": str(rank(row)[0]),
        },
    }


def _details(rows: Sequence[CaseRow]) -> Facts:
    """Return the processes of each measured case, those that it was compared with, its options."""
    return {
        row.id: {
            "processes": processes_shown(row.benchmark),
            "before": [] if row.before is None else processes_shown(row.before),
            "options": row.record.effective_options,
        }
        for row in rows
        if row.benchmark is not None
    }
