"""The formats of other tools, in which a report is written too.

- pytest-benchmark: its own JSON; other readers of it (Bencher's adapter ``python_pytest``,
  github-action-benchmark's tool ``pytest``) show seconds per batch only.
- github-action-benchmark: tool ``customBiggerIsBetter``, a list of name, unit, value, range, extra.
- bencher: Bencher Metric Format, name -> measure -> value, lower_value, upper_value, where the
  built-in measures throughput and latency are in operations per second and nanoseconds.
- csv: one row per case.
"""

from __future__ import annotations

import csv
import io
import json
from typing import Any, Dict, Iterable, Tuple

from ipubench.fixtures.case.untrusted import printable
from ipubench.plugins.baseline.case_row import COLUMNS
from ipubench.plugins.baseline.rows import Report
from ipubench.plugins.record.record import NAMESPACE, record_of, with_record
from ipubench.plugins.record.text import percent, short_number

# Heading -> key of a row.
CASE_COLUMNS = tuple((heading, key) for heading, key, _ in COLUMNS)
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
Row = Dict[str, Any]
# What a spreadsheet takes for the start of a formula.
FORMULA = ("=", "+", "-", "@")


def csv_with_verdicts(report: Report) -> str:
    """Return one row per case with all key figures, and what the gate said of it."""
    return csv_table((*CASE_COLUMNS, *VERDICT_COLUMNS), report.rows())


def csv_table(columns: Iterable[Tuple[str, str]], rows: Iterable[Row]) -> str:
    """Return rows under headings: ``columns`` are these and the keys of a row's values."""
    headings, keys = zip(*columns)
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(map(csv_cell, headings))
    writer.writerows([csv_cell(row[key]) for key in keys] for row in rows)
    return output.getvalue()


def csv_cell(value: Any) -> Any:
    """Return a value as a cell that no spreadsheet takes for a formula.

    Control characters become escapes: a carriage return would open a row of its own.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        value = "; ".join(map(str, value))
    if isinstance(value, str):
        text = printable(value, len(value))
        return f"'{text}" if text.startswith(FORMULA) else text
    return value


def pytest_benchmark(document: Dict[str, Any]) -> str:
    """Return the document with what pytest-benchmark knows, and our records without processes."""
    kept = {key: value for key, value in document.items() if key != NAMESPACE}
    kept["benchmarks"] = [_one_process(benchmark) for benchmark in document["benchmarks"]]
    return json.dumps(kept, indent=1, sort_keys=True) + "\n"


def _one_process(benchmark: Dict[str, Any]) -> Dict[str, Any]:
    record = {key: value for key, value in record_of(benchmark).items() if key != "processes"}
    return with_record(benchmark, record)


def github_action_benchmark(rows: Iterable[Row]) -> str:
    """Return the list that the tool ``customBiggerIsBetter`` reads: throughput by case."""
    entries = []
    for row in rows:
        half = (row["high"] - row["low"]) / 2 if None not in (row["low"], row["high"]) else None
        facts = {
            "latency p50 (ms)": row["p50_ms"],
            "latency p99 (ms)": row["p99_ms"],
            "compile (s)": row["compile_seconds"],
            "rounds": row["rounds"],
            "processes": row["processes"],
            "instructions a call": row["instructions"],
        }
        lines = [f"{key}: {_shown(value)}" for key, value in facts.items() if value]
        if row["share"] is not None:
            lines.append(f"share of peak: {percent(row['share'])}")
        entry = {
            "name": row["id"],
            "unit": row["unit"],
            "value": row["throughput"],
            "extra": "\n".join([*lines, f"device: {row['fingerprint']}"]),
        }
        if half is not None:
            entry["range"] = f"± {short_number(half)}"
        entries.append(entry)
    return json.dumps(entries, indent=1, sort_keys=True) + "\n"


def _shown(value: Any) -> str:
    return short_number(value) if isinstance(value, float) else str(value)


def bencher(rows: Iterable[Row]) -> str:
    """Return Bencher Metric Format; a compilation that was reused has no time of its own."""
    metrics: Dict[str, Dict[str, Dict[str, float]]] = {}
    for row in rows:
        measures = {"throughput": {"value": row["throughput"]}}
        if None not in (row["low"], row["high"]):
            measures["throughput"].update(lower_value=row["low"], upper_value=row["high"])
        if row["p50_ms"] is not None:
            measures["latency"] = {"value": 1e6 * row["p50_ms"]}
        if row["p99_ms"] is not None:
            measures["latency-p99"] = {"value": 1e6 * row["p99_ms"]}
        if row["instructions"] is not None:
            measures["instructions"] = {"value": row["instructions"]}
        if row["compile"] == "fresh":
            measures["build-time"] = {"value": row["compile_seconds"]}
        if row["host_memory_bytes"] is not None:
            measures["host-memory"] = {"value": row["host_memory_bytes"]}
        metrics[row["id"]] = measures
    return json.dumps(metrics, indent=1, sort_keys=True) + "\n"
