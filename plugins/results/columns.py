"""The columns of all tables of cases: the terminal's, summary.md, report.html and results.csv.

A column is declared once. Each table for people names its columns, in its order.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, TypeVar, Union

from ipubench.plugins.record.count_text import instructions_text
from ipubench.plugins.record.record import (
    COMPILED,
    REUSED,
    compile_text,
    is_timed,
    joules_per_item,
    ran_by,
    text_of,
)
from ipubench.plugins.record.structs import Compute, Record
from ipubench.plugins.record.text import (
    energy_text,
    minute,
    percent,
    rate_text,
    share_text,
    time_text,
)
from ipubench.plugins.record.verdict import COMPARED, interval_text
from ipubench.plugins.results.case_row import (
    CaseRow,
    batch_size_of,
    canary_ms_of,
    compile_seconds_of,
    framework_name,
    instances_of,
    times_text,
)
from ipubench.plugins.results.next_step import next_step
from ipubench.plugins.results.run_facts import MEASURED

Found = TypeVar("Found")
Cell = Union[None, bool, int, float, str, Sequence[str]]
#: Texts of a figure that is unknown.
EMPTY = ("", "-")


class Column(NamedTuple):
    """A column: a case's figure, None if unknown, and how tables for people show it."""

    name: str
    figure: Callable[[CaseRow], Cell]
    #: Its heading in results.csv, with the figure's unit; '' if it is not there.
    csv: str = ""
    #: Its heading in tables for people, and the figure as text.
    heading: str = ""
    show: Callable[[Any], str] = str
    #: Whether only cases with a result have it, and whether only timed ones show it.
    measured: bool = True
    timed: bool = False
    #: The text, if it takes more than the figure; and what follows it if there is room.
    words: Optional[Callable[[CaseRow], str]] = None
    note: Optional[Callable[[CaseRow], str]] = None
    #: What a line below a table calls it, if all rows share a text that is no figure.
    fact: str = ""

    def value(self, row: CaseRow) -> Cell:
        """Return a case's figure."""
        return None if self.measured and row.benchmark is None else self.figure(row)

    def texts(self, row: CaseRow) -> Tuple[str, str]:
        """Return a case's figure as text, '' if it is unknown, and what follows it."""
        value = self.value(row)
        unknown = value is None or (self.timed and not is_timed(row.record))
        text = "" if unknown else self.show(value)
        if self.words is not None and row.benchmark is not None:
            text = self.words(row)
        return text, self.note(row) if text and self.note is not None else ""


def _milliseconds(value: float) -> str:
    return time_text(value / 1000)


def _mebibytes(value: int) -> str:
    return f"{value / 2**20:,.0f}"


def _change(value: float) -> str:
    return percent(value, sign=True)


def _whole_percent(value: float) -> str:
    return percent(value, 0)


def _interval(row: CaseRow) -> str:
    text = interval_text(row.verdict.low, row.verdict.high)
    return f"({text})" if text else ""


def _verdict(kind: str) -> str:
    """Return a verdict as text; '' for a case that was only measured."""
    return "" if kind == MEASURED else kind


def _of(part: Optional[Found], figure: Callable[[Found], Cell]) -> Cell:
    return None if part is None else figure(part)


def _compute(row: CaseRow) -> Compute:
    return row.record.compute or Compute(None)


def _build_seconds(record: Record) -> Optional[float]:
    return record.build_seconds if record.compile in (*COMPILED, REUSED) else None


