"""Learning rates over a run compared with their formulas."""

from __future__ import annotations

from typing import Any, Callable, Dict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.models.tensorflow.training.schedules import (
    DROPS,
    Curve,
    Schedule,
    base_rate,
    cosine,
    default_exponent,
    dropping,
    exponential,
    polynomial,
    rising,
    updates_per_epoch,
)
from tests.support.tries import tries

IMAGES = 1281167
#: (first rate, updates, updates of the warm-up) -> the curve of the CNN program.
CURVES: Dict[str, Callable[[float, int, float], Curve]] = {
    "stepped": lambda base, total, warmup: dropping(base, 0.1, total, DROPS),
    "cosine": lambda base, total, warmup: cosine(base, total),
    "exponential": lambda base, total, warmup: exponential(base, 0.97, total, 146),
    "polynomial": lambda base, total, warmup: polynomial(base, 1e-5 * base, 2.0, total, warmup),
}
TOTALS = st.integers(1, 20000)
FRACTIONS = st.floats(0, 2)


def scheduled(kind: str, base: float, total: int, warmup: float = 0.0) -> Schedule:
    return Schedule(CURVES[kind](base, total, warmup), rising(warmup))


def rates(schedule: Schedule, total: int) -> Any:
    return np.array([schedule.rate(update) for update in range(total + 1)])


def test_updates_are_those_of_the_published_runs() -> None:
    found = [updates_per_epoch(IMAGES, size) for size in (16384, 768, 200, 800)]
    assert found == [78, 1668, 6405, 1601]
    assert updates_per_epoch(10, 16) == 1


def test_the_base_rate_grows_with_the_global_batch() -> None:
    found = [base_rate(*given) for given in ((-11, 16384), (-11, 768), (-8, 4), (-2000, 16))]
    assert found == [8.0, 0.375, 2**-6, 0.0]
    with pytest.raises(ValueError, match="base_learning_rate"):
        base_rate(2000, 16)


def test_default_exponents() -> None:
    assert [default_exponent(name) for name in ("SGD", "momentum")] == [-8, -11]
    named = ("SGD", "momentum", "RMSprop")
    assert [default_exponent(name, efficientnet=True) for name in named] == [-7, -10, -14]
    with pytest.raises(ValueError, match="RMSprop"):
        default_exponent("RMSprop")


def test_stepped_is_numpys_piecewise_constant() -> None:
    updates = np.arange(101)
    conditions = [updates >= 90, updates >= 80, updates >= 60, updates >= 30]
    expected = np.select(conditions, [8e-4, 8e-3, 8e-2, 8e-1], 8.0)
    np.testing.assert_allclose(rates(scheduled("stepped", 8.0, 100), 100), expected)
    halved = rates(Schedule(dropping(1.0, 0.5, 10, (0.7,))), 10)
    np.testing.assert_array_equal(halved, [1.0] * 7 + [0.5] * 4)


def test_cosine_is_numpys() -> None:
    expected = 0.375 / 2 * (1 + np.cos(np.pi * np.arange(1669) / 1668))
    np.testing.assert_allclose(rates(scheduled("cosine", 0.375, 1668), 1668), expected, atol=1e-15)


def test_exponential_is_numpys() -> None:
    found = rates(scheduled("exponential", 1.0, 12810), 12810)
    expected = 0.97 ** np.floor(np.arange(12811) * 146 / 12810)
    np.testing.assert_allclose(found, expected)
    assert len(set(found)) == 147  # 146 drops, the last one at the end
    np.testing.assert_allclose(
        rates(Schedule(exponential(1.0, 0.5, 4, 2)), 4), [1, 1, 0.5, 0.5, 0.25]
    )


def test_polynomial_is_numpys() -> None:
    expected = (8.0 - 8e-5) * np.linspace(1, 0, 79) ** 2 + 8e-5
    np.testing.assert_allclose(rates(scheduled("polynomial", 8.0, 78), 78), expected)
    straight = Schedule(polynomial(1.0, 0.5, 1.0, 12, constant_until=2.0), rising(2.0))
    np.testing.assert_allclose(rates(straight, 12), [0, 0.5, *np.linspace(1, 0.5, 11)])


@pytest.mark.parametrize("kind", CURVES)
@tries(60)
@given(total=TOTALS, warm=FRACTIONS, at=FRACTIONS)
def test_rates_are_bounded_and_fall_after_warm_up(
    kind: str, total: int, warm: float, at: float
) -> None:
    schedule = scheduled(kind, 0.375, total, warm * total)
    update = int(at * total)
    assert 0.0 <= schedule.rate(update) <= 0.375
    assert schedule.rate(0) == (0.0 if warm * total else 0.375)
    if update >= warm * total:
        assert schedule.rate(update + 1) <= schedule.rate(update)
        without = scheduled(kind, 0.375, total)
        if kind != "polynomial":
            assert schedule.rate(update) == without.rate(update)
    elif kind != "polynomial":
        # The published one-epoch runs have five epochs of warm-up.
        plain = scheduled(kind, 0.375, total).rate(update)
        assert schedule.rate(update) == pytest.approx(plain * update / (warm * total))
    assert schedule.rate(3 * total) == schedule.rate(4 * total)


@pytest.mark.parametrize("kind", ["cosine", "polynomial"])
@tries(60)
@given(total=st.integers(100, 20000), warm=st.floats(0.1, 0.9))
def test_smooth_schedules_have_no_jump_after_warm_up(kind: str, total: int, warm: float) -> None:
    schedule = scheduled(kind, 1.0, total, warm * total)
    steps = np.abs(np.diff([schedule.rate(int(warm * total) + i) for i in range(3)]))
    # The steepest parts: warm-up rises by 1 / length, a decay falls by at most 2 / its length.
    assert steps.max() <= 1.01 * (1 / warm + 2 / (1 - warm)) / total
