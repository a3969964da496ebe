"""The measuring loop with a fake clock, so every time is exact."""

from __future__ import annotations

import math
from typing import Any, List, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.data.feeds import ArrayFeed
from ipubench.fixtures.runtimes.step import Loading, RoundRules, Work, ask
from ipubench.plugins.measure import rounds as measure
from ipubench.plugins.measure.rounds import Limits, Rounds, stop_reason
from ipubench.plugins.record.pytest_benchmark_adapter import EnoughRounds
from tests.support.fake_device import FakeDevice
from tests.support.fake_runtime import FakeStep


def fake_step(batch_seconds: float, **options: Any) -> FakeStep:
    return FakeStep(FakeDevice(0), ArrayFeed("synthetic", ()), batch_seconds, **options)


@given(st.floats(1e-6, 10))
def test_a_calibrated_round_is_a_tenth_of_a_second_or_one_batch(batch_seconds: float) -> None:
    step = fake_step(batch_seconds)
    found = measure.calibrate(step, step.device.clock)
    seconds = step.batches_per_step * batch_seconds
    assert seconds == pytest.approx(0.1, rel=0.5) or step.batches_per_step in (
        1,
        measure.LARGEST_BATCHES_PER_STEP,
    )
    if batch_seconds > 0.15:
        assert step.batches_per_step == 1
    assert found.batches == sum(step.batches)
    last = step.batches[len(step.batches) - len(found.seconds) :]
    assert set(last) <= {step.batches_per_step} and (last or batch_seconds < 0.15)


@pytest.mark.parametrize(
    ("batch_seconds", "calls", "chosen"),
    [
        (1e-4, [1, 10, 100, 1000, 1000], 1000),  # at most ten times as many
        (0.03, [1, 4, 4], 3),
        (0.045, [1, 3, 3], 2),
        (0.2, [1, 1], 1),
        (1.0, [1], 1),  # no disturbance makes a call that long
    ],
)
def test_calibration_grows_and_repeats_calls_that_may_have_been_disturbed(
    batch_seconds: float, calls: List[int], chosen: int
) -> None:
    step = fake_step(batch_seconds)
    measure.calibrate(step, step.device.clock)
    assert (step.batches, step.batches_per_step) == (calls, chosen)


@given(st.floats(1e-5, 1), st.integers(2, 32))
def test_calibration_keeps_whole_bursts(batch_seconds: float, burst: int) -> None:
    step = fake_step(batch_seconds)
    step.loading = Loading(burst=burst)
    measure.calibrate(step, step.device.clock)
    assert step.batches_per_step % burst == 0
    assert all(batches >= burst for batches in step.batches)


class Burst(FakeStep):
    """Sixteen batches that arrive together: all are ready, or the first one waits for all."""

    def __init__(self, waits: bool, seconds: float) -> None:
        super().__init__(FakeDevice(0), ArrayFeed("real", ()), 0.0)
        self.loading, self.burst = Loading(32, 16), 16
        self.waits, self.whole, self.ready = waits, seconds, 0

    def __call__(self) -> None:
        self.batches.append(self.batches_per_step)
        for _ in range(self.batches_per_step):
            if self.waits and not self.ready:
                self.device.clock.advance(self.whole)
            if not self.waits:
                self.device.clock.advance(self.whole / self.burst)
            self.ready = (self.ready or self.burst) - 1


@pytest.mark.parametrize(
    ("waits", "seconds", "batches"),
    [(False, 3.2, 4), (True, 3.2, 16), (False, 0.7, 16), (False, 160.0, 1)],
)
def test_a_round_is_part_of_a_slow_burst_if_no_part_waits(
    waits: bool, seconds: float, batches: int
) -> None:
    step = Burst(waits, seconds)
    found = measure.calibrate(step, step.device.clock, most_seconds=0.9)
    assert step.batches_per_step == batches
    assert found.batches == sum(step.batches)
    assert math.fsum(found.seconds) == pytest.approx(seconds)


def test_a_call_that_takes_no_time_is_not_a_measurement() -> None:
    step = fake_step(0.0)
    with pytest.raises(CaseError, match="FakeStep "):
        measure.warm_up(step, step.device.clock)


def test_warm_up_continues_while_rounds_get_faster() -> None:
    device = FakeDevice(0)
    times: List[float] = [1.0, 0.8, 0.6, 0.5, 0.5, 0.1]

    class Settling(FakeStep):
        def __call__(self) -> None:
            device.clock.advance(times[len(self.batches)])
            self.batches.append(1)

    step = Settling(device, ArrayFeed("synthetic", ()), 0.0)
    assert measure.warm_up(step, device.clock).seconds == pytest.approx(times[:5])


