"""Measures latency, and the rates of a case's loader and its model alone."""

from __future__ import annotations

import math
from typing import List, Optional, Sequence

from ipubench.fixtures.runtimes.step import Step, Work, ask
from ipubench.plugins.measure import rounds
from ipubench.plugins.record.record import (
    ONE_BATCH,
    ONE_BATCH_ROUNDS,
    OVER_BATCHES,
    SEVERAL_BATCHES,
)
from ipubench.plugins.record.statistics import latency
from ipubench.plugins.record.structs import InputRates, Latency

#: Together with the model, which shares its cores, a loader takes at most this many times as long.
SHARED = 3.0
#: How often a part is measured, while it is slower alone than both parts together were.
TRIES = 3
#: The least share of the measured rate that each part reaches alone, apart from noise.
LEAST_SHARE = 0.8


def describe_latency(
    step: Step,
    seconds: Sequence[float],
    kept: Sequence[bool],
    warmed_up: int,
    from_throughput: bool,
    clock: rounds.Clock,
    budget: float,
) -> Latency:
    """Return quantiles of seconds per batch, and how they were obtained.

    ``seconds`` are the times of all rounds; only the ``kept`` ones count. ``warmed_up`` is the
    number of values that the step reported before them. ``from_throughput``: compute the latency
    as time over batches, instead of measuring it separately.
    """
    reported = None if from_throughput else (ask(step.latencies) or [])[warmed_up:]
    if reported:
        return latency(of_rounds(reported, kept), step.latency_source)
    seconds = of_rounds(seconds, kept)
    if step.batches_per_step == 1:
        return latency(seconds, ONE_BATCH_ROUNDS)
    if from_throughput or not step.rounds.calibrated or step.loading.prefetched:
        # A call of an IPU's program, and a delivery of workers, always has this many batches.
        per_batch = [value / step.batches_per_step for value in seconds]
        return latency(per_batch, OVER_BATCHES)
    times, batches = rounds.batch_latencies(step, clock, budget)
    if batches > 1:
        return latency(times, SEVERAL_BATCHES, batches)
    return latency(times, ONE_BATCH)


def of_rounds(values: Sequence[float], kept: Sequence[bool]) -> List[float]:
    """Return the values of the rounds that are kept; each round has the same number of values."""
    each = max(1, len(values) // len(kept))
    last = len(kept) - 1
    return [value for i, value in enumerate(values) if kept[min(i // each, last)]]


def describe_input(
    step: Step, items: float, unit: str, clock: rounds.Clock, together: float = 0.0
) -> Optional[InputRates]:
    """Return the rates of the loader and of the model alone, in ``unit``; None without workers.

    The slower one limits the case. On a CPU they share the cores, so together they are slower.
    ``together``: the case's measured rate. None also if a part stays below it: then a disturbance
    was measured.
    """
    parts = ask(step.loading.halves)
    if parts is None:
        return None
    ahead = step.loading.prefetched
    least = LEAST_SHARE * together / items
    loader = _rate(parts[0], least, clock, ahead)
    # This empties the loader's queue; the workers fill it while the model warms up.
    most = SHARED * ahead / loader
    model = _rate(parts[1], least, clock, ahead, most)
    if min(loader, model) < least:
        return None
    return InputRates(
        unit=unit,
        loader=items * loader,
        model=items * model,
        limit="loader" if loader < model else "model",
    )


def _rate(
    part: Work, least: float, clock: rounds.Clock, ahead: float, most: float = math.inf
) -> float:
    """Return the best rate of a few measurements of a part; one that is credible is enough."""
    best = 0.0
    for _ in range(TRIES):
        best = max(best, rounds.steady_rate(part, clock, ahead, most))
        if best >= least:
            break
    return best
