"""The statistics compared with NumPy, exact tables and simulation."""

from __future__ import annotations

import random
from typing import List, Tuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.plugins.record.statistics import (
    latency,
    median_interval,
    median_ranks,
    quantile,
    relative_half_width,
    still_falling,
    throughput,
)

seconds = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=50)


@given(seconds, st.floats(0, 1))
def test_quantile_is_numpys(values: List[float], q: float) -> None:
    assert quantile(values, q) == pytest.approx(float(np.quantile(values, q)), rel=1e-9)


# Order statistics (from 1) of the 95% interval of a median: Conover, table A3 and the sign test.
@pytest.mark.parametrize(
    ("n", "ranks"), [(6, (1, 6)), (8, (1, 8)), (9, (2, 8)), (10, (2, 9)), (20, (6, 15))]
)
def test_ranks_of_the_median_match_published_tables(n: int, ranks: Tuple[int, int]) -> None:
    found = median_ranks(n)
    assert found is not None
    assert (found[0] + 1, found[1] + 1) == ranks


def test_five_values_have_no_95_percent_interval() -> None:
    assert median_ranks(5) is None
    assert median_interval([5.0, 1.0, 3.0]) == (1.0, 5.0)


def test_interval_covers_the_true_median_at_least_95_percent() -> None:
    generator = random.Random(7)
    hits = 0
    for _ in range(2000):
        low, high = median_interval([generator.random() for _ in range(30)])
        hits += low <= 0.5 <= high
    assert hits / 2000 > 0.94


@given(seconds, st.floats(0.1, 10))
def test_a_scaled_copy_scales_everything(values: List[float], factor: float) -> None:
    one = throughput(values, 10, "items")
    other = throughput([value * factor for value in values], 10, "items")
    for name in ("median", "low", "high", "mean", "min", "max"):
        assert getattr(other, name) * factor == pytest.approx(getattr(one, name))
    assert other.spread == pytest.approx(one.spread, rel=1e-6, abs=1e-9)


@given(seconds, st.randoms(use_true_random=False))
def test_order_changes_nothing(values: List[float], generator: random.Random) -> None:
    shuffled = list(values)
    generator.shuffle(shuffled)
    assert throughput(shuffled, 3, "items") == throughput(values, 3, "items")


@given(seconds)
def test_throughput_is_ordered(values: List[float]) -> None:
    summary = throughput(values, 1, "items")
    tolerance = 1 + 1e-9
    assert summary.min <= summary.low * tolerance
    assert summary.low <= summary.median * tolerance
    assert summary.median <= summary.high * tolerance
    assert summary.high <= summary.max * tolerance
    assert summary.min <= summary.mean * tolerance <= summary.max * tolerance**2


def test_throughput_of_known_rounds() -> None:
    summary = throughput([0.1, 0.2, 0.4], 4, "items")
    assert (summary.median, summary.min, summary.max) == (20, 10, 40)
    assert summary.mean == pytest.approx((40 + 20 + 10) / 3)


def test_latency_is_in_milliseconds() -> None:
    found = latency([0.001 * value for value in range(1, 102)], "rounds")
    assert (found.p50_ms, found.p90_ms, found.p99_ms) == pytest.approx((51, 91, 100))
    assert (found.samples, found.source) == (101, "rounds")


def test_falling_means_a_new_minimum_by_two_percent() -> None:
    assert not still_falling([1.0])
    assert still_falling([1.0, 0.9])
    assert not still_falling([1.0, 0.99])
    assert not still_falling([1.0, 0.5, 0.6])
    assert still_falling([1.0, 1.0, 0.9])


def test_half_width_is_that_of_the_interval_over_the_median() -> None:
    assert relative_half_width([0.1] * 20) == 0
    assert relative_half_width([8.0, 9.0, 10.0, 10.0, 11.0, 12.0]) == pytest.approx(0.2)


def test_the_spread_is_half_the_interval_of_the_rates_over_the_median() -> None:
    unequal = [0.1, 0.2] * 10  # the interval is from one to the other
    assert throughput(unequal, 1, "items").spread == pytest.approx(2.5 * 0.15)
