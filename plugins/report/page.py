"""report.html: one file that opens from disk, without a network."""

from __future__ import annotations

import base64
import gzip
import importlib.util
import json
import math
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Dict, List, Sequence, Tuple
from urllib.parse import quote

from ipubench.plugins.baseline.case_row import dig, environment, process_rows
from ipubench.plugins.baseline.rows import (
    Report,
    by_change,
    conclusion,
    counts,
)
from ipubench.plugins.baseline.runs import BAD
from ipubench.plugins.record.files import finite
from ipubench.plugins.record.record import COMPILED, compile_text, record_of
from ipubench.plugins.record.text import minute_of, number_text, share_text
from ipubench.plugins.record.verdict import how_compared
from ipubench.plugins.report import published
from ipubench.plugins.report.markdown import change_text
from ipubench.plugins.report.profiles import as_html

WEB = Path(__file__).with_name("web")
# Of a process; beyond this many every n-th is shown, so that the file stays small.
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
    "build_seconds",
    "compile_seconds",
    "compile",
    "share",
    "achieved_flops",
    "change",
    "change_low",
    "change_high",
    "threshold",
)
FILTERS = (("kind", "Verdict"), ("framework", "Framework"), ("mode", "Mode"), ("data", "Data"))
# Heading, key by which the column sorts, whether it holds numbers. A phone shows the first three.
COLUMNS: Tuple[Tuple[str, str, bool], ...] = (
    ("case", "name", False),
    ("throughput", "throughput", True),
    ("verdict", "kind", False),
    ("change", "change", True),
    ("±", "spread", True),
    ("p50 ms", "p50_ms", True),
    ("p99 ms", "p99_ms", True),
    ("compile s", "compile_seconds", True),
    ("peak", "share", True),
    ("memory MiB", "host_memory_bytes", True),
)


def plotly_is_there() -> bool:
    """Tell whether the charting library can be imported."""
    return importlib.util.find_spec("plotly") is not None


