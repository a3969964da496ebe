"""Writes summary.md, for a comment on a pull request or a job's summary."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

from ipubench.plugins.record.text import cut_middle, minute_of, rate_text
from ipubench.plugins.record.verdict import (
    EXIT_UNDECIDED,
    UNJUDGED,
    change_text,
    how_compared,
)
from ipubench.plugins.report import profiles, published
from ipubench.plugins.report.environment import environment
from ipubench.plugins.report.groups import GROUP_HEADINGS, group_tables
from ipubench.plugins.report.mean_change import mean_in_words
from ipubench.plugins.report.open_cases import last_line
from ipubench.plugins.results.case_row import CaseRow
from ipubench.plugins.results.columns import SUMMARY, shared_line, shown_columns
from ipubench.plugins.results.next_step import notes_on_open
from ipubench.plugins.results.rows import (
    CHANGED,
    Report,
    by_change,
    exit_code,
    headline,
    named,
    own_noise,
)
from ipubench.plugins.results.run_facts import NO_GATE
from ipubench.plugins.web.templates import render

# GitHub limits a comment to 65,536 characters, GitLab to a million.
LARGEST = 60_000
LARGEST_ENVIRONMENT = 5_000
MOST_PROBLEMS = 20  # of runs
MOST_COMMAND = 1000  # characters: a command line may name a thousand cases
MARKS = {
    "regressed": "🔴",
    "failed": "🔴",
    "missing": "🔴",
    "not run": "🔴",
    "inconclusive": "🟡",
    "incomparable": "🟡",
    "improved": "🟢",
    UNJUDGED: "⚪",
}
#: Columns of text, aligned to the left.
LEFT = ("case", "verdict", "why", "engine")
#: What to shorten if the summary is too long, in this order.
CUT = ("rows", "profiles", "groups", "changed")


def markdown(report: Report) -> str:
    """Return the summary: conclusion, changes, the rest folded; at most 60 kB."""
    rows, whole = named(report.rows()), report.facts
    judged = {row.name: row.verdict for row in rows if row.verdict.kind}
    changed = by_change([row for row in rows if row.kind in CHANGED])
    compared = any(row.verdict.change is not None for row in rows)
    cells = [[" ".join(column.texts(row)).strip() for column in SUMMARY] for row in rows]
    columns = shown_columns(SUMMARY, cells)
    return _fitting(
        {
            "mark": _mark(report, rows),
            "headline": headline(report, rows),
            "problems": report.problems[:MOST_PROBLEMS],
            "changed": [_changed(row) for row in changed],
            "how": how_compared(any(row.verdict.in_turns for row in rows)) if compared else "",
            "mean": mean_in_words(row.verdict for row in rows),
            "groups": group_tables(rows),
            "group_headings": GROUP_HEADINGS,
            "profiles": profiles.shown(changed),
            "noisy": own_noise((row.name, row.verdict) for row in rows),
            "rows": [{"name": row.name, "cells": line} for row, line in zip(rows, cells)],
            "columns": columns,
            "headings": [SUMMARY[index].heading for index in columns],
            "shared": shared_line(SUMMARY, cells),
            "all": "The case" if len(rows) == 1 else f"All {len(rows)} cases",
            "started": "" if whole.started is None else minute_of(whole.started),
            "command": cut_middle(whole.command, MOST_COMMAND),
            "published": list(map(str.strip, published.last_lines(report.benchmarks))),
            "environment": _environment(report),
            "left": LEFT,
            "last": last_line({} if whole.gate == NO_GATE else judged, _gate_notes(report)),
        }
    )


def _gate_notes(report: Report) -> List[str]:
    notes = [note for run in report.runs for note in run.gate_notes]
    return list(dict.fromkeys(notes))[:MOST_PROBLEMS]


def _mark(report: Report, rows: Sequence[CaseRow]) -> str:
    """Return the overall colour: that of the worst case or of the runs' problems."""
    if report.ended_badly:
        return "🔴"
    if exit_code(report, rows) == EXIT_UNDECIDED:
        return "🟡"
    return MARKS.get(by_change(rows)[0].kind if rows else "", "🟢")


def _fitting(values: Dict[str, Any]) -> str:
    """Return the summary, shortened to fit into a comment."""
    shown = {part: len(values[part]) for part in CUT}
    while True:
        some = {part: values[part][:most] for part, most in shown.items()}
        omitted = {part: len(values[part]) - most for part, most in shown.items()}
        text = render("summary.md", {**values, **some, "omitted": omitted})
        cut, size = next((part for part in CUT if shown[part]), None), _size(text)
        if cut is None or size <= LARGEST:
            return text
        shown[cut] = shown[cut] * LARGEST // size


def _size(text: str) -> int:
    return len(text.encode("utf-8", "backslashreplace"))


def _changed(row: CaseRow) -> Dict[str, str]:
    verdict, unit, now = row.verdict, "", row.verdict.now
    if row.benchmark is not None:
        unit, now = row.rate.unit, row.rate.median if now is None else now
    return {
        "verdict": f"{MARKS.get(row.kind, '')} {row.kind}".strip(),
        "name": row.name,
        "before": _rate(verdict.before, unit),
        "now": _rate(now, unit),
        "change": change_text(verdict),
        "why": "; ".join([*row.reasons, *notes_on_open(row)]),
    }


def _rate(value: Optional[float], unit: str) -> str:
    return "" if value is None else f"{rate_text(value)} {unit}".strip()


def _environment(report: Report) -> List[Tuple[str, str]]:
    """Return facts of the environment, limited to a small part of a comment."""
    found: List[Tuple[str, str]] = []
    groups = environment(report)
    size = 0
    for group in ("device", "conditions", "versions", "code"):
        for key, value in groups.get(group, {}).items():
            size += _size(key) + _size(value[:300]) + len("- : \n")
            if size > LARGEST_ENVIRONMENT:
                return found
            found.append((key, value[:300]))
    return found
