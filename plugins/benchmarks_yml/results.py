"""What a run of a command comes to: rounds for the statistics, metrics, derived values, columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Sequence, Tuple

from ipubench.plugins.benchmarks_yml import template
from ipubench.plugins.benchmarks_yml.cases import SpecConfig
from ipubench.plugins.benchmarks_yml.command import Ran
from ipubench.plugins.benchmarks_yml.entry import Entry
from ipubench.plugins.benchmarks_yml.metrics import (
    LATENCY,
    THROUGHPUT,
    Metric,
    MetricError,
    mean,
    search,
)


@dataclass
class CommandResults:
    """The figures of one process."""

    #: Seconds of each round, and what one round is: an item, a call, or the whole run.
    rounds: List[float]
    unit: str
    source: str  # of the latency
    latencies: List[float]  # seconds
    #: Metric -> its figure; and the values that it is made of.
    figures: Dict[str, float] = field(default_factory=dict)
    values: Dict[str, List[float]] = field(default_factory=dict)
    derived: Dict[str, float] = field(default_factory=dict)
    copies: int = 1


# No rate and no time is beyond these; sums and squares of what is within are finite.
LEAST, MOST = 1e-100, 1e100


def results_of(entry: Entry, config: SpecConfig, ran: Ran) -> CommandResults:
    """Read what a command printed. Raises MetricError."""
    copies = template.copies(ran.words)
    found = search(entry.metrics, (ran.stdout, ran.stderr))
    kept: Dict[str, List[float]] = {}
    figures: Dict[str, float] = {}
    values: Dict[str, List[float]] = {}
    for metric in entry.metrics:
        factor = copies if metric.name == THROUGHPUT else 1
        values[metric.name] = metric.values(found[metric.name], factor)
        kept[metric.name] = metric.kept(values[metric.name], config.skip_by)
        try:
            figures[metric.name] = mean(kept[metric.name])
        except OverflowError:
            raise MetricError(f"{metric.name}: the values that matched have no mean") from None
    rounds, unit = _rounds(entry, kept, ran)
    latencies, source = rounds, "seconds of one of what the throughput counts"
    if LATENCY in kept:
        latencies = [value * entry.latency_seconds for value in kept[LATENCY]]
        source = "the command"
    return CommandResults(
        rounds,
        unit,
        source,
        latencies,
        figures,
        values,
        _derived(entry, config, figures),
        copies,
    )


def _rounds(entry: Entry, kept: Dict[str, List[float]], ran: Ran) -> Tuple[List[float], str]:
    """Return the seconds that the gate compares, and the plural of what each is the time of."""
    for name in (THROUGHPUT, LATENCY):
        for value in kept.get(name, ()):
            if value <= 0:
                raise MetricError(f"{name}: {value} matched, and it is above zero")
            if not LEAST <= value <= MOST:
                raise MetricError(f"{name}: {value} matched, which no {name} can be")
    if THROUGHPUT in kept:
        return [1 / value for value in kept[THROUGHPUT]], entry.unit
    if LATENCY in kept:
        return [value * entry.latency_seconds for value in kept[LATENCY]], "calls"
    return [ran.seconds], "runs"


def _derived(entry: Entry, config: SpecConfig, figures: Dict[str, float]) -> Dict[str, float]:
    known = dict(figures)
    for name, text in config.parameters:
        try:
            known.setdefault(name, float(text))
        except ValueError:
            continue  # a word, which no expression can use
    found: Dict[str, float] = {}
    for name, expression in entry.derived.items():
        try:
            found[name] = known[name] = expression.value(known)
        except ValueError as error:
            raise MetricError(f"{name}: {error}") from None
    return found


def columns(entry: Entry, config: SpecConfig, results: CommandResults) -> List[Tuple[str, Any]]:
    """Return the columns that the entry asks for as (title, value), without any all metrics."""
    known: Dict[str, Any] = {**dict(config.parameters), **results.figures, **results.derived}
    wanted: Sequence[Tuple[str, str]] = entry.output or [
        (name, name) for name in [*results.figures, *results.derived]
    ]
    return [(title, known.get(name)) for title, name in wanted]


def described(metric: Metric, results: CommandResults) -> Dict[str, Any]:
    """Return a metric for the record."""
    return {
        "reduction": metric.reduction,
        "value": results.figures[metric.name],
        "values": results.values[metric.name],
    }
