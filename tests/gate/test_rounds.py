"""Comparing the rounds of two alternating processes."""

from __future__ import annotations

import json
import math
import random
from typing import List, Optional

import msgspec
import pytest

from ipubench.plugins.gate.pairs import PairRule, conclude_pairs
from ipubench.plugins.gate.rounds import (
    LEAST_FOR_PRECISION,
    AdjacentRounds,
    Side,
    equally_disturbed,
)
from ipubench.plugins.gate.sides import Sides, can_compare
from ipubench.plugins.record.record import THROUGHPUT
from ipubench.plugins.record.verdict import Verdict
from tests.gate.test_pairs import benchmark

RULE = PairRule({THROUGHPUT: 0.02})


def rounds(
    here: List[float], there: List[float], lost: Optional[List[float]] = None
) -> AdjacentRounds:
    shares: List[Optional[float]] = list(lost or [0.0] * len(here))
    first = [k % 4 in (0, 3) for k in range(len(here))]
    return AdjacentRounds(Side(here, shares), Side(there, [0.0] * len(there)), first)


def noisy(
    count: int, slower: float = 0.0, noise: float = 0.02, first: float = 0.0, seed: int = 1
) -> AdjacentRounds:
    """Return rounds of a machine whose speed drifts, with a penalty for being first."""
    rng = random.Random(seed)
    drift = [math.exp(math.sin(k / 9) / 2) for k in range(count)]
    made = rounds(
        [d * math.exp(slower + rng.gauss(0, noise)) for d in drift],
        [d * math.exp(rng.gauss(0, noise)) for d in drift],
    )
    for k, here_first in enumerate(made.here_first):
        (made.here if here_first else made.there).seconds[k] *= math.exp(first)
    return made


@pytest.mark.parametrize(
    ("here", "there", "equal"),
    [
        (0.0, 0.0, True),
        (0.0, 0.09, True),
        (0.0, 0.11, False),
        (0.90, 0.95, True),  # next to a steady neighbour on one of two cores
        (0.90, 1.05, False),
        (None, 0.9, True),  # the system counts nothing
    ],
)
def test_unequally_disturbed_halves_are_not_compared(
    here: Optional[float], there: Optional[float], equal: bool
) -> None:
    assert equally_disturbed(here, there) == equally_disturbed(there, here) == equal


def test_the_drift_of_the_machine_and_being_first_cancel() -> None:
    found = noisy(40, slower=0.05, noise=0, first=0.1).effect()
    assert found.change == pytest.approx(0.05)
    assert found.error == pytest.approx(0, abs=1e-12)


def test_the_interval_contains_the_difference_as_often_as_promised() -> None:
    held = 0
    for seed in range(400):
        low, high = noisy(24, slower=0.05, seed=seed).effect().interval()
        held += low < 0.05 < high
    assert 0.92 * 400 <= held <= 0.98 * 400


def test_items_of_a_round_are_taken_into_account() -> None:
    made = rounds([0.2] * 8, [0.1] * 8)
    made.items_here, made.items_there = 200, 100
    assert made.effect().change == pytest.approx(0)


def test_a_disturbed_round_does_not_decide() -> None:
    """Each order keeps three of its five differences."""
    made = rounds([0.1] * 4 + [0.9] + [0.1] * 5, [0.1] * 10)
    assert made.effect().change == pytest.approx(0)
    assert made.effect().degrees == 4


def test_incomparable_rounds_are_left_out() -> None:
    made = rounds([0.3] * 8 + [0.1] * 8, [0.1] * 16, lost=[0.4] * 8 + [0.0] * 8)
    assert made.comparable() == [False] * 8 + [True] * 8
    assert made.enough
    assert made.effect().change == pytest.approx(0)


def test_too_few_comparable_rounds_give_no_result() -> None:
    assert not rounds([0.1] * 3, [0.1] * 3).enough
    assert rounds([0.1] * 4, [0.1] * 4).enough
    assert not rounds([0.1] * 20, [0.1] * 20, lost=[0.4] * 16 + [0.0] * 4).enough
    # Both orders are needed: 0 and 3 of every four begin here.
    lost = [0.0 if k % 4 in (0, 3) else 0.4 for k in range(16)]
    assert not rounds([0.1] * 16, [0.1] * 16, lost=lost).enough


