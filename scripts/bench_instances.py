"""Do instances on all cores reach what each of them reaches alone?

    pytest scripts/bench_instances.py

One instance per core runs a network, in turns: each alone while the others wait, then all together.
The rate of all together, which waits for the slowest, over the sum of the rates alone, should be 1.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
from typing import Any, List

import pytest

from ipubench.bench_inference import bench_cnn_tensorflow, bench_cnn_torch
from ipubench.fixtures.case.cases import cases
from ipubench.fixtures.instances.step import InstancesStep
from ipubench.fixtures.machine.output import uncaptured
from ipubench.fixtures.runtimes.step import Step
from ipubench.plugins.measure.rounds import calibrate, timed

TURNS = 21
DATA = ("synthetic", "generated")
CORES = len(os.sched_getaffinity(0))


def together(config: Any, **changes: Any) -> Any:
    """Return a configuration with an instance for each core."""
    return dataclasses.replace(config, instances=CORES, **changes)


@cases(
    *(
        together(bench_cnn_torch.HOST[name])
        for name in ("resnet18", "resnet50", "mobilenet-v3-large")
    ),
    data=DATA,
)
def bench_instances_torch(
    config: Any, request: pytest.FixtureRequest, pytorch: Any, data: Any, instances: Any
) -> None:
    step = instances(pytorch.inference(config.network(), config, config.feed(data)))
    compare(step, config, request)


@cases(
    *(
        together(bench_cnn_tensorflow.HOST[name], micro_batch_size=16)
        for name in ("resnet50", "efficientnet-b0")
    ),
    data=DATA,
)
def bench_instances_tensorflow(
    config: Any, request: pytest.FixtureRequest, tensorflow: Any, data: Any, instances: Any
) -> None:
    network = config.classifier()
    step = instances(tensorflow.validation(network, config, config.feed(data)))
    compare(step, config, request)


def compare(step: Step, config: Any, request: pytest.FixtureRequest) -> None:
    """Print what all instances reach together of the sum of what each reaches alone."""
    if not isinstance(step, InstancesStep):
        # This process is an instance, or there is only one core.
        request.getfixturevalue("meter")(step, items=config.micro_batch_size, unit="images")
        return
    clock = request.getfixturevalue("device").clock
    shares: List[float] = []
    try:
        step.build()
        step.compile()
        step()
        calibrate(step, clock)
        count = step.counted_processes
        for _ in range(TURNS):
            alone = 0.0
            for rank in range(count):
                batches = [step.batches_per_step * (other == rank) for other in range(count)]
                alone += 1 / timed(lambda b=batches: step.instances.order_each("run", b), clock)  # type: ignore[misc]
            shares.append(count / timed(step, clock) / alone)
    finally:
        step.close()
    low, _, high = statistics.quantiles(shares, n=4)
    with uncaptured(request.config):
        print(
            f"\n{config.name}-{config.data}: {count} instances reach "
            f"{statistics.median(shares):.3f} of what they reach alone (quartiles {low:.3f} to "
            f"{high:.3f})",
            end="",
        )
