"""The running estimate of a case: its rate, its interval and the time left."""

from __future__ import annotations

import math
from typing import Any, List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.plugins.measure.estimate import estimate_text, seconds_left
from ipubench.plugins.measure.rounds import Limits, Rounds
from ipubench.plugins.record.pytest_benchmark_adapter import EnoughRounds
from tests.support.fake_device import FakeDevice


@pytest.mark.parametrize(
    ("limits", "count", "spent", "spread", "left"),
    [
        (Limits(5, precision=0), 10, 1.0, 0.1, 4.0),
        (Limits(5, precision=0.01), 10, 1.0, 0.02, 3.0),  # four times as many rounds
        (Limits(5, precision=0.01), 10, 1.0, 0.001, 1.0),  # 20 rounds at least
        (Limits(5, precision=0.01), 1, 4.0, math.inf, 8.0),  # three rounds at least
        (Limits(5, precision=0), 100, 6.0, 0.1, 9.0),  # disturbed: up to three times as long
        (Limits(5, precision=0), 100, 16.0, 0.1, 0.0),
        (Limits(5, steps=7), 2, 1.0, 0.1, 2.5),
        (Limits(5, precision=0, most=4), 2, 1.0, 0.1, 1.0),
    ],
)
def test_the_time_left_is_that_of_the_rule_that_ends_the_rounds_first(
    limits: Limits, count: int, spent: float, spread: float, left: float
) -> None:
    assert seconds_left(limits, count, spent, spread) == pytest.approx(left)


@given(
    st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=50),
    st.builds(
        Limits,
        st.floats(0.01, 100),
        st.sampled_from([0.0, 0.01]),
        st.none() | st.integers(1, 60),
        st.none() | st.integers(1, 60),
    ),
)
def test_any_rounds_have_an_estimate(seconds: List[float], limits: Limits) -> None:
    rounds = Rounds(limits, FakeDevice(0).clock, None)
    assert "items/s" in estimate_text(rounds, seconds, 8.0, "items")


def test_an_estimate_is_the_median_of_the_rounds_with_its_interval() -> None:
    rounds = Rounds(Limits(budget=5, precision=0), FakeDevice(0).clock, None)
    assert estimate_text(rounds, [0.1], 20.0, "words") == "200.0 words/s, 5 s left"
    text = estimate_text(rounds, [0.09, 0.1, 0.11], 20.0, "words", timed_share=0.5)
    assert text == "200.0 words/s ±10.0%, 10 s left"


def test_rounds_are_shown_between_two_and_never_before_the_first() -> None:
    shown: List[int] = []
    show: Any = lambda seconds: shown.append(len(seconds))  # noqa: E731
    rounds = Rounds(Limits(steps=3), FakeDevice(0).clock, None, show=show)
    seconds: List[float] = []
    with pytest.raises(EnoughRounds):
        while True:
            rounds.before_round(seconds)
            seconds.append(0.1)
    assert shown == [1, 2]
