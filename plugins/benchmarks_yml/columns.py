"""The columns that a benchmarks.yml asks for (``output``): as lines, and as CSV."""

from __future__ import annotations

import csv
import io
from typing import Any, Dict, List, Sequence

from ipubench.plugins.baseline.exports import csv_cell
from ipubench.plugins.benchmarks_yml.entry import ROW
from ipubench.plugins.record.record import record_of
from ipubench.plugins.record.text import short_number


def lines(benchmarks: Sequence[Dict[str, Any]]) -> List[str]:
    """Return a line per command: its columns, and its file where there are several."""
    found = []
    files = {_file(one) for one in benchmarks if "spec" in record_of(one)}
    for benchmark in benchmarks:
        record = record_of(benchmark)
        columns = record.get("spec", {}).get("columns")
        if columns:
            shown = ", ".join(f"{title} {_shown(value)}" for title, value in columns)
            where = f"{_file(benchmark)}: " if len(files) > 1 else ""
            found.append(f"{where}{record['name']}: {shown}")
    return found


def _file(benchmark: Dict[str, Any]) -> str:
    return str(benchmark["fullname"]).split("::")[0]


def csv_text(benchmarks: Sequence[Dict[str, Any]]) -> str:
    """Return a row per command: its file, name and parameters, columns, metrics; '' without any."""
    rows: List[Dict[str, Any]] = []
    for benchmark in benchmarks:
        record = record_of(benchmark)
        facts = record.get("spec")
        if facts:
            names = (benchmark["fullname"], facts["entry"], facts["variant"])
            columns = dict(facts["columns"])
            for name, value in record["counters"].items():
                columns.setdefault(name, value)
            last = (facts["seconds"], facts["git"])
            rows.append({**dict(zip(ROW[:3], names)), **columns, **dict(zip(ROW[3:], last))})
    if not rows:
        return ""
    headings = list(dict.fromkeys(name for row in rows for name in row))
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow([csv_cell(name) for name in headings])
    writer.writerows([csv_cell(row.get(name)) for name in headings] for row in rows)
    return output.getvalue()


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return short_number(value) if isinstance(value, float) else str(value)