def test_rounds_end_when_more_would_not_narrow_the_interval() -> None:
    steady, budget = rounds([0.1] * 40, [0.1] * 40), 100.0
    assert steady.stop_reason(budget, 0.01, None) == "precision"
    few = LEAST_FOR_PRECISION - 2
    assert not rounds([0.1] * few, [0.1] * few).stop_reason(budget, 0.01, None)
    varying = noisy(20, noise=0.1)
    low, high = varying.effect().interval()
    assert varying.stop_reason(budget, 1.01 * (high - low), None) == "precision"
    assert not varying.stop_reason(budget, 0.99 * (high - low), None)


def test_the_budget_counts_valid_rounds_and_stretches_once() -> None:
    def reason(lost: List[float], budget: float) -> str:
        rng = random.Random(1)
        count = len(lost)
        here = [0.1 * math.exp(rng.gauss(0, 0.1)) for _ in range(count)]
        return rounds(here, [0.1] * count, lost).stop_reason(budget, 0.01, None)

    assert reason([0.0] * 40, budget=7.0) == "budget"
    assert reason([0.0] * 40, budget=9.0) == ""
    assert reason([0.0, 0.4] * 20, budget=7.0) == ""
    assert reason([0.0] * 2 + [0.4] * 38, budget=3.0) == ""
    assert reason([0.0] * 2 + [0.4] * 38, budget=2.5) == "disturbed"
    assert reason([0.4] * 40, budget=7.0) == "disturbed"


def test_a_requested_number_of_rounds_is_kept() -> None:
    made = rounds([0.1] * 20, [0.1] * 20, lost=[0.9] * 20)
    assert [made.looks(steps) for steps in (19, 20, 21)] == [True, True, False]
    assert [made.stop_reason(0.1, 0.01, steps) for steps in (19, 20, 21)] == ["steps", "steps", ""]


def test_it_looks_less_often_with_more_rounds() -> None:
    looks = [k for k in range(2, 2001, 2) if rounds([0.1] * k, [0.1] * k).looks(None)]
    assert looks[:3] == [4, 6, 8]
    assert len([k for k in looks if k > 1000]) < 60


def test_the_journal_keeps_all_rounds() -> None:
    made = noisy(8)
    made.stopped_by = "budget"
    plain = json.loads(json.dumps(msgspec.to_builtins(made.decided())))
    assert plain["compared"] == [True] * 8
    assert msgspec.convert(plain, AdjacentRounds) == made.decided()


def test_a_disturbed_case_is_inconclusive_and_reports_the_disturbance() -> None:
    disturbed = rounds([0.1] * 8, [0.1] * 8, lost=[0.74] * 8)
    disturbed.there.lost = [0.5] * 8
    fine = rounds([0.1] * 8, [0.1] * 8)
    pairs = [Sides(benchmark(0.1), benchmark(0.1), k % 2 == 0, disturbed) for k in range(4)]
    pairs.append(Sides(benchmark(0.1), benchmark(0.1), True, fine))
    assert [sides.usable for sides in pairs] == [False] * 4 + [True]
    assert not can_compare([sides.here_first for sides in pairs if sides.usable])
    found = conclude_pairs(pairs, RULE)
    assert found.kind == "inconclusive"
    assert "4 of 5 pairs" in found.reasons[0] and "62%" in found.reasons[0]
    assert found.change is None


def test_an_equal_disturbance_in_both_processes_is_no_obstacle_but_is_reported() -> None:
    def verdict(lost: float, here: float = 0.1) -> Verdict:
        made = rounds([here] * 8, [0.1] * 8, lost=[lost] * 8)
        made.there.lost = [lost + 0.02] * 8
        # Their common rounds decide, not those in each process's record.
        pairs = [Sides(benchmark(0.1), benchmark(0.1), k % 2 == 0, made) for k in range(4)]
        assert all(sides.usable for sides in pairs)
        return conclude_pairs(pairs, RULE)

    assert (verdict(0.9).kind, verdict(0.9, 0.11).kind) == ("pass", "regressed")
    (said,) = verdict(0.9).reasons
    assert "91%" in said and verdict(0.05).reasons == ()


