"""The throughput of a case with its interval, as every table and file shows it. Pure functions."""

from __future__ import annotations

import math
from statistics import fmean
from typing import NamedTuple, Optional

from ipubench.plugins.gate.countable import deciding
from ipubench.plugins.gate.metric_verdict import typical
from ipubench.plugins.record import statistics
from ipubench.plugins.record.record import THROUGHPUT, processes_of
from ipubench.plugins.record.structs import Benchmark
from ipubench.plugins.record.verdict import Verdict


class ShownThroughput(NamedTuple):
    """Items per second; None what nobody knows: a single round has no interval."""

    unit: str
    median: float
    spread: Optional[float] = None
    low: Optional[float] = None
    high: Optional[float] = None
    mean: Optional[float] = None
    min: Optional[float] = None
    max: Optional[float] = None


class ShownCompute(NamedTuple):
    """FLOP/s, and their share of the peak; None where they are unknown."""

    achieved: Optional[float] = None
    share: Optional[float] = None


def throughput_of(benchmark: Benchmark) -> ShownThroughput:
    """Return the throughput of a case with its interval and spread.

    Of one process it is the record's own. Of several it is what a comparison shows of those that
    decide, with the 95% interval between them; mean, min and max are of all their rounds.
    """
    if len(processes_of(benchmark)) < 2:
        return _of_own_process(benchmark)
    processes = deciding(benchmark)
    rates = [one.items_per_round / value for one in processes for value in one.seconds]
    each = [statistics.throughput(one.seconds, one.items_per_round, "") for one in processes]
    low, high = each[0].low, each[0].high
    if len(each) > 1:
        low, high = statistics.median_interval([one.median for one in each])
    middle = typical(processes, THROUGHPUT)
    return ShownThroughput(
        unit=benchmark.record.throughput.unit,
        median=middle,
        spread=statistics.spread(middle, low, high),
        low=low,
        high=high,
        mean=fmean(rates),
        min=min(rates),
        max=max(rates),
    )


def shown_throughput(benchmark: Benchmark, verdict: Optional[Verdict]) -> ShownThroughput:
    """Return the throughput that stands beside a verdict: the figure that was compared.

    With the interval of the processes that it is of. It may be of none of the benchmark's: of
    pairs, which have processes of their own. Then nothing but the figure is known.
    """
    found = throughput_of(benchmark)
    if verdict is None or verdict.now is None:
        return found
    elsewhere = verdict.in_turns or verdict.by_cpu_time
    for one in () if elsewhere else (found, _of_own_process(benchmark)):
        if math.isclose(one.median, verdict.now):  # but for what logarithms are rounded by
            return one
    return ShownThroughput(found.unit, verdict.now)


def shown_compute(benchmark: Benchmark, throughput: ShownThroughput) -> ShownCompute:
    """Return the FLOP/s and the share of the peak that a shown throughput means.

    The record has those of the session's own process.
    """
    compute = benchmark.record.compute
    if compute is None:
        return ShownCompute()
    factor = throughput.median / benchmark.record.throughput.median
    found = [None if one is None else factor * one for one in (compute.achieved, compute.share)]
    return ShownCompute(*found)


def _of_own_process(benchmark: Benchmark) -> ShownThroughput:
    """Return what the process of the session found."""
    own, once = benchmark.record.throughput, benchmark.record.rounds.count == 1
    return ShownThroughput(
        unit=own.unit,
        median=own.median,
        spread=None if once else own.spread,
        low=None if once else own.low,
        high=None if once else own.high,
        mean=own.mean,
        min=own.min,
        max=own.max,
    )
