"""Writes a report in the formats of other tools.

- pytest-benchmark: its own JSON; other readers of it (Bencher's adapter ``python_pytest``,
  github-action-benchmark's tool ``pytest``) show seconds per batch only.
- github-action-benchmark: tool ``customBiggerIsBetter``, a list of name, unit, value, range, extra.
- bencher: Bencher Metric Format, name -> measure -> value, lower_value, upper_value; the built-in
  measures throughput and latency are in operations per second and nanoseconds.
- csv: one row per case.
"""

from __future__ import annotations

import json
from typing import Dict, List

from msgspec.structs import replace

from ipubench.plugins.baseline.format import Document
from ipubench.plugins.record.csv_text import csv_table
from ipubench.plugins.record.record import joules_per_item, with_record
from ipubench.plugins.record.structs import NAMESPACE, as_plain
from ipubench.plugins.record.text import percent, short_number
from ipubench.plugins.results.case_row import CaseRow, compile_seconds_of
from ipubench.plugins.results.columns import CSV
from ipubench.plugins.results.rows import Report
from ipubench.plugins.results.run_facts import UNPROVEN


def csv_with_verdicts(report: Report) -> str:
    """Return one row per case with all key figures and its verdict."""
    rows = ([column.value(row) for column in CSV] for row in report.rows())
    return csv_table([column.csv for column in CSV], rows)


def pytest_benchmark(report: Report) -> str:
    """Return a document with pytest-benchmark's fields, and our records without processes."""
    alone = [with_record(b, replace(b.record, processes=())) for b in report.benchmarks]
    kept = as_plain(Document.of(report.around, alone))
    del kept[NAMESPACE]
    return json.dumps(kept, indent=1, sort_keys=True) + "\n"


def _sound(report: Report) -> List[CaseRow]:
    """Return the rows of credible results, because other tools' files cannot mark doubtful ones."""
    return [
        row
        for row in report.rows()
        if row.benchmark is not None
        and not row.implausible
        and row.kind not in UNPROVEN
        and not row.skipped
    ]


def github_action_benchmark(report: Report) -> str:
    """Return the list that the tool ``customBiggerIsBetter`` reads: throughput by case."""
    entries = []
    for row in _sound(report):
        record, rate, share = row.record, row.rate, row.compute.share
        facts = {
            "latency p50 (ms)": record.latency.p50_ms,
            "latency p99 (ms)": record.latency.p99_ms,
            "compile (s)": compile_seconds_of(record),
            "rounds": record.rounds.count,
            "processes": len(row.processes),
            "instructions a call": record.instructions and record.instructions.per_call,
            "energy of an item (J)": joules_per_item(record),
        }
        lines = [f"{key}: {_shown(value)}" for key, value in facts.items() if value]
        if share is not None:
            lines.append(f"share of peak: {percent(share)}")
        entry = {
            "name": row.id,
            "unit": rate.unit,
            "value": rate.median,
            "extra": "\n".join([*lines, f"device: {record.device.fingerprint}"]),
        }
        if rate.low is not None and rate.high is not None:
            entry["range"] = f"± {short_number((rate.high - rate.low) / 2)}"
        entries.append(entry)
    return json.dumps(entries, indent=1, sort_keys=True) + "\n"


def _shown(value: float) -> str:
    return short_number(value) if isinstance(value, float) else str(value)


def bencher(report: Report) -> str:
    """Return Bencher Metric Format, without the compile time if the compilation was reused."""
    metrics: Dict[str, Dict[str, Dict[str, float]]] = {}
    for row in _sound(report):
        record, rate, energy = row.record, row.rate, joules_per_item(row.record)
        measures = {
            "throughput": {"value": rate.median},
            "latency": {"value": 1e6 * record.latency.p50_ms},
            "latency-p99": {"value": 1e6 * record.latency.p99_ms},
        }
        if rate.low is not None and rate.high is not None:
            measures["throughput"].update(lower_value=rate.low, upper_value=rate.high)
        if record.instructions is not None and record.instructions.per_call is not None:
            measures["instructions"] = {"value": record.instructions.per_call}
        if energy is not None:
            measures["energy"] = {"value": energy}
        if record.compile == "fresh":
            measures["build-time"] = {"value": record.compile_seconds}
        if record.memory.host_peak_rss_bytes:
            measures["host-memory"] = {"value": record.memory.host_peak_rss_bytes}
        metrics[row.id] = measures
    return json.dumps(metrics, indent=1, sort_keys=True) + "\n"
