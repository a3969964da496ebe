"""Figures of a case beside its rounds: latency, and what its loader and its model reach alone."""

from __future__ import annotations

from typing import List, Optional, Sequence

from ipubench.fixtures.runtimes.step import Step
from ipubench.plugins.measure import rounds
from ipubench.plugins.record.record import ONE_BATCH, ONE_BATCH_ROUNDS, SEVERAL_BATCHES
from ipubench.plugins.record.statistics import latency
from ipubench.plugins.record.structs import InputRates, Latency

#: Beside the model, which shares its cores, a loader takes so many times as long at most.
SHARED = 3.0


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

    ``seconds`` are the rounds, of which those that are ``kept`` count; ``warmed_up`` is how many
    values the step reported before them. ``from_throughput``: latency is time over batches, and is
    not measured by itself.
    """
    reported = None if from_throughput else step.latencies()
    if reported:
        return latency(of_rounds(reported[warmed_up:], kept), step.latency_source)
    seconds = of_rounds(seconds, kept)
    if step.batches_per_step == 1:
        return latency(seconds, ONE_BATCH_ROUNDS)
    if from_throughput or not step.calibrated or step.prefetched_batches:
        # An IPU's program always runs this many batches, and workers hand over that many.
        per_batch = [value / step.batches_per_step for value in seconds]
        return latency(per_batch, "rounds over batches per step")
    times, batches = rounds.batch_latencies(step, clock, budget)
    if batches > 1:
        return latency(times, SEVERAL_BATCHES, batches)
    return latency(times, ONE_BATCH)


def of_rounds(values: Sequence[float], kept: Sequence[bool]) -> List[float]:
    """Return the values of the rounds that are kept, of which each has equally many in its turn."""
    each = max(1, len(values) // len(kept))
    last = len(kept) - 1
    return [value for i, value in enumerate(values) if kept[min(i // each, last)]]


def describe_input(
    step: Step, items: float, unit: str, clock: rounds.Clock
) -> Optional[InputRates]:
    """Return what loading and the model reach alone, in items per second; None without workers.

    The lower of the two limits. On a CPU they share the cores, so together they are slower.
    """
    parts = step.loader_and_model()
    if parts is None:
        return None
    ahead = step.prefetched_batches
    loader = rounds.steady_rate(parts[0], clock, ahead)
    # The loader's queue is empty after its turn; the workers fill it while the model warms up.
    most = SHARED * ahead / loader
    model = rounds.steady_rate(parts[1], clock, ahead, most)
    return InputRates(
        unit=f"{unit}/s",
        loader=items * loader,
        model=items * model,
        limit="loader" if loader < model else "model",
    )