_NAMES = (
    Column("id", lambda row: row.id, "case"),
    Column("name", lambda row: row.name, "name", "case"),
    Column("function", lambda row: row.function, "function"),
)
# Throughput is in items per second; the column `unit` names them.
_RESULT = (
    Column("network", lambda row: text_of(row.record.config, "name"), "network"),
    Column("framework", lambda row: framework_name(row.function, row.record), "framework"),
    Column("mode", lambda row: text_of(row.record.config, "mode"), "mode"),
    Column("data", lambda row: text_of(row.record.config, "data"), "data"),
    Column("batch_size", lambda row: batch_size_of(row.record), "batch size"),
    Column("instances", lambda row: instances_of(row.record), "instances"),
    Column("precision", lambda row: text_of(row.record.effective, "precision"), "precision"),
    Column("engine", lambda row: ran_by(row.record), "engine", "engine", fact="engine"),
    Column("unit", lambda row: row.rate.unit, "unit", "unit"),
    Column(
        "throughput",
        lambda row: row.rate.median,
        "throughput (items/s)",
        "throughput",
        rate_text,
        timed=True,
        note=lambda row: row.rate.unit,
    ),
    Column("low", lambda row: row.rate.low, "throughput low (items/s)"),
    Column("high", lambda row: row.rate.high, "throughput high (items/s)"),
    Column("mean", lambda row: row.rate.mean, "throughput mean (items/s)"),
    Column("min", lambda row: row.rate.min, "throughput min (items/s)"),
    Column("max", lambda row: row.rate.max, "throughput max (items/s)"),
    Column("ratio", lambda row: _of(row.ratio, lambda one: one.value), "", "ratio", times_text),
    Column("ratio_interval", lambda row: _of(row.ratio, lambda one: one.interval), "", "ratio 95%"),
    Column("spread", lambda row: row.rate.spread, "throughput spread (1)", "±", share_text),
    Column(
        "instructions",
        lambda row: _of(row.record.instructions, lambda found: found.per_call),
        "instructions (1/call)",
        "instr",
        words=lambda row: instructions_text(row.record.instructions, row.verdict),
    ),
    Column(
        "energy", lambda row: joules_per_item(row.record), "energy (J/item)", "J/item", energy_text
    ),
    Column(
        "energy_source",
        lambda row: _of(row.record.energy, lambda found: found.source),
        "energy source",
    ),
    Column(
        "p50_ms",
        lambda row: row.record.latency.p50_ms,
        "latency p50 (ms)",
        "p50",
        _milliseconds,
        timed=True,
    ),
    Column("p90_ms", lambda row: row.record.latency.p90_ms, "latency p90 (ms)"),
    Column(
        "p99_ms",
        lambda row: row.record.latency.p99_ms,
        "latency p99 (ms)",
        "p99",
        _milliseconds,
        timed=True,
    ),
    Column("latency_samples", lambda row: row.record.latency.samples, "latency samples"),
    Column("latency_source", lambda row: row.record.latency.source, "latency source"),
    Column("build_seconds", lambda row: _build_seconds(row.record), "build (s)"),
    Column(
        "compile_seconds",
        lambda row: compile_seconds_of(row.record),
        "compile (s)",
        "compile s",
        words=lambda row: compile_text(row.record.compile, row.record.compile_seconds),
        fact="compilation",
    ),
    Column("compile", lambda row: row.record.compile, "compile"),
    Column(
        "first_step_seconds", lambda row: row.record.first_step_seconds or None, "first step (s)"
    ),
    Column("rounds", lambda row: row.record.rounds.count, "rounds"),
    Column("batches_per_step", lambda row: row.record.rounds.batches_per_step, "batches per step"),
    Column("stopped_by", lambda row: row.record.rounds.stopped_by, "stopped by"),
    Column("processes", lambda row: len(row.processes), "processes", "processes"),
    Column("canary_ms", lambda row: canary_ms_of(row.processes), "canary (ms)"),
    Column(
        "host_memory_bytes",
        lambda row: row.record.memory.host_peak_rss_bytes or None,
        "host memory peak (bytes)",
        "memory MiB",
        _mebibytes,
    ),
    Column(
        "device_memory_bytes",
        lambda row: row.record.memory.device_peak_bytes,
        "device memory peak (bytes)",
    ),
    Column("flops_per_item", lambda row: _compute(row).flops_per_item, "work (FLOP/item)"),
    Column("achieved_flops", lambda row: row.compute.achieved, "achieved (FLOP/s)"),
    Column("peak_flops", lambda row: _compute(row).peak, "peak (FLOP/s)"),
    Column("share", lambda row: row.compute.share, "share of peak (1)", "peak", _whole_percent),
    Column(
        "loader",
        lambda row: _of(row.record.input, lambda found: found.loader),
        "loader alone (items/s)",
    ),
    Column(
        "model_alone",
        lambda row: _of(row.record.input, lambda found: found.model),
        "model alone (items/s)",
    ),
    Column("implausible", lambda row: row.implausible, "implausible", measured=False),
    Column("device", lambda row: row.record.device.name, "device"),
    Column("fingerprint", lambda row: row.record.device.fingerprint, "fingerprint"),
    Column("allocator", lambda row: text_of(row.record.conditions, "allocator"), "allocator"),
    Column("config_hash", lambda row: row.record.config_hash, "configuration"),
    Column("git", lambda row: row.record.git, "git"),
    Column("time", lambda row: row.record.time, "time (UTC)", "measured (UTC)", minute),
    Column(
        "weight_bytes_per_item",
        lambda row: _compute(row).weight_bytes_per_item,
        "weights (bytes/item)",
    ),
    Column("peak_bytes", lambda row: _compute(row).copy_peak_bytes_per_s, "copy peak (bytes/s)"),
    Column("series", lambda row: row.series),
)
_VERDICT = (
    Column("kind", lambda row: row.kind, "verdict", "verdict", show=_verdict),
    Column("before", lambda row: row.verdict.before, "before (items/s)", "before", rate_text),
    Column("now", lambda row: row.verdict.now, "now (items/s)", "now", rate_text),
    Column(
        "change", lambda row: row.verdict.change, "change (1)", "change", _change, note=_interval
    ),
    Column("change_low", lambda row: row.verdict.low, "change low (1)"),
    Column("change_high", lambda row: row.verdict.high, "change high (1)"),
    Column(
        "interval", lambda row: interval_text(row.verdict.low, row.verdict.high), "", "interval"
    ),
    Column("threshold", lambda row: row.verdict.threshold, "gate (1)"),
    Column("allowed", lambda row: row.verdict.allowed, "allowed (1)"),
    Column("metric", lambda row: row.verdict.metric if row.kind in COMPARED else "", "decided by"),
    Column("processes_now", lambda row: row.verdict.processes or None, "processes now"),
    Column(
        "processes_before", lambda row: row.verdict.processes_before or None, "processes before"
    ),
    Column("reasons", lambda row: row.reasons, "reasons"),
    Column("next_step", lambda row: next_step(row).text, "next step"),
)
COLUMNS: Dict[str, Column] = {
    column.name: column
    for column in (
        *(column._replace(measured=False) for column in _NAMES),
        *_RESULT,
        *(column._replace(measured=False) for column in _VERDICT),
    )
}