@pytest.mark.parametrize(
    ("first", "dropped", "rounds"),
    [(0.1, 1, 1), (0.5, 1, 2), (None, 1, 2), (None, 3, 3), (0.1, 4, 3), (None, 4, 4)],
)
def test_a_first_call_as_long_as_a_round_is_dropped(
    first: Optional[float], dropped: int, rounds: int
) -> None:
    step = fake_step(0.1)
    step.rounds = RoundRules(dropped)
    found = measure.warm_up(step, step.device.clock, first=first)
    assert found.seconds == pytest.approx([0.1] * rounds)
    assert found.ended_by == "steady"


@pytest.mark.parametrize(
    ("most_seconds", "before", "dropped", "ended_by"),
    [
        (2.5, [], [10.0], "budget"),
        (2.5, [11.0], [11.0], "budget"),  # calibration has already run a round
        (19.0, [], [10.0, 9.5], "budget"),
        (19.0, [9.9], [9.9, 10.0], "steady"),
        (math.inf, [], [10.0 - 0.5 * number for number in range(12)], "most"),
    ],
)
def test_warm_up_ends_with_its_share_of_the_budget(
    most_seconds: float, before: List[float], dropped: List[float], ended_by: str
) -> None:
    device = FakeDevice(0)

    class Falling(FakeStep):
        def __call__(self) -> None:
            device.clock.advance(10.0 - 0.5 * len(self.batches))
            self.batches.append(1)

    step = Falling(device, ArrayFeed("synthetic", ()), 0.0)
    found = measure.warm_up(step, device.clock, most_seconds, before)
    assert found.seconds == pytest.approx(dropped)
    assert found.ended_by == ended_by


@given(st.floats(1e-3, 100), st.floats(0.1, 60), st.integers(0, 9), st.integers(1, 4))
def test_warm_up_exceeds_its_share_by_at_most_one_round(
    batch_seconds: float, most_seconds: float, prefetched: int, dropped: int
) -> None:
    step = fake_step(batch_seconds)
    step.rounds, step.loading = RoundRules(dropped), Loading(prefetched)
    found = measure.warm_up(step, step.device.clock, most_seconds).seconds
    assert found
    assert math.fsum(found) <= max(most_seconds + batch_seconds, prefetched * batch_seconds) + 1e-6


def test_warm_up_uses_up_what_workers_prepared() -> None:
    step = fake_step(0.1)
    step.loading = Loading(10)
    step.batches_per_step = 4
    assert len(measure.warm_up(step, step.device.clock).seconds) == 3
    assert len(measure.warm_up(step, step.device.clock, most_seconds=0.1).seconds) == 3
    assert len(measure.warm_up(step, step.device.clock, 0.1, used=5).seconds) == 2
    assert len(measure.warm_up(step, step.device.clock, 0.1, used=50).seconds) == 1


@pytest.mark.parametrize(
    ("seconds", "limits", "reason"),
    [
        ([], Limits(), ""),
        ([0.1] * 19, Limits(budget=100), ""),
        ([0.1] * 20, Limits(budget=100), "precision"),
        ([0.1, 0.2] * 10, Limits(budget=100), ""),
        ([0.1, 0.2] * 10, Limits(budget=3), "budget"),
        ([10.0, 10.0], Limits(budget=5), ""),
        ([10.0, 11.0, 12.0], Limits(budget=5), "budget"),
        ([0.1] * 20, Limits(steps=21), ""),
        ([0.1] * 21, Limits(budget=0.1, steps=21), "steps"),
        ([0.1] * 2, Limits(budget=0.1, most=3), ""),
        ([0.1] * 3, Limits(budget=100, most=3), "end"),
        ([], Limits(most=0), ""),  # at least one round
        # With many rounds it checks only after every twentieth.
        ([0.1] * 1000, Limits(budget=1000), "precision"),
        ([0.1] * 1001, Limits(budget=1000), ""),
    ],
)
def test_the_stop_rule(seconds: List[float], limits: Limits, reason: str) -> None:
    assert stop_reason(seconds, limits) == reason


@pytest.mark.parametrize(("clean", "reason"), [(19, ""), (20, "precision")])
def test_only_undisturbed_rounds_count_towards_the_fewest_of_a_precise_result(
    clean: int, reason: str
) -> None:
    assert stop_reason([0.1] * 30, Limits(budget=100), clean_of=lambda all_: all_[:clean]) == reason


