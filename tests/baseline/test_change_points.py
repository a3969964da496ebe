"""Changes of the level of a series: where they are, and whether noise can explain them."""

from __future__ import annotations

import itertools
import math
import random
from typing import List, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.plugins.baseline.change_points import (
    SMALLEST_NOISE,
    change_points,
    changes_of,
    noise,
    proven_changes,
    runs_needed,
)


def series(levels: Sequence[float], runs: int, spread: float, seed: int = 1) -> List[float]:
    """Return logarithms of throughput: ``runs`` runs at each level, with normal noise."""
    generator = random.Random(seed)
    return [math.log(level) + generator.gauss(0, spread) for level in levels for _ in range(runs)]


def found_in(values: Sequence[float], widths: Sequence[float] = ()) -> List[int]:
    """Return the runs that begin a level."""
    pytest.importorskip("ruptures", reason="pip install ruptures")
    return [change.run for change in changes_of(values, widths)]


def test_a_step_is_placed_at_its_run_and_has_its_size() -> None:
    for seed, step, about in itertools.product(range(3), (0.9, 1.1), (13, 14, 15, 16, 17)):
        values = series([100, 100 * step], 15, 0.01, seed)
        (change,) = proven_changes(values, [about], 0.0)
        assert change.run == 15 and change.sure > 0.99 and change.proven, (seed, step, about)
        assert change.low < step - 1 < change.high
        assert change.high - change.low == pytest.approx(4 * 0.01 * math.sqrt(2 / 15), rel=0.5)


def test_a_small_step_has_several_places_and_95_percent_of_them_hold_it() -> None:
    held = several = 0
    for seed in range(100):
        (change,) = proven_changes(series([100, 97], 15, 0.01, seed), [15], 0.0)
        held += 15 in change.likely
        several += len(change.likely) > 1
        assert sum(change.likely.values()) >= 0.95
        assert change.sure == max(change.likely.values())
    assert held >= 88 and several >= 30


def test_a_level_of_two_runs_begins_with_its_first() -> None:
    """A level has three runs for PELT, which places the change a run late or early."""
    pytest.importorskip("ruptures")
    values = [0.01, -0.01, *(value + 0.3 for value in series([1], 8, 0.01))]
    assert change_points(values) == [3]
    assert found_in(values) == [2]


def test_equal_runs_have_no_step() -> None:
    """PELT alone marks 6 of a hundred series of eight runs."""
    found = [found_in(series([100], 8, 0.01, seed)) for seed in range(60)]
    assert sum(map(bool, found)) <= 2


@pytest.mark.parametrize("position", [0, 1, 12, 28, 29])
def test_one_bad_run_is_not_a_change(position: int) -> None:
    values = series([100], 30, 0.01, seed=3)
    values[position] -= 0.5
    assert found_in(values) == []


@pytest.mark.parametrize("position", [2, 12, 18, 27])
def test_one_bad_run_does_not_move_a_change(position: int) -> None:
    values = series([100, 90], 15, 0.01)
    values[position] -= 0.5
    assert found_in(values) == [15]


@pytest.mark.parametrize(("slow_runs", "found"), [(1, []), (2, [20]), (3, [20]), (4, [20])])
def test_a_change_appears_with_its_second_run_at_its_first(
    slow_runs: int, found: List[int]
) -> None:
    assert found_in(series([100], 20, 0.01) + [math.log(80)] * slow_runs) == found


def test_several_steps_are_placed_each() -> None:
    assert found_in(series([100, 90, 95], 8, 0.005)) == [8, 16]


@pytest.mark.parametrize(("width", "found"), [(0.02, [8]), (0.4, [])])
def test_a_change_that_the_runs_own_intervals_explain_is_left_out(
    width: float, found: List[int]
) -> None:
    values = series([100, 90], 8, 0.01)
    assert found_in(values, [width] * 16) == found


@pytest.mark.parametrize("slow", [1, 2, 3])
def test_five_runs_with_half_the_speed_at_the_end_need_a_sixth(slow: int) -> None:
    values = series([100], 5 - slow, 0.01) + series([50], slow, 0.01)
    assert found_in(values) == []
    assert runs_needed(values, (), 0) == 6


def test_a_newest_run_far_from_its_level_needs_another_like_it() -> None:
    values = [*series([100], 12, 0.01), math.log(50)]
    assert found_in(values) == [] and runs_needed(values, (), 0) == 14
    assert found_in([*values, math.log(50)]) == [12]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_equal_runs_are_too_few_before_the_sixth(count: int) -> None:
    assert runs_needed(series([100], count, 0.01), (), 0) == 6


def test_as_many_runs_as_are_needed_prove_the_change() -> None:
    """A step of twice the noise, for example by the runs' own intervals."""
    widths, level = [0.4] * 40, math.log(0.5)
    needed = runs_needed([0.0] * 4 + [level] * 2, widths, 0)
    assert 6 < needed < 20
    assert found_in([0.0] * 4 + [level] * (needed - 4), widths) == [4]
    assert found_in([0.0] * 4 + [level] * (needed - 5), widths) == []


def test_a_trend_with_enough_runs_needs_no_more() -> None:
    needed = [runs_needed(series([100], 30, 0.01, seed), (), 0) for seed in range(60)]
    assert sum(map(bool, needed)) <= 2
    assert runs_needed(series([100, 50], 3, 0.01), (), 0) == 0  # these prove it
    assert runs_needed(series([100, 50], 8, 0.01), (), 8) == 0  # it is marked
    # A step of which no number of runs makes a change: one level has too few.
    assert runs_needed([0.0, 0.0, 0.1, 0.1], [9.0] * 4, 0) == 6


def test_a_change_that_is_left_out_leaves_the_others() -> None:
    values = series([100, 80], 12, 0.01)
    assert [one.run for one in proven_changes(values, [4, 12, 20], 0.0)] == [12]


@given(
    st.lists(st.floats(-20, 20), min_size=6, max_size=40),
    st.floats(0, 1),
    st.randoms(use_true_random=False),
)
def test_any_series_has_changes_in_order_with_an_interval_and_a_chance(
    values: List[float], own: float, generator: random.Random
) -> None:
    starts = {3 * generator.randrange(1, len(values) // 3) for _ in range(4)}
    found = proven_changes(values, sorted(starts), own)
    assert [one.run for one in found] == sorted({one.run for one in found})
    for one in found:
        assert 0 < one.run < len(values) and 0 < one.sure <= 1
        assert -1 <= one.low <= one.change <= one.high


def test_noise_is_measured_within_the_levels() -> None:
    one = series([100], 200, 0.01)
    stepped = [value + 0.5 * (index >= 100) for index, value in enumerate(one)]
    assert noise(one) == pytest.approx(0.01, rel=0.2)
    assert noise(stepped) == pytest.approx(noise(one), rel=0.05)
    assert noise([1.0] * 10) == SMALLEST_NOISE
