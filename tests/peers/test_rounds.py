"""Interleaved rounds and the ratio of two programs, on clocks that tests advance."""

from __future__ import annotations

from statistics import median
from typing import Callable, Dict, List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.compare_peers.rounds import LEAST_ROUNDS, alternate, paired_ratio

pytestmark = pytest.mark.nightly

SECONDS = st.floats(min_value=1e-6, max_value=1e3)
PAIRS = st.lists(st.tuples(SECONDS, SECONDS), min_size=LEAST_ROUNDS, max_size=40)
TINY = 1e-9
CALL_SECONDS = 0.1


class Machine:
    """A clock, and programs whose batches take a known time on it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: List[str] = []

    def clock(self) -> float:
        return self.now

    def program(self, name: str, seconds: float) -> Callable[[int], None]:
        def run(batches: int) -> None:
            self.calls.append(name)
            self.now += batches * seconds

        return run


@given(PAIRS)
def test_the_interval_encloses_the_median_of_the_paired_ratios(pairs: List[List[float]]) -> None:
    ours, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    ratio = paired_ratio(ours, theirs)
    ratios = [b / a for a, b in zip(ours, theirs)]
    assert ratio.median == median(ratios)
    assert min(ratios) <= ratio.low <= ratio.median * (1 + TINY)
    assert ratio.median * (1 - TINY) <= ratio.high <= max(ratios)


@given(PAIRS, st.floats(min_value=0.1, max_value=10))
def test_a_disturbance_of_both_changes_no_ratio(pairs: List[List[float]], factor: float) -> None:
    ours, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    slowed = [factor if number % 2 else 1.0 for number in range(len(pairs))]
    ratio = paired_ratio([a * s for a, s in zip(ours, slowed)], [
        b * s for b, s in zip(theirs, slowed)
    ])  # fmt: skip
    assert ratio.median == pytest.approx(paired_ratio(ours, theirs).median)


@given(st.integers(0, LEAST_ROUNDS - 1))
def test_too_few_rounds_have_no_interval(rounds: int) -> None:
    with pytest.raises(ValueError, match="needs 6 pairs"):
        paired_ratio([1.0] * rounds, [1.0] * rounds)


@given(
    st.lists(st.floats(min_value=1e-3, max_value=5), min_size=2, max_size=4),
    st.floats(min_value=0.01, max_value=1),  # at most 500 rounds
    st.floats(min_value=1e-3, max_value=1),
)
def test_programs_alternate_until_the_time_is_used(
    batches: List[float], seconds: float, call_seconds: float
) -> None:
    machine = Machine()
    programs = {f"p{n}": machine.program(f"p{n}", each) for n, each in enumerate(batches)}
    times = alternate(programs, seconds, call_seconds, machine.clock)
    for number, each in enumerate(batches):
        assert times[f"p{number}"] == pytest.approx([each] * len(times["p0"]))
    assert len(times["p0"]) >= LEAST_ROUNDS
    assert machine.now >= seconds


def test_the_first_program_of_a_round_changes_in_turn() -> None:
    machine = Machine()
    programs = {name: machine.program(name, 2 * CALL_SECONDS) for name in "abc"}
    alternate(programs, 1e-3, CALL_SECONDS, machine.clock)
    rounds = machine.calls[-3 * LEAST_ROUNDS :]
    assert "".join(rounds) == "abcbcacab" * (LEAST_ROUNDS // 3)


def test_short_batches_are_timed_together() -> None:
    machine = Machine()
    seen: Dict[str, int] = {"most": 0}

    def short(batches: int) -> None:
        seen["most"] = max(seen["most"], batches)
        machine.now += batches * CALL_SECONDS / 50

    seconds = LEAST_ROUNDS * CALL_SECONDS
    alternate({"short": short}, seconds, CALL_SECONDS, machine.clock)
    assert 49 <= seen["most"] <= 50
    seen["most"] = 0  # a fifth of the time, so more rounds fit
    alternate({"short": short}, seconds / 5, CALL_SECONDS, machine.clock)
    assert 9 <= seen["most"] <= 10
