"""The statistics of pairs: against published numbers, and what must hold of any pairs."""

from __future__ import annotations

import math
import random
from typing import Dict, List

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipubench.plugins.gate.inference import decide
from ipubench.plugins.gate.paired import (
    FALSE_ALARMS,
    Pair,
    level_of_a_look,
    looks,
    paired_effect,
    precise,
)
from ipubench.plugins.gate.rule import DETECTABLE_CHANGE

DIFFERENCES = st.lists(st.floats(-1, 1), min_size=4, max_size=14)
quick = settings(max_examples=100, deadline=None, database=None)


def pairs(differences: List[float]) -> List[Pair]:
    return [Pair(value, here_first=number % 2 == 0) for number, value in enumerate(differences)]


def test_the_effect_is_that_of_the_two_sample_t_test_of_the_orders() -> None:
    """The treatment effect is half the difference of two groups, one of them negated."""
    stats = pytest.importorskip("scipy.stats", reason="pip install scipy")
    first, second = [0.31, 0.22, 0.41, 0.28], [0.12, 0.18, 0.05]
    made = [Pair(v, True) for v in first] + [Pair(v, False) for v in second]
    found = paired_effect(made)
    expected = stats.ttest_ind(first, [-value for value in second])
    assert found.change / found.error == pytest.approx(expected.statistic, rel=1e-12)
    assert found.degrees == len(first) + len(second) - 2
    half = stats.t.ppf(0.975, found.degrees) * found.change / expected.statistic
    interval = (found.change - half, found.change + half)
    assert found.interval() == pytest.approx(interval, rel=1e-9)


def test_without_an_order_effect_it_agrees_with_the_paired_t_test() -> None:
    """Student's sleep data (Biometrika 1908): extra hours of sleep, two drugs, ten patients.

    Published: mean difference 1.58, standard error 0.389, t = 4.06. As two orders of five the
    estimate is the same; the error loses one degree of freedom.
    """
    one = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    two = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    found = paired_effect(pairs([b - a for a, b in zip(one, two)]))
    assert found.change == pytest.approx(1.58)
    assert found.degrees == 8
    assert found.error == pytest.approx(0.389, rel=0.08)
    assert found.change / found.error == pytest.approx(4.06, rel=0.08)


def test_what_being_first_costs_cancels() -> None:
    found = paired_effect([Pair(0.05 + 0.3 * (1 if n % 2 else -1), n % 2 == 1) for n in range(6)])
    assert found.change == pytest.approx(0.05)
    assert found.error == pytest.approx(0, abs=1e-12)


def test_it_cancels_with_unequally_many_of_each_order_too() -> None:
    made = [Pair(0.35, True), Pair(-0.25, False), Pair(0.35, True)]
    assert paired_effect(made).change == pytest.approx(0.05)


@quick
@given(DIFFERENCES)
def test_swapping_the_sides_negates(values: List[float]) -> None:
    found, swapped = (
        paired_effect(pairs(values)),
        paired_effect([Pair(-pair.difference, not pair.here_first) for pair in pairs(values)]),
    )
    assert swapped.change == pytest.approx(-found.change, abs=1e-12)
    assert swapped.error == pytest.approx(found.error, abs=1e-12)
    low, high = found.interval()
    assert swapped.interval() == pytest.approx((-high, -low), abs=1e-9)


@quick
@given(DIFFERENCES, st.randoms(use_true_random=False))
def test_the_order_of_the_pairs_changes_nothing(values: List[float], rng: random.Random) -> None:
    made = pairs(values)
    shuffled = list(made)
    rng.shuffle(shuffled)
    found, again = paired_effect(made), paired_effect(shuffled)
    assert again.change == pytest.approx(found.change, abs=1e-12)
    assert again.error == pytest.approx(found.error, abs=1e-9)


@quick
@given(DIFFERENCES, st.floats(-0.5, 0.5))
def test_a_slower_copy_is_slower_by_that_much(values: List[float], slower: float) -> None:
    found = paired_effect(pairs(values))
    moved = paired_effect(pairs([value + slower for value in values]))
    assert moved.change - found.change == pytest.approx(slower, abs=1e-9)
    assert moved.error == pytest.approx(found.error, abs=1e-9)


@pytest.mark.parametrize(
    ("cap", "expected"),
    [(1, [3]), (3, [3]), (4, [4]), (5, [4, 5]), (12, [4, 6, 8, 10, 12])],
)
def test_looks_follow_complete_couples_of_pairs(cap: int, expected: List[int]) -> None:
    assert looks(cap) == expected


def test_the_level_is_corrected_for_looks_and_tests() -> None:
    assert level_of_a_look(12, 10) == pytest.approx(FALSE_ALARMS / 50)
    assert level_of_a_look(4, 1) == pytest.approx(FALSE_ALARMS)


def test_precise_means_narrow() -> None:
    assert precise(paired_effect(pairs([0.1] * 4)))
    assert not precise(paired_effect(pairs([0.1, 0.3, -0.2, 0.0])))


THRESHOLD, NOISE, CAP = 0.02, 0.02, 16


def simulated(slower: float, cases: int, runs: int = 1000) -> Dict[str, float]:
    """Return verdict -> its share, looking as against.py does; '' where the pairs did not suffice.

    A pair has normal noise, and being first costs 1%. The seed is fixed.
    """
    rng = random.Random(1)
    level = level_of_a_look(CAP, cases)
    allowed, detectable_change = math.log1p(THRESHOLD), math.log1p(DETECTABLE_CHANGE)
    found: Dict[str, float] = {}
    for _ in range(runs):
        noise = [rng.gauss(math.log1p(slower), NOISE) for _ in range(CAP)]
        made = pairs([value + (0.01 if n % 2 else -0.01) for n, value in enumerate(noise)])
        answer = ""
        for count in looks(CAP):
            answer = answer or decide(
                paired_effect(made[:count]), allowed, detectable_change, level
            )
        found[answer] = found.get(answer, 0) + 1 / runs
    return found


@pytest.mark.parametrize(("cases", "found"), [(1, 0.99), (10, 0.99), (100, 0.98)])
def test_false_alarms_and_power_with_a_known_noise(cases: int, found: float) -> None:
    """With 2% of noise per pair, a gate of 2% and at most 16 pairs."""
    equal = simulated(0, cases)
    assert equal["pass"] >= 0.99
    assert equal.get("regressed", 0) <= FALSE_ALARMS / cases
    assert simulated(0.05, cases)["regressed"] >= found
    assert simulated(0.10, cases)["regressed"] == pytest.approx(1)
