"""Effects between processes, compared with SciPy and published examples."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from typing import List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.plugins.gate import inference
from ipubench.plugins.gate.inference import (
    Effect,
    corrected,
    decide,
    effect,
    least_change,
    noise_floor,
)
from ipubench.plugins.record.verdict import IMPROVED, PASS, REGRESSED

costs = st.lists(st.floats(-1, 1), min_size=2, max_size=9)
NONE_ASSUMED = 0.0


def test_without_an_assumption_and_trimming_it_is_the_pooled_t_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stats = pytest.importorskip("scipy.stats", reason="pip install scipy")
    monkeypatch.setattr(inference, "ASSUMED_DEGREES", 0)
    before, now = [0.11, 0.09, 0.12, 0.10], [0.16, 0.13, 0.15]
    found = effect(before, now, NONE_ASSUMED)
    reference = stats.ttest_ind(now, before)
    assert found.change / found.error == pytest.approx(reference.statistic)
    half = stats.t.ppf(0.975, len(before) + len(now) - 2) * found.change / reference.statistic
    assert found.interval() == pytest.approx((found.change - half, found.change + half))


def test_trimming_is_yuens(monkeypatch: pytest.MonkeyPatch) -> None:
    """SciPy's trimmed test with equal variances cuts off the same values."""
    stats = pytest.importorskip("scipy.stats", reason="pip install scipy")
    monkeypatch.setattr(inference, "ASSUMED_DEGREES", 0)
    generator = random.Random(3)
    before = [generator.gauss(0, 1) for _ in range(11)]
    now = [*(generator.gauss(1, 1) for _ in range(8)), 40.0]
    found = effect(before, now, NONE_ASSUMED)
    try:
        reference = stats.ttest_ind(now, before, equal_var=True, trim=0.2)
    except TypeError:
        pytest.skip("this SciPy has no trimmed t test; pip install 'scipy>=1.7'")
    assert found.change / found.error == pytest.approx(reference.statistic)


def test_the_assumed_spread_counts_as_a_few_processes() -> None:
    """With equal values on both sides only the assumption remains, with its weight."""
    found = effect([0.0, 0.0, 0.0], [0.1, 0.1, 0.1], assumed=0.03)
    weight = inference.ASSUMED_DEGREES
    assert found.degrees == 4 + weight
    variance = weight * 0.03**2 / (4 + weight)
    assert found.error == pytest.approx(math.sqrt(variance * 2 / 3))


@given(costs, costs, st.floats(-0.5, 0.5))
def test_a_scaled_copy_shows_as_its_scale(
    before: List[float], now: List[float], shift: float
) -> None:
    moved = effect(before, [value + shift for value in now], 0.03)
    assert moved.change == pytest.approx(effect(before, now, 0.03).change + shift, abs=1e-12)


@given(costs, costs, st.randoms(use_true_random=False))
def test_the_order_of_processes_changes_nothing(
    before: List[float], now: List[float], generator: random.Random
) -> None:
    other = list(now)
    generator.shuffle(other)
    one, two = effect(before, now, 0.03), effect(before, other, 0.03)
    assert one.change == pytest.approx(two.change)
    assert one.error == pytest.approx(two.error)


@given(costs, costs)
def test_swapping_the_sides_changes_the_sign(before: List[float], now: List[float]) -> None:
    there, back = effect(before, now, 0.03), effect(now, before, 0.03)
    assert there.change == pytest.approx(-back.change)
    assert there.interval()[0] == pytest.approx(-back.interval()[1])


def test_the_interval_contains_the_truth_as_often_as_promised() -> None:
    """For normal processes: 95% of 2000 intervals, within four standard errors."""
    generator = random.Random(7)
    hits = 0
    for _ in range(2000):
        before = [generator.gauss(0, 0.03) for _ in range(6)]
        now = [generator.gauss(0.05, 0.03) for _ in range(4)]
        low, high = effect(before, now, 0.03).interval()
        hits += low < 0.05 < high
    assert 0.93 < hits / 2000 < 0.97


def test_one_disturbed_process_does_not_decide() -> None:
    calm = [0.00, 0.01, 0.02, 0.00, 0.01]
    disturbed = effect(calm, [*calm[:-1], 2.0], 0.03)
    assert disturbed.change < 0.01


def test_the_estimated_noise_is_the_median_difference_of_halves() -> None:
    values = [0.03, 0.0, 0.9, 0.05, 0.01, 0.02, -0.4]
    kept = [0.03, 0.0, 0.05, 0.05, 0.01, 0.02, 0.0]  # winsorised
    halves = [
        abs(statistics.fmean(kept[i] for i in one) - statistics.fmean(kept[i] for i in other))
        for one in itertools.combinations(range(7), 3)
        for other in [sorted({*range(7)} - {*one})]
    ]
    scale = math.sqrt((1 / 7 + 1 / 16) / (1 / 3 + 1 / 4))
    assert noise_floor(values, 16) == pytest.approx(statistics.median(halves) * scale)
    assert noise_floor(values[:4], 16) > noise_floor(values[:3], 16) == 0.0
    assert noise_floor([0.3] * 20, 4) == 0.0


@pytest.mark.parametrize(
    ("change", "error", "kind"),
    [
        (0.03, 0.005, REGRESSED),
        (0.03, 0.02, ""),  # there may be no change
        (0.02, 0.001, PASS),  # certain, and exactly as much as allowed
        (-0.02, 0.001, PASS),
        (0.0, 0.03, ""),  # it may be a change that the gate looks for
        (-0.03, 0.005, IMPROVED),
        (-0.03, 0.02, PASS),
    ],
)
def test_a_verdict_needs_the_estimate_and_the_certainty(
    change: float, error: float, kind: str
) -> None:
    """Ten degrees of freedom: 99% within 2.76 errors one-sided, 95% within 2.23 two-sided."""
    found = Effect(change, error, 10)
    assert decide(found, allowed=0.02, detectable_change=0.05, level=0.01) == kind


def test_the_level_is_shared_by_the_cases() -> None:
    assert corrected(0.05, 10) == pytest.approx(0.005)
    assert corrected(0.05, 0) == 0.05


def test_the_least_change_grows_with_the_noise_and_shrinks_with_processes() -> None:
    steady, noisy = [0.0, 0.001] * 4, [0.0, 0.1] * 4
    allowed = math.log1p(0.02)
    found = [least_change(costs, 16, 0.02, allowed, 0.002) for costs in (steady, noisy)]
    assert allowed < found[0] < math.log1p(0.05) < found[1]
    assert least_change(noisy, 4, 0.02, allowed, 0.002) > found[1]


def test_the_least_change_is_found_in_most_comparisons() -> None:
    """Simulates processes with normal noise at the last look of the gate."""
    generator, found = random.Random(3), 0
    allowed, level, trials = math.log1p(0.02), 0.002, 400
    for _ in range(trials):
        before = [generator.gauss(0, 0.03) for _ in range(9)]
        least = least_change(before, 16, 0.02, allowed, level)
        now = [generator.gauss(least, 0.03) for _ in range(16)]
        found += decide(effect(before, now, 0.02), allowed, least, level) == REGRESSED
    assert found / trials > 0.85