def page(report: Report) -> str:
    """Return the page. Raises ImportError without plotly, whose JavaScript it holds."""
    from plotly.offline import get_plotlyjs

    rows = by_change(report.rows())
    kinds = counts(rows)
    compared = any(row["change"] is not None for row in rows)
    columns = [column for column in COLUMNS if compared or column[1] != "change"]
    template = Template((WEB / "page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(f"ipubench: {conclusion(report, rows)}"),
        style=(WEB / "style.css").read_text(encoding="utf-8"),
        headline=escape(conclusion(report, rows)),
        worst="bad" if report.problems or any(kind in kinds for kind in BAD) else "good",
        problems=_problems(report.problems),
        counts="\n".join(
            f'<li class="{_css(kind)}"><b>{count}</b> {escape(kind)}</li>'
            for kind, count in kinds.items()
        ),
        facts=_facts(_overview(report)),
        how=how_compared(any(row["in_turns"] for row in rows)),
        selects="\n".join(_select(key, label, rows) for key, label in FILTERS),
        head="\n".join(_heading(*column) for column in columns),
        body="\n".join(_line(number, row, columns) for number, row in enumerate(rows)),
        profiles=as_html(rows) + published.as_html(report.document["benchmarks"]),
        environment="\n".join(
            f"<div><h3>{escape(group)}</h3><dl class='facts'>{_facts(values)}</dl></div>"
            for group, values in environment(report.document).items()
            if values
        ),
        data=_embedded({"rows": [_chart_row(row) for row in rows], "details": _details(report)}),
        plotly=_packed(get_plotlyjs()),
        script="\n".join(
            (WEB / name).read_text(encoding="utf-8") for name in ("table.js", "charts.js")
        ),
    )


def _packed(script: str) -> str:
    """Return a script as base64 of gzip, the same for every report."""
    return base64.b64encode(gzip.compress(script.encode(), mtime=0)).decode()


def _problems(problems: Sequence[str]) -> str:
    items = "\n".join(f"<li>{escape(problem)}</li>" for problem in problems)
    return f'<ul class="problems">\n{items}\n</ul>' if problems else ""


def _embedded(value: Any) -> str:
    """Return JSON that cannot end the script element it stands in."""
    text = json.dumps(finite(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _overview(report: Report) -> Dict[str, str]:
    """Return what was measured where and when."""
    groups = environment(report.document)
    facts = {
        "device": dig(groups, "device", "name"),
        "fingerprint": dig(groups, "device", "fingerprint"),
        "git": dig(groups, "code", "git"),
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


def _facts(values: Dict[str, str]) -> str:
    return "\n".join(
        f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in values.items()
    )


def _select(key: str, label: str, rows: Sequence[Dict[str, Any]]) -> str:
    values = sorted({str(row[key]) for row in rows if row[key] is not None})
    options = "".join(f'<option value="{escape(v)}">{escape(v)}</option>' for v in values)
    return (
        f'<label>{escape(label)} <select name="{escape(key)}"><option value="">all</option>'
        f"{options}</select></label>"
    )


def _heading(text: str, key: str, number: bool) -> str:
    kind = ' class="n"' if number else ""
    return (
        f'<th scope="col" data-key="{key}"{kind}><button type="button">{escape(text)}</button></th>'
    )


def _line(number: int, row: Dict[str, Any], columns: Sequence[Tuple[str, str, bool]]) -> str:
    """Return a row of the table, which has its number: HTML does not keep every text as it is."""
    contents = _contents(number, row)
    cells = "".join(
        f'<td data-value="{escape(_sortable(row, key))}" class="{_class(key, is_number)}">'
        f"{contents[key]}</td>"
        for _, key, is_number in columns
    )
    return f'<tr data-row="{number}">{cells}</tr>'


def _class(key: str, is_number: bool) -> str:
    return "name" if key == "name" else "n" if is_number else ""


def _contents(number: int, row: Dict[str, Any]) -> Dict[str, str]:
    """Return the cells of a row as HTML, by the keys of COLUMNS."""
    name = escape(row["name"])
    function = " · ".join(filter(None, (row["function"], row["engine"])))
    if row["throughput"] is not None:
        link = f'<a href="#case={quote(row["id"])}" data-row="{number}">{name}</a>'
    else:
        link = name
    reasons = "".join(
        f'<small class="reason">{escape(reason)}</small>' for reason in row["reasons"]
    )
    verdict = f'<span class="kind {_css(row["kind"])}">{escape(row["kind"])}</span>{reasons}'
    change = change_text(row).partition(" ")
    memory = row["host_memory_bytes"]
    rate = f"{number_text(row['throughput'])} <small>{escape(row['unit'] or '')}</small>"
    above = row["share"] is not None and row["share"] > 1
    return {
        "name": f"{link}<small>{escape(function)}</small>",
        "kind": verdict,
        "change": escape(change[0]) + (f"<small>{escape(change[2])}</small>" if change[2] else ""),
        "throughput": rate,
        "spread": share_text(row["spread"]),
        "p50_ms": number_text(row["p50_ms"]),
        "p99_ms": number_text(row["p99_ms"]),
        "compile_seconds": compile_text(row),
        "share": share_text(row["share"], 0)
        + ("<small>above the peak seen</small>" if above else ""),
        "host_memory_bytes": "" if memory is None else f"{memory / 2**20:,.0f}",
    }


def _css(kind: str) -> str:
    return escape(kind.replace(" ", "-"))


def _sortable(row: Dict[str, Any], key: str) -> str:
    """Return what a column sorts a row by: nothing where the cell has no number."""
    value = row[key]
    if value is None or (key == "compile_seconds" and row["compile"] not in COMPILED):
        return ""
    return str(value)


def _chart_row(row: Dict[str, Any]) -> Dict[str, Any]:
    return {key: row[key] for key in CHART_KEYS}


def _details(report: Report) -> Dict[str, Any]:
    """Return the processes and options of each measured case."""
    found = {}
    for benchmark in report.document["benchmarks"]:
        processes = []
        for process in process_rows(benchmark):
            every = max(1, math.ceil(len(process["rates"]) / MOST_ROUNDS))
            processes.append(
                {
                    **process,
                    "rounds": len(process["rates"]),
                    "every": every,
                    "rates": _thinned(process["rates"], every),
                    "canaries_ms": _thinned(process["canaries_ms"], every),
                }
            )
        options = record_of(benchmark).get("effective_options", {})
        found[benchmark["fullname"]] = {"processes": processes, "options": options}
    return found


def _thinned(values: List[float], every: int) -> List[float]:
    return [float(f"{value:.5g}") for value in values[::every]]
