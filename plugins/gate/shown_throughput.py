"""The throughput of a case and its interval, as tables and files show it. Pure functions."""

from __future__ import annotations

import math
from statistics import fmean
from typing import NamedTuple, Optional

from ipubench.plugins.gate.countable import shown_processes
from ipubench.plugins.gate.metric_verdict import typical
from ipubench.plugins.record import statistics
from ipubench.plugins.record.record import THROUGHPUT, processes_of
from ipubench.plugins.record.structs import Benchmark
from ipubench.plugins.record.verdict import Verdict


class ShownThroughput(NamedTuple):
    """Items per second. A single round has no interval, so those fields are None."""

    unit: str
    median: float
    spread: Optional[float] = None
    low: Optional[float] = None
    high: Optional[float] = None
    mean: Optional[float] = None
    min: Optional[float] = None
    max: Optional[float] = None


class ShownCompute(NamedTuple):
    """FLOP/s, and their share of the peak; None if unknown."""

    achieved: Optional[float] = None
    share: Optional[float] = None


def throughput_of(benchmark: Benchmark) -> ShownThroughput:
    """Return the throughput of a case with its interval and spread.

    With one process, these are the record's own values. With several, the median is the one that
    a comparison shows, with the 95% interval between the processes that decide; mean, min and max
    cover all their rounds.
    """
    if len(processes_of(benchmark)) < 2:
        return _of_own_process(benchmark)
    processes = shown_processes(benchmark)
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
    """Return the throughput to show next to a verdict: the value that was compared.

    The interval is that of the processes behind the value. Pairs have other processes than the
    benchmark; then the median is all that is known.
    """
    found = throughput_of(benchmark)
    if verdict is None or verdict.now is None:
        return found
    elsewhere = verdict.in_turns or verdict.by_cpu_time
    for one in () if elsewhere else (found, _of_own_process(benchmark)):
        if math.isclose(one.median, verdict.now):  # equal, except for rounding
            return one
    return ShownThroughput(found.unit, verdict.now)


def shown_compute(benchmark: Benchmark, throughput: ShownThroughput) -> ShownCompute:
    """Return the FLOP/s and the share of the peak at this throughput.

    A share above 1 is not shown: shortcuts such as Winograd's convolution do fewer operations than
    are counted. Both figures are scaled from the record, which has those of the session's own
    process.
    """
    compute = benchmark.record.compute
    if compute is None:
        return ShownCompute()
    factor = throughput.median / benchmark.record.throughput.median
    achieved, share = (
        None if one is None else factor * one for one in (compute.achieved, compute.share)
    )
    return ShownCompute(achieved, None if share is not None and share > 1 else share)


def _of_own_process(benchmark: Benchmark) -> ShownThroughput:
    """Return the throughput of the session's own process."""
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