def computing(
    here: float, lost: float, there_lost: float, threads: float = 1.0, busy: float = 1.0
) -> AdjacentRounds:
    """Return rounds of a case that computes all the time, while others hold the CPUs.

    ``here``: the CPU seconds of a round, 0.1 there. ``busy``: the share of the time that it
    computes or waits for a CPU.
    """
    made = rounds([0.0] * 8, [0.0] * 8, lost=[lost] * 8)
    made.there.lost = [there_lost] * 8
    sides = (made.here, here, lost, threads), (made.there, 0.1, there_lost, 1.0)
    for side, used, share, number in sides:
        # Being first takes a tenth longer, which cancels.
        first = [one == (side is made.here) for one in made.here_first]
        times = [used * (1.1 if one else 1.0) for one in first]
        side.cpu_seconds = list(times)
        side.seconds = [one / (number * (busy - share)) for one in times]
        side.waited = [number * share * one for one in side.seconds]
    return made


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (computing(0.1, 0.6, 0.4), "pass"),
        (computing(0.147, 0.6, 0.4), "regressed"),
        (computing(0.07, 0.6, 0.4), "improved"),
        (computing(0.147, 0.6, 0.4, busy=0.9), "inconclusive"),  # it waits for something else
        (computing(0.1, 0.6, 0.4, threads=2.0), "inconclusive"),  # another number of threads
        (computing(2.0, 0.6, 0.4, busy=0.9), "regressed"),  # whatever it waits for
        (computing(2.0, 0.6, 0.4, threads=2.0), "regressed"),
        (computing(2.0, 0.6, 0.4, threads=9.0), "inconclusive"),  # no slower, if all have a CPU
    ],
)
def test_cpu_time_decides_while_others_hold_the_cpus(made: AdjacentRounds, kind: str) -> None:
    pairs = [Sides(benchmark(0.1), benchmark(0.1), k % 2 == 0, made) for k in range(4)]
    assert not any(sides.usable for sides in pairs)
    found = conclude_pairs(pairs, RULE)
    assert (found.kind, found.by_cpu_time) == (kind, kind != "inconclusive")


def test_a_case_that_is_many_times_slower_fails_in_any_state_of_the_machine() -> None:
    """Of two long rounds here, one ran in another state; nothing took time from them."""
    made = rounds([0.5, 0.51], [0.001, 0.001])
    made.stopped_by = "budget"
    made.here.cpu_seconds, made.there.cpu_seconds = [0.5, 0.51], [0.001, 0.001]
    made.here.waited, made.there.waited = [0.0, 0.0], [0.0, 0.0]
    made.here.copies_ms, made.there.copies_ms = [0.6, 0.9], [0.6, 0.6]
    pairs = [Sides(benchmark(0.5), benchmark(0.001), k % 2 == 0, made) for k in range(4)]
    assert not any(sides.usable for sides in pairs)
    found = conclude_pairs(pairs, RULE)
    assert (found.kind, found.by_cpu_time) == ("regressed", True)


def test_clean_rounds_are_judged_by_their_time() -> None:
    """The CPU time has grown, but the case is not slower: it uses two CPUs."""
    made = computing(0.147, 0.0, 0.0)
    made.here.seconds = list(made.there.seconds)
    pairs = [Sides(benchmark(0.1), benchmark(0.1), k % 2 == 0, made) for k in range(4)]
    assert (conclude_pairs(pairs, RULE).kind, made.cpu_effect() is None) == ("pass", False)
    made.here.cpu_seconds[0] = None
    assert made.cpu_effect() is None


def test_rounds_in_two_states_of_the_machine_are_not_compared() -> None:
    rounds = AdjacentRounds()
    rounds.here_first = [True, False] * 2
    rounds.here.copies_ms, rounds.there.copies_ms = [0.5, 1.0, 1.0, 0.5], [0.6, 1.1, 0.5, 1.0]
    for side in (rounds.here, rounds.there):
        side.seconds, side.lost = [1.0] * 4, [0.0] * 4
    assert rounds.comparable() == [True, True, False, False]
    # Without readings of the machine all rounds are comparable.
    rounds.here.copies_ms = rounds.there.copies_ms = []
    assert rounds.comparable() == [True] * 4


def test_long_rounds_are_few() -> None:
    """The orders of pairs of processes alternate, so one round of each is enough."""
    for count in (1, 2):
        made = rounds([0.2] * count, [0.1] * count)
        assert not made.enough
        made.stopped_by = "budget"
        assert made.enough and made.effect().change == pytest.approx(math.log(2))
        made.here.lost[0] = 0.9
        assert not made.enough
    assert not AdjacentRounds(stopped_by="budget").enough
