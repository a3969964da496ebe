"""The comparison of two benchmarks."""

from __future__ import annotations

import copy
import random
from typing import Any, Dict, List, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins import gate


def benchmark(
    rounds: List[float], canaries: Optional[List[float]] = None, items: float = 10, **changes: Any
) -> Dict[str, Any]:
    """Return a benchmark with a record as the meter writes it, reduced to what the gate reads."""
    record: Dict[str, Any] = {
        "config_hash": "h",
        "effective_options": {"batch_size": 8},
        "device": {"fingerprint": "cpu/x"},
        "conditions": {"allocator": "tuned"},
        "effective": {"precision": "bfloat16"},
        "throughput": {"unit": "items/s", "median": items / sorted(rounds)[len(rounds) // 2]},
        "items_per_round": items,
        "data": {"mode": "real", "source": "a", "corrupt": []},
        "canary": {"seconds": [0.001] * 3 if canaries is None else canaries},
    }
    record.update(changes)
    return {"extra_info": {"ipubench": record}, "stats": {"data": rounds, "iterations": 1}}


rounds_lists = st.lists(st.floats(0.01, 0.02), min_size=5, max_size=30)


@given(rounds_lists)
def test_a_run_passes_against_itself(rounds: List[float]) -> None:
    verdict = gate.compare(benchmark(rounds), benchmark(rounds), 0.05)
    assert verdict.kind == gate.PASS
    assert verdict.change == pytest.approx(0)
    assert verdict.low <= 0 <= verdict.high


@given(rounds_lists, st.floats(1.06, 3))
def test_a_slower_copy_regresses_and_a_faster_one_improves(
    rounds: List[float], factor: float
) -> None:
    slow = benchmark([value * factor for value in rounds])
    assert gate.compare(slow, benchmark(rounds), 0.05).kind == gate.REGRESSED
    assert gate.compare(benchmark(rounds), slow, 0.05).kind == gate.IMPROVED


@given(rounds_lists, st.floats(0.5, 2))
def test_a_slower_machine_is_no_regression(rounds: List[float], factor: float) -> None:
    """The canary slows down as the case does."""
    now = benchmark([value * factor for value in rounds], [0.001 * factor] * 3)
    assert gate.compare(now, benchmark(rounds), 0.05).kind == gate.PASS


@given(rounds_lists, st.integers(1, 100))
def test_another_number_of_items_per_round_changes_nothing(
    rounds: List[float], batches: int
) -> None:
    now = benchmark([value * batches for value in rounds], items=10 * batches)
    assert gate.compare(now, benchmark(rounds), 0.05).kind == gate.PASS


@given(rounds_lists, st.randoms(use_true_random=False))
def test_the_order_of_rounds_changes_nothing(rounds: List[float], generator: random.Random) -> None:
    shuffled = list(rounds)
    generator.shuffle(shuffled)
    before = benchmark([0.015] * 9)
    one = gate.compare(benchmark(rounds), before, 0.05)
    assert gate.compare(benchmark(shuffled), before, 0.05).change == pytest.approx(one.change)


def test_the_threshold_is_about_time_per_item() -> None:
    before = benchmark([0.1] * 9)
    assert gate.compare(benchmark([0.1049] * 9), before, 0.05).kind == gate.PASS
    assert gate.compare(benchmark([0.1051] * 9), before, 0.05).kind == gate.REGRESSED


def test_fresh_processes_decide_by_their_median() -> None:
    before, now = benchmark([0.1] * 9), benchmark([0.2] * 9)
    clear = [benchmark([value] * 9) for value in (0.1, 0.2, 0.101)]
    verdict = gate.compare(now, before, 0.05, clear)
    assert (verdict.kind, verdict.processes) == (gate.PASS, 3)
    assert verdict.low == pytest.approx(-0.5) and verdict.high == pytest.approx(0)
    slow = [benchmark([value] * 9) for value in (0.11, 0.2, 0.1)]
    verdict = gate.compare(now, before, 0.05, slow)
    assert verdict.kind == gate.REGRESSED
    assert verdict.now == pytest.approx(10 / 0.11)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"device": {"fingerprint": "cpu/y"}}, "another machine (cpu/x, now cpu/y)"),
        (
            {"config_hash": "g", "effective_options": {"batch_size": 9}},
            "another configuration (batch_size 8 -> 9)",
        ),
        ({"conditions": {"allocator": "system"}}, "allocator tuned -> system"),
        ({"effective": {"precision": "float32"}}, "precision bfloat16 -> float32"),
        (
            {"data": {"mode": "real", "source": "b", "corrupt": ["x"]}},
            "other data (mode real, source a, now mode real, source b)",
        ),
        ({"throughput": {"unit": "images/s", "median": 1.0}}, "unit items/s -> images/s"),
    ],
)
def test_what_may_not_be_compared_says_why(change: Dict[str, Any], reason: str) -> None:
    verdict = gate.compare(benchmark([9.0] * 9, **change), benchmark([0.1] * 9), 0.05)
    assert verdict.kind == gate.INCOMPARABLE
    assert reason in verdict.reasons


def test_the_interval_widens_towards_the_noisier_side() -> None:
    """Rounds now: quartile 0.11, its interval 0.10 to 0.14; before: no noise at all."""
    rounds = [0.10] * 4 + [0.11] * 8 + [0.14] * 24
    verdict = gate.compare(benchmark(rounds), benchmark([0.11] * 36), 0.5)
    assert verdict.change == pytest.approx(0)
    assert verdict.low == pytest.approx(0.11 / 0.14 - 1)
    assert verdict.high == pytest.approx(0.11 / 0.10 - 1)


def test_comparing_changes_neither_side() -> None:
    now, before = benchmark([0.1] * 9), benchmark([0.2] * 9)
    copies = copy.deepcopy((now, before))
    gate.compare(now, before, 0.05, [now])
    assert (now, before) == copies


def test_the_message_says_all_that_matters() -> None:
    before = benchmark([0.1] * 9)
    fresh = [benchmark([value] * 9) for value in (0.2, 0.21, 0.19)]
    verdict = gate.compare(benchmark([0.2] * 9), before, 0.05, fresh)
    text = gate.message("x-synthetic", verdict, "results/run.jsonl")
    for part in (
        "x-synthetic has become slower",
        "100 items/s before, 50 items/s now",
        "-50.0% (-52.4% to -47.4%, the median of 3 fresh processes)",
        "allows 5% more time",
        "results/run.jsonl",
    ):
        assert part in text


def test_a_verdict_is_plain_json() -> None:
    assert gate.Verdict(gate.NEW).as_dict()["change"] is None
