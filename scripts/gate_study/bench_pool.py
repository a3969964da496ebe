"""Measures one process of the gate study's pool: a case with several levels of extra work.

    pytest scripts/gate_study/bench_pool.py -k "bench_dense and dense-synthetic"

Every level is measured as the suite measures a case: rounds calibrated to the same length, each
after canaries, with nothing else in the process. The levels run in random order. The process writes
one line of type ``pool`` to the run's journal.

In a process of a pair (collect_pairs.py), pair_meter.py measures the cases instead.
"""

from __future__ import annotations

import random
import statistics
import time
from typing import Any, Callable, Dict, Iterator, List

import pytest

from ipubench.bench_inference.bench_cnn_tensorflow import bench_cnn_tensorflow
from ipubench.bench_inference.bench_cnn_torch import bench_cnn_torch
from ipubench.bench_kernels.bench_dense import bench_dense
from ipubench.bench_kernels.bench_grouped_conv import bench_grouped_conv
from ipubench.bench_kernels.bench_gru import bench_gru
from ipubench.bench_kernels.bench_lstm import bench_lstm
from ipubench.bench_kernels.bench_popart_conv import bench_popart_conv
from ipubench.bench_kernels.bench_popart_lstm import bench_popart_lstm
from ipubench.bench_kernels.bench_rnn import bench_rnn
from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.devices.base import Device
from ipubench.fixtures.runtimes.step import Step
from ipubench.plugins.measure import rounds
from ipubench.plugins.measure.base import BatchFacts, CaseRun, StepMeter
from ipubench.plugins.measure.disturbance import STRETCH, Disturbance, is_enough
from ipubench.plugins.measure.rounds import timed
from ipubench.plugins.record import pytest_benchmark_adapter
from scripts.gate_study.extra_work import LEVELS, ExtraWork
from scripts.gate_study.pair_meter import PairMeter

# Pytest collects the suite's functions from this module, so they use this module's meter.
__all__ = [
    "bench_cnn_tensorflow",
    "bench_cnn_torch",
    "bench_dense",
    "bench_grouped_conv",
    "bench_gru",
    "bench_lstm",
    "bench_popart_conv",
    "bench_popart_lstm",
    "bench_rnn",
    "meter",
]

#: Rounds of one level: about one of the five seconds that a case may take.
ROUNDS = 8


class PoolMeter(StepMeter):
    """Replaces the suite's meter: measures one step at every level of extra work."""

    def work_on(self, step: Step, facts: BatchFacts) -> None:
        """Measure, and write one line to the journal."""
        clock = self.device.clock
        self.build(step)
        step.batches_per_step = 1
        step()
        rounds.calibrate(step, clock)
        rounds.warm_up(step, clock)
        assert step.reference.canary is not None
        canary = step.reference.canary()
        rounds.canary_times(canary, clock, 3)
        extra = ExtraWork(clock)
        usual = statistics.median(timed(step, clock) for _ in range(5))
        levels: Dict[str, Any] = {}
        for share in random.sample(LEVELS, len(LEVELS)):
            slowed = extra.after(step, extra.calls(usual, share))
            slowed()
            levels[str(share)] = _rounds(slowed, canary, self.device)
        self.close()
        pytest_benchmark_adapter.leave_out(self.benchmark)
        self.case_run.run.journal.append(
            {
                "type": "pool",
                "case": self.item.nodeid.split("::")[-1],
                "items_per_round": facts.items * step.batches_per_step,
                "unit": facts.unit,
                "time": time.time(),
                "levels": levels,
            }
        )


def _rounds(step: Callable[[], None], canary: Callable[[], None], device: Device) -> Dict[str, Any]:
    """Return the seconds of the rounds, of the canary before each, and the CPU time of others.

    Repeats disturbed rounds as the suite's meter does, so up to three times as many run.
    """
    others = Disturbance.of(device)
    seconds: List[float] = []
    canaries: List[float] = []
    others.read()
    while len(seconds) < ROUNDS or (
        len(seconds) < STRETCH * ROUNDS and len(others.clean(seconds)) < ROUNDS / 2
    ):
        canaries.append(timed(canary, device.clock))
        seconds.append(timed(step, device.clock))
        others.read()
    enough = is_enough(others.clean(seconds), len(seconds), ROUNDS * rounds.TARGET_ROUND_SECONDS)
    return {
        "seconds": seconds,
        "canaries": {device.canary_kind: canaries},
        "contention": others.describe(seconds, enough),
    }


@pytest.fixture
def meter(
    request: pytest.FixtureRequest,
    benchmark: Any,
    ipubench_case: Case,
    ipubench_device: Device,
    ipubench_conditions: Dict[str, Any],
) -> Iterator[StepMeter]:
    """Replace the suite's meter by the study's; the process is tuned in the same way."""
    case_run = CaseRun(request.node, ipubench_case, benchmark, ipubench_device, ipubench_conditions)
    instance = case_run.run.instance
    measuring = PoolMeter(case_run) if instance is None else PairMeter(case_run, instance)
    try:
        yield measuring
    finally:
        measuring.close()
