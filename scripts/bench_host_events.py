"""What do log lines and checkpoints cost? Throughput against their number in an epoch.

    pytest scripts/bench_host_events.py

The same training of cifar_resnet8 with different host events, in one process: in turns each runs an
epoch of weight updates, in as many device calls as its events need. A turn compares all of them
with the run that has one log line an epoch, so that a drift of the machine hits both sides alike.
"""

from __future__ import annotations

import dataclasses
import random
import statistics
from fractions import Fraction
from typing import Any, Dict, List, Tuple

import pytest

from ipubench.bench_training.bench_application import LOGS
from ipubench.fixtures.case.cases import cases
from ipubench.fixtures.machine.output import uncaptured
from ipubench.plugins.measure.rounds import timed

TURNS = 15
UPDATES = LOGS["resnet8_test"].program.updates_per_epoch
BASE = (1, 0)
#: Log lines and checkpoints per epoch.
EVENTS = (BASE, (4, 0), (16, 0), (32, 0), (1, 1), (32, 32))


@cases(LOGS["resnet8_test"], data=("synthetic", "generated"))
def bench_host_events(
    config: Any, request: pytest.FixtureRequest, tensorflow: Any, data: Any
) -> None:
    clock = request.getfixturevalue("device").clock
    steps = {events: built(config, events, tensorflow, data) for events in EVENTS}
    images = config.batches.global_batch_size * UPDATES
    seconds: Dict[Tuple[int, int], List[float]] = {events: [] for events in EVENTS}
    order = random.Random(0)  # noqa: S311  order
    try:
        for events in EVENTS:
            epoch(steps[events])
        for _ in range(TURNS):
            for events in order.sample(EVENTS, len(EVENTS)):
                seconds[events].append(timed(lambda e=events: epoch(steps[e]), clock))  # type: ignore[misc]
    finally:
        for step in steps.values():
            step.close()
    lines = [f"{config.name}-{config.data}, {TURNS} turns: logs and checkpoints per epoch"]
    for events in EVENTS:
        ratios = [base / own for base, own in zip(seconds[BASE], seconds[events])]
        low, middle, high = statistics.quantiles(ratios, n=4)
        lines.append(
            f"  {events[0]:2} {events[1]:2}: {steps[events].batches_per_step:2} updates a call, "
            f"{images / statistics.median(seconds[events]):6.0f} images/s, {middle:.3f} of one log "
            f"line's rate (quartiles {low:.3f} to {high:.3f})"
        )
    with uncaptured(request.config):
        print("\n" + "\n".join(lines), end="")


def built(config: Any, events: Tuple[int, int], tensorflow: Any, data: Any) -> Any:
    """Return a compiled step with so many log lines and checkpoints in an epoch."""
    logs, checkpoints = map(Fraction, events)
    changed = dataclasses.replace(config, logs_per_epoch=logs, ckpts_per_epoch=checkpoints)
    step = tensorflow.application(
        changed.classifier(),
        changed.recipe,
        changed,
        changed.feed(data),
        changed.validation_feed(data),
    )
    step.build()
    step.compile()
    return step


def epoch(step: Any) -> None:
    """Run the calls of one epoch, with the events that they have."""
    for _ in range(UPDATES // step.batches_per_step):
        step()
