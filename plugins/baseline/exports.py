"""Writes a report in the formats of other tools.

- pytest-benchmark: its own JSON; other readers of it (Bencher's adapter ``python_pytest``,
  github-action-benchmark's tool ``pytest``) show seconds per batch only.
- github-action-benchmark: tool ``customBiggerIsBetter``, a list of name, unit, value, range, extra.
- bencher: Bencher Metric Format, name -> measure -> value, lower_value, upper_value; the built-in
  measures throughput and latency are in operations per second and nanoseconds.
- csv: one row per case.
"""

from __future__ import annotations

import csv
import io
import json
from operator import attrgetter
from typing import Dict, Iterable, Sequence, Tuple

from msgspec.structs import replace

from ipubench.fixtures.case.untrusted import printable
from ipubench.plugins.baseline.case_row import COLUMNS, CaseRow
from ipubench.plugins.baseline.format import Document
from ipubench.plugins.baseline.rows import Report
from ipubench.plugins.record.record import with_record
from ipubench.plugins.record.structs import NAMESPACE, as_plain
from ipubench.plugins.record.text import percent, short_number
from ipubench.plugins.record.verdict import known

VERDICT_COLUMNS: Tuple[Tuple[str, str], ...] = (
    ("verdict", "kind"),
    ("before (items/s)", "before"),
    ("now (items/s)", "now"),
    ("change (1)", "change"),
    ("change low (1)", "change_low"),
    ("change high (1)", "change_high"),
    ("gate (1)", "threshold"),
    ("allowed (1)", "allowed"),
    ("decided by", "metric"),
    ("processes now", "processes_now"),
    ("processes before", "processes_before"),
    ("reasons", "reasons"),
)
# Characters that start a formula in a spreadsheet.
FORMULA = ("=", "+", "-", "@")


def csv_with_verdicts(report: Report) -> str:
    """Return one row per case with all key figures and its verdict."""
    headings, fields = zip(*COLUMNS, *VERDICT_COLUMNS)
    return csv_table(headings, map(attrgetter(*fields), report.rows()))


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


def pytest_benchmark(document: Document) -> str:
    """Return the document with pytest-benchmark's fields, and our records without processes."""
    alone = [with_record(b, replace(b.record, processes=())) for b in document.benchmarks]
    kept = as_plain(replace(document, benchmarks=alone))
    del kept[NAMESPACE]
    return json.dumps(kept, indent=1, sort_keys=True) + "\n"


def github_action_benchmark(rows: Iterable[CaseRow]) -> str:
    """Return the list that the tool ``customBiggerIsBetter`` reads: throughput by case."""
    entries = []
    for row in rows:
        half = None if row.low is None or row.high is None else (row.high - row.low) / 2
        facts = {
            "latency p50 (ms)": row.p50_ms,
            "latency p99 (ms)": row.p99_ms,
            "compile (s)": row.compile_seconds,
            "rounds": row.rounds,
            "processes": row.processes,
            "instructions a call": row.instructions,
            "energy of an item (J)": row.energy,
        }
        lines = [f"{key}: {_shown(value)}" for key, value in facts.items() if value]
        if row.share is not None:
            lines.append(f"share of peak: {percent(row.share)}")
        entry = {
            "name": row.id,
            "unit": row.unit,
            "value": row.throughput,
            "extra": "\n".join([*lines, f"device: {row.fingerprint}"]),
        }
        if half is not None:
            entry["range"] = f"± {short_number(half)}"
        entries.append(entry)
    return json.dumps(entries, indent=1, sort_keys=True) + "\n"


def _shown(value: float) -> str:
    return short_number(value) if isinstance(value, float) else str(value)


def bencher(rows: Iterable[CaseRow]) -> str:
    """Return Bencher Metric Format, without the compile time if the compilation was reused."""
    metrics: Dict[str, Dict[str, Dict[str, float]]] = {}
    for row in rows:
        measures = {"throughput": {"value": known(row.throughput)}}
        if row.low is not None and row.high is not None:
            measures["throughput"].update(lower_value=row.low, upper_value=row.high)
        if row.p50_ms is not None:
            measures["latency"] = {"value": 1e6 * row.p50_ms}
        if row.p99_ms is not None:
            measures["latency-p99"] = {"value": 1e6 * row.p99_ms}
        if row.instructions is not None:
            measures["instructions"] = {"value": row.instructions}
        if row.energy is not None:
            measures["energy"] = {"value": row.energy}
        if row.compile == "fresh" and row.compile_seconds is not None:
            measures["build-time"] = {"value": row.compile_seconds}
        if row.host_memory_bytes is not None:
            measures["host-memory"] = {"value": row.host_memory_bytes}
        metrics[row.id] = measures
    return json.dumps(metrics, indent=1, sort_keys=True) + "\n"