def _named(text: str) -> Sequence[Column]:
    return [COLUMNS[name] for name in text.split()]


#: The columns of results.csv and of ``ipubench.load``.
CSV = [column for column in COLUMNS.values() if column.csv]
# Those of other tables, most after a column with the case's name.
TERMINAL = _named(
    "before throughput ratio ratio_interval instructions engine spread p50_ms p99_ms energy "
    "compile_seconds share kind change interval"
)
#: A narrow terminal lacks these, in this order.
GIVE_WAY = _named(
    "interval compile_seconds share p99_ms p50_ms ratio_interval spread before engine energy "
    "instructions"
)
SUMMARY = _named(
    "throughput instructions engine spread p50_ms p99_ms energy compile_seconds share change kind"
)
PAGE = _named(
    "name change before throughput kind instructions spread p50_ms p99_ms energy compile_seconds "
    "share host_memory_bytes"
)
GROUP = _named("throughput ratio ratio_interval")
#: The entries of a stored file, and the difference of two files.
STORED = _named("throughput unit spread processes time")
DIFFERENCE = _named("before now change interval kind")
#: Those that the page's charts and filters use.
CHARTS = _named(
    "id name function framework mode data kind batch_size series unit throughput low high p50_ms "
    "p90_ms p99_ms achieved_flops peak_flops peak_bytes flops_per_item weight_bytes_per_item "
    "change change_low change_high threshold"
)


def texts_of(columns: Sequence[Column], rows: Sequence[CaseRow]) -> List[Sequence[str]]:
    """Return the headings, and below them the name of each case and its texts."""
    headings = ("case", *(column.heading for column in columns))
    cells = [(row.name, *(column.texts(row)[0] or "-" for column in columns)) for row in rows]
    return [headings, *cells]


def shown_columns(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> List[int]:
    """Return the columns that are not empty in all rows and not a fact that all rows share.

    ``rows`` have the texts of each case.
    """
    shared = _shared(columns, rows)
    return [
        index
        for index, column in enumerate(columns)
        if column.name not in shared and any(row[index] not in EMPTY for row in rows)
    ]


def shared_line(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """Return a line with the facts that all rows share, or ''."""
    facts = [f"{COLUMNS[name].fact} {text}" for name, text in _shared(columns, rows).items()]
    return f"all cases: {', '.join(facts)}" if facts else ""


def _shared(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Dict[str, str]:
    """Return the facts that all of two or more rows share: column -> text."""
    return {
        column.name: texts[0]
        for column, *texts in zip(columns, *rows)
        if column.fact
        and len(texts) > 1
        and len(set(texts)) == 1
        and texts[0] not in EMPTY
        and not texts[0][0].isdigit()
    }
