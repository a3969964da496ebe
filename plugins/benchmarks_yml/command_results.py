"""Reads a command's results: rounds for the statistics, metrics, derived values and columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean
from typing import Dict, List, Sequence, Tuple

from ipubench.fixtures.case.masking import mask_value
from ipubench.plugins.benchmarks_yml import template
from ipubench.plugins.benchmarks_yml.cases import SpecConfig
from ipubench.plugins.benchmarks_yml.command import Ran
from ipubench.plugins.benchmarks_yml.entry import ROW, Entry
from ipubench.plugins.benchmarks_yml.metrics import (
    LATENCY,
    THROUGHPUT,
    Metric,
    MetricError,
    search,
)
from ipubench.plugins.record.csv_text import csv_table
from ipubench.plugins.record.record import LEAST_AMOUNT, MOST_AMOUNT
from ipubench.plugins.record.structs import Benchmark, Facts, Json, SpecMetric
from ipubench.plugins.record.text import finite_number, short_number


@dataclass
class CommandResults:
    """The figures of one process."""

    #: Seconds of the only round, and its unit: an item, a call, or a run.
    rounds: List[float]
    unit: str
    source: str  # of the latency
    latencies: List[float]  # seconds
    #: Metric -> its figure, and metric -> the matched values.
    figures: Dict[str, float] = field(default_factory=dict)
    values: Dict[str, List[float]] = field(default_factory=dict)
    derived: Dict[str, float] = field(default_factory=dict)
    copies: int = 1


def results_of(entry: Entry, config: SpecConfig, ran: Ran) -> CommandResults:
    """Read the results from a command's output. Raises MetricError."""
    copies = template.copies(ran.arguments)
    found = search(entry.metrics, (ran.stdout, ran.stderr))
    kept: Dict[str, List[float]] = {}
    figures: Dict[str, float] = {}
    values: Dict[str, List[float]] = {}
    for metric in entry.metrics:
        factor = copies if metric.name == THROUGHPUT else 1
        values[metric.name] = metric.values(found[metric.name], factor, config.latency_seconds)
        kept[metric.name] = metric.kept(values[metric.name], config.skip_by)
        try:
            figures[metric.name] = fmean(kept[metric.name])
        except OverflowError:
            raise MetricError(f"{metric.name}: the values that matched have no mean") from None
    derived = _derived(entry, config, figures)
    kept.update({name: [derived[name]] for name in (THROUGHPUT, LATENCY) if name in derived})
    rounds, unit = _rounds(entry, config, kept, ran)
    latencies, source = rounds, "seconds per unit of the throughput"
    if LATENCY in kept:
        latencies = [value * config.latency_seconds for value in kept[LATENCY]]
        source = "the command"
    return CommandResults(
        rounds,
        unit,
        source,
        latencies,
        figures,
        values,
        derived,
        copies,
    )


def _rounds(
    entry: Entry, config: SpecConfig, kept: Dict[str, List[float]], ran: Ran
) -> Tuple[List[float], str]:
    """Return the round's seconds for the gate, and its unit in the plural."""
    for name in (THROUGHPUT, LATENCY):
        found = "was derived" if name in entry.derived else "matched"
        for value in kept.get(name, ()):
            if value <= 0:
                raise MetricError(f"{name}: {value} {found}, which is not above zero")
            if not LEAST_AMOUNT <= value <= MOST_AMOUNT:
                raise MetricError(f"{name}: {value} {found}, which no {name} can be")
    # A single round: the table, the gate and the columns have the figure of the reduction.
    if THROUGHPUT in kept:
        return [1 / fmean(kept[THROUGHPUT])], entry.unit
    if LATENCY in kept:
        return [fmean(kept[LATENCY]) * config.latency_seconds], "calls"
    return [ran.seconds], "runs"


def _derived(entry: Entry, config: SpecConfig, figures: Dict[str, float]) -> Dict[str, float]:
    # Expressions can use only parameters that are numbers.
    numbers = {name: finite_number(text) for name, text in config.parameters}
    known = {name: value for name, value in numbers.items() if value is not None}
    known.update(figures)
    found: Dict[str, float] = {}
    for name, expression in entry.derived.items():
        try:
            found[name] = known[name] = expression.value(known)
        except ValueError as error:
            raise MetricError(f"{name}: {error}") from None
    return found


def columns(entry: Entry, config: SpecConfig, results: CommandResults) -> List[Tuple[str, Json]]:
    """Return the entry's columns as (title, value); without an ``output``, all figures."""
    parameters = {name: mask_value(name, text) for name, text in config.parameters}
    figures = {**results.figures, **results.derived}
    wanted: Sequence[Tuple[str, str]] = entry.output or [(name, name) for name in figures]
    numbers = {name: name for _, name in wanted if finite_number(name) is not None}
    known: Facts = {**numbers, **parameters, **figures}
    return [(title, known.get(name)) for title, name in wanted]


def described(metric: Metric, results: CommandResults) -> SpecMetric:
    """Return a metric for the record."""
    name = metric.name
    return SpecMetric(metric.reduction, results.figures[name], results.values[name])


def column_lines(benchmarks: Sequence[Benchmark]) -> List[str]:
    """Return a line per command: its columns, and its file if there are several."""
    found = []
    commands = [(one, one.record.spec) for one in benchmarks]
    files = {_file(one) for one, spec in commands if spec is not None}
    for benchmark, spec in commands:
        if spec is not None and spec.columns:
            shown = ", ".join(f"{title} {_shown(value)}" for title, value in spec.columns)
            where = f"{_file(benchmark)}: " if len(files) > 1 else ""
            found.append(f"{where}{benchmark.record.name}: {shown}")
            several = [
                f"{name} is the {metric.reduction} ({len(metric.values)} values, "
                f"{short_number(min(metric.values))} to {short_number(max(metric.values))})"
                for name, metric in spec.metrics.items()
                if len(metric.values) > 1
            ]
            found += [f"  several matched: {', '.join(several)}"] if several else []
    return found


def _file(benchmark: Benchmark) -> str:
    return benchmark.fullname.split("::")[0]


def csv_text(benchmarks: Sequence[Benchmark]) -> str:
    """Return a CSV table with a row per command; '' if there is none."""
    rows: List[Facts] = []
    for benchmark in benchmarks:
        record = benchmark.record
        spec = record.spec
        if spec is not None:
            names = (benchmark.fullname, spec.entry, spec.variant)
            columns = dict(spec.columns)
            for name, value in record.counters.items():
                columns.setdefault(name, value)
            last = (spec.seconds, spec.git)
            rows.append({**dict(zip(ROW[:3], names)), **columns, **dict(zip(ROW[3:], last))})
    if not rows:
        return ""
    headings = list(dict.fromkeys(name for row in rows for name in row))
    return csv_table(headings, [[row.get(name) for name in headings] for row in rows])


def _shown(value: Json) -> str:
    if value is None:
        return "-"
    return short_number(value) if isinstance(value, float) else str(value)
