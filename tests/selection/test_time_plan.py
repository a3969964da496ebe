"""Cases fit into a time: with fewer rounds, then with fewer cases."""

from __future__ import annotations

import math
from typing import List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.plugins.selection.time_plan import (
    LEAST_BUDGET,
    Expected,
    fitting_budget,
    fitting_cases,
)

CASES = st.lists(st.builds(Expected, st.floats(0, 300), st.floats(0, 20)), min_size=1, max_size=30)
BUDGETS = st.floats(0.1, 60)


def seconds_of(cases: List[Expected], budget: float) -> float:
    return math.fsum(case.seconds(budget) for case in cases)


@given(CASES, st.floats(0, 5000), BUDGETS)
def test_the_budget_that_is_found_fits_and_a_larger_one_does_not(
    cases: List[Expected], seconds: float, budget: float
) -> None:
    found = fitting_budget(cases, seconds, budget)
    if found is None:
        assert seconds_of(cases, min(LEAST_BUDGET, budget)) > seconds
        return
    assert min(LEAST_BUDGET, budget) <= found <= budget
    assert seconds_of(cases, found) <= seconds
    assert found == budget or seconds_of(cases, 1.02 * found) > seconds


@given(CASES, st.floats(0, 5000), BUDGETS, st.integers(1, 5))
def test_the_cases_that_are_kept_fit_and_no_other_one_would(
    cases: List[Expected], seconds: float, budget: float, functions: int
) -> None:
    names = [str(number % functions) for number in range(len(cases))]
    kept = fitting_cases(cases, names, seconds, budget)
    assert kept == sorted(set(kept)) and kept
    spent = seconds_of([cases[number] for number in kept], budget)
    assert spent <= seconds or len(kept) == 1
    for number in set(range(len(cases))) - set(kept):
        assert spent + cases[number].seconds(budget) > seconds - 1e-6


def test_every_function_is_seen_before_any_has_a_second_case() -> None:
    same = [Expected(10.0)] * 6
    names = ["dense", "dense", "dense", "lstm", "lstm", "conv"]
    assert fitting_cases(same, names, 12 * 3, 1.0) == [0, 3, 5]
    assert fitting_cases(same, names, 12 * 4, 1.0) == [0, 1, 3, 5]
    assert fitting_cases(same, names, 1000, 1.0) == [0, 1, 2, 3, 4, 5]


def test_one_case_is_kept_however_short_the_time_is() -> None:
    assert fitting_cases([Expected(10.0)] * 2, ["dense", "lstm"], 0.0, 1.0) == [0]


@pytest.mark.parametrize(("one", "seconds"), [(0.1, 8.0), (3.0, 15.0)])
def test_long_rounds_take_longer_than_the_budget(one: float, seconds: float) -> None:
    assert Expected(0.0, one).seconds(5.0) == pytest.approx(seconds)