@pytest.mark.parametrize(
    ("budget", "seconds", "reason"),
    [(0.01, 0.01, "disturbed"), (0.99, 0.99, "disturbed"), (1.0, 2.9, ""), (1.0, 3.1, "disturbed")],
)
def test_disturbed_rounds_stretch_a_budget_unless_it_is_short(
    budget: float, seconds: float, reason: str
) -> None:
    assert stop_reason([seconds / 3] * 3, Limits(budget), clean_of=lambda rounds: []) == reason


@pytest.mark.parametrize(("budget", "seconds"), [(0.01, 0.001), (0.5, 0.05), (1.0, 0.1), (5, 0.1)])
def test_a_round_is_short_if_the_budget_is(budget: float, seconds: float) -> None:
    assert measure.target_seconds(budget) == pytest.approx(seconds)


def test_canaries_take_part_of_the_budget() -> None:
    unequal = [0.1, 0.2] * 10
    assert stop_reason(unequal, Limits(budget=3.5), between=0.4) == ""
    assert stop_reason(unequal, Limits(budget=3.5), between=0.6) == "budget"


def test_the_first_calls_double_until_the_next_would_take_too_long() -> None:
    step = fake_step(0.1)
    lengths = [2, 4, 8, 16, 32]
    seconds, used = measure.first_calls(step, step.device.clock, lengths, most_seconds=1.0)
    assert seconds == pytest.approx([0.2, 0.4, 0.8])
    assert used == 14
    assert step.batches_per_step == 8
    assert measure.first_calls(step, step.device.clock, lengths, 100.0)[1] == sum(lengths)


def test_a_canary_is_timed_before_each_round_and_not_after_the_last() -> None:
    step = fake_step(0.1)
    rounds = Rounds(Limits(steps=3), step.device.clock, ask(step.reference.canary))
    seconds: List[float] = []
    with pytest.raises(EnoughRounds):
        while True:
            rounds.before_round(seconds)
            seconds.append(0.1)
    assert rounds.canaries == pytest.approx([0.001] * 3)
    assert rounds.between == pytest.approx(0.003)
    assert rounds.stopped_by == "steps"


@pytest.mark.parametrize(("batch_seconds", "samples"), [(0.5, 10), (0.02, 26), (0.0001, 200)])
def test_latency_samples_follow_the_budget(batch_seconds: float, samples: int) -> None:
    step = fake_step(batch_seconds)
    step.batches_per_step = 7
    found, batches = measure.batch_latencies(step, step.device.clock, budget=5.1)
    assert found == pytest.approx([batch_seconds] * samples) and batches == 1
    assert step.batches_per_step == 7
    assert step.batches == [1] * (samples + 2)  # the first two are dropped


def test_the_best_rate_drops_the_first_run() -> None:
    device = FakeDevice(0)
    times = iter([5.0, 0.3, 0.2, 0.4])
    work = Work(lambda: device.clock.advance(next(times)), amount=10.0)
    assert measure.best_rate(work, device.clock) == pytest.approx(50)
    assert measure.best_rate(Work(lambda: None, 1.0), device.clock) == math.inf


def test_a_steady_rate_excludes_prepared_batches() -> None:
    device = FakeDevice(0)
    waiting = [0.0, 0.0, 0.0]  # batches that were loaded before

    def load() -> None:
        device.clock.advance(waiting.pop() if waiting else 0.1)

    def prepare() -> None:
        device.clock.advance(100.0)

    rate = measure.steady_rate(Work(load, 1.0, prepare), device.clock, ahead=3, most_seconds=1.0)
    assert rate == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("seconds", "most_seconds", "runs"),
    [
        (0.3, math.inf, 8 + 2),
        (0.3, 0.5, 2 + 2),
        (0.3, 0.0, 2),
        (0.6, 0.07, 1 + 1),
        (0.6, 0.02, 1),
    ],
)
def test_waiting_ends_with_the_prepared_batches_or_with_its_time(
    seconds: float, most_seconds: float, runs: int
) -> None:
    device = FakeDevice(0)
    ran: List[int] = []

    def run() -> None:
        ran.append(1)
        device.clock.advance(seconds)

    rate = measure.steady_rate(Work(run, 1.0), device.clock, 8, most_seconds)
    assert rate == pytest.approx(1 / seconds)
    assert len(ran) == runs
