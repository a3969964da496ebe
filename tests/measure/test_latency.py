"""Which of a step's own latencies count."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Optional

import pytest

from ipubench.fixtures.data.feeds import ArrayFeed
from ipubench.fixtures.runtimes.step import Loading, RoundRules, Work, ask
from ipubench.plugins.measure.latency_and_input import (
    describe_input,
    describe_latency,
    of_rounds,
)
from ipubench.plugins.record.record import ONE_BATCH, OVER_BATCHES, SEVERAL_BATCHES
from ipubench.plugins.record.structs import Latency
from tests.support.fake_device import FakeDevice
from tests.support.fake_runtime import FakeStep

QUIET, DISTURBED = [0.010] * 4, [0.500] * 4


class Reporting(FakeStep):
    """A step that reports given latencies."""

    latency_source = "the client"
    reported: Optional[List[float]] = None

    def latencies(self) -> Optional[List[float]]:
        return self.reported


@pytest.fixture
def step() -> Reporting:
    return Reporting.__new__(Reporting)  # nothing runs


def described(step: Any, kept: List[bool], batches: int) -> Latency:
    step.batches_per_step = batches
    return describe_latency(step, [0.04, 2.0, 0.04], kept, 4, False, time.perf_counter, 1.0)


def test_values_of_disturbed_rounds_do_not_count(step: Reporting) -> None:
    step.reported = [9.0] * 4 + QUIET + DISTURBED + QUIET  # after a warm-up
    found = described(step, [True, False, True], 4)
    assert (found.p50_ms, found.p99_ms, found.samples) == (10.0, 10.0, 8)
    assert described(step, [True] * 3, 4).samples == 12


@pytest.mark.parametrize(
    ("change", "from_throughput", "source", "p50_ms", "samples"),
    [
        ({}, False, ONE_BATCH, 20.0, 26),
        ({}, True, OVER_BATCHES, 40.0, 3),
        ({"rounds": RoundRules(calibrated=False)}, False, OVER_BATCHES, 40.0, 3),
        ({"loading": Loading(2)}, False, OVER_BATCHES, 40.0, 3),
    ],
)
def test_batches_are_timed_alone_if_a_call_can_run_one(
    change: Dict[str, Any], from_throughput: bool, source: str, p50_ms: float, samples: int
) -> None:
    step = FakeStep(FakeDevice(0), ArrayFeed("synthetic", ()), 0.02)
    vars(step).update(batches_per_step=5, **change)
    clock, rounds = step.device.clock, [0.2, 0.2, 0.2]
    found = describe_latency(step, rounds, [True] * 3, 0, from_throughput, clock, 5.1)
    assert (found.source, found.samples) == (source, samples)
    assert found.p50_ms == pytest.approx(p50_ms)


@pytest.mark.parametrize(("call", "source"), [(5e-8, SEVERAL_BATCHES), (1e-5, ONE_BATCH)])
def test_the_timer_is_not_part_of_the_latency_of_short_calls(call: float, source: str) -> None:
    step = FakeStep(FakeDevice(0), ArrayFeed("synthetic", ()), call)
    step.batches_per_step = 1 << 20

    def clock() -> float:
        step.device.clock.advance(1e-7)  # the time of reading it
        return step.device.clock()

    found = describe_latency(step, [0.1] * 3, [True] * 3, 0, False, clock, 1.0)
    assert (found.source, found.samples) == (source, 200)
    assert found.p50_ms == pytest.approx(1000 * call, rel=0.03)
    assert step.batches_per_step == 1 << 20


@pytest.mark.parametrize(("loading", "limit"), [(0.01, "model"), (0.1, "loader")])
def test_the_slower_of_loader_and_model_limits(loading: float, limit: str) -> None:
    step = FakeStep(FakeDevice(0), ArrayFeed("real", ()), 0.02, loader_seconds=loading)
    found = describe_input(step, 8, "images/s", step.device.clock)
    assert found is not None
    assert (found.unit, found.limit) == ("images/s", limit)
    assert found.loader == pytest.approx(8 / loading)
    assert found.model == pytest.approx(400)


@pytest.mark.parametrize(("slow_runs", "model"), [(1, 400.0), (100, None)])
def test_a_part_that_is_slower_alone_than_together_is_measured_again(
    slow_runs: int, model: Optional[float]
) -> None:
    step = FakeStep(FakeDevice(0), ArrayFeed("real", ()), 0.02, loader_seconds=0.01)
    parts = ask(step.loading.halves)
    assert parts is not None
    slow = iter([1.0] * slow_runs)

    def run() -> None:
        step.device.clock.advance(next(slow, 0.0))
        parts[1].run()

    slowed = (parts[0], Work(run, parts[1].amount))
    step.loading = Loading(halves=lambda: slowed)
    found = describe_input(step, 8, "images/s", step.device.clock, 390.0)
    assert model == (None if found is None else pytest.approx(found.model))


@pytest.mark.parametrize(
    ("values", "kept", "found"),
    [
        ([1, 2, 3], [True, False, True], [1, 3]),
        ([1, 2, 3, 4, 5, 6], [False, True, False], [3, 4]),
        ([1, 2, 3, 4, 5, 6, 7], [True, False, True], [1, 2, 5, 6, 7]),
        ([1, 2], [True, False, True], [1]),
    ],
)
def test_each_round_has_the_same_number_of_values(
    values: List[float], kept: List[bool], found: List[float]
) -> None:
    assert of_rounds(values, kept) == found
