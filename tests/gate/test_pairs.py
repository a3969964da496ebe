"""The statistics of pairs: published numbers, and properties of any pairs."""

from __future__ import annotations

import math
import random
from typing import Any, Dict, List, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipubench.plugins.gate.decision import Need
from ipubench.plugins.gate.inference import Effect, decide
from ipubench.plugins.gate.metric_verdict import MetricVerdict, left_out
from ipubench.plugins.gate.pairs import (
    FALSE_ALARMS,
    PairRule,
    compare,
    conclude_pairs,
    decide_pairs,
    is_clear,
    kind_of,
    looks,
    not_judged,
    too_many_disturbed,
)
from ipubench.plugins.gate.rounds import AdjacentRounds, Side
from ipubench.plugins.gate.sides import (
    Pair,
    Sides,
    incomparable,
    paired_effect,
    seconds_wanted,
)
from ipubench.plugins.gate.stored import DETECTABLE_CHANGE
from ipubench.plugins.record.record import THROUGHPUT
from ipubench.plugins.record.structs import Benchmark, Contention
from ipubench.plugins.record.verdict import IMPROVED, INCONCLUSIVE, PASS, REGRESSED, UNJUDGED
from tests.support.stored import a_benchmark, changed

DIFFERENCES = st.lists(st.floats(-1, 1), min_size=4, max_size=14)
quick = settings(database=None)


def pairs(differences: List[float]) -> List[Pair]:
    return [Pair(value, here_first=number % 2 == 0) for number, value in enumerate(differences)]


def test_the_effect_is_that_of_the_two_sample_t_test_of_the_orders() -> None:
    """The effect is half the difference of two groups, one of them negated."""
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

    Published: mean difference 1.58, standard error 0.389, t = 4.06. With two orders of five pairs
    the estimate is the same; the error loses one degree of freedom.
    """
    one = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    two = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    found = paired_effect(pairs([b - a for a, b in zip(one, two)]))
    assert found.change == pytest.approx(1.58)
    assert found.degrees == 8
    assert found.error == pytest.approx(0.389, rel=0.08)
    assert found.change / found.error == pytest.approx(4.06, rel=0.08)


def test_the_penalty_of_being_first_cancels() -> None:
    found = paired_effect([Pair(0.05 + 0.3 * (1 if n % 2 else -1), n % 2 == 1) for n in range(6)])
    assert found.change == pytest.approx(0.05)
    assert found.error == pytest.approx(0, abs=1e-12)


def test_it_cancels_with_unequal_numbers_of_each_order() -> None:
    made = [Pair(0.35, True), Pair(-0.25, False), Pair(0.35, True)]
    assert paired_effect(made).change == pytest.approx(0.05)


@quick
@given(DIFFERENCES)
def test_swapping_the_two_processes_negates(values: List[float]) -> None:
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
def test_a_slower_copy_is_slower_by_that_amount(values: List[float], slower: float) -> None:
    found = paired_effect(pairs(values))
    moved = paired_effect(pairs([value + slower for value in values]))
    assert moved.change - found.change == pytest.approx(slower, abs=1e-9)
    assert moved.error == pytest.approx(found.error, abs=1e-9)


@pytest.mark.parametrize(
    ("cap", "expected"),
    [(3, [3]), (4, [4]), (5, [4, 5]), (12, [4, 6, 8, 10, 12])],
)
def test_looks_follow_complete_couples_of_pairs(cap: int, expected: List[int]) -> None:
    assert looks(cap) == expected


def test_the_level_is_corrected_for_looks_and_tests() -> None:
    limits = {THROUGHPUT: 0.02}
    assert PairRule(limits, 10, 12).level == pytest.approx(FALSE_ALARMS / 50)
    assert PairRule(limits, 1, 4).level == pytest.approx(FALSE_ALARMS)
    assert (PairRule(limits, most=1).cap, looks(PairRule(limits, most=1).cap)) == (3, [3])


NARROW, WIDE = Effect(0.1, 0.0089, 10), Effect(0.1, 0.0091, 10)  # 2.0 and 2.03% each way


@pytest.mark.parametrize(
    ("kind", "effect", "threshold", "clear"),
    [
        (UNJUDGED, NARROW, None, True),
        (UNJUDGED, WIDE, None, False),
        (PASS, WIDE, 0.02, True),
        (INCONCLUSIVE, NARROW, 0.02, False),
    ],
)
def test_no_more_pairs_are_needed_if_the_verdict_is_clear(
    kind: str, effect: Effect, threshold: Optional[float], clear: bool
) -> None:
    assert is_clear(MetricVerdict(THROUGHPUT, kind, effect, 1.0, 1.0, threshold)) is clear


@pytest.mark.parametrize(
    ("effect", "threshold", "kind"),
    [
        (Effect(0.0, 0.02, 10), 0.02, PASS),  # 4.5% is excluded
        (Effect(0.0, 0.03, 10), 0.02, INCONCLUSIVE),
        (Effect(0.05, 0.05, 10), 0.1, PASS),  # 17% is excluded, and twice the threshold
        (Effect(0.05, 0.08, 10), 0.1, INCONCLUSIVE),
    ],
)
def test_a_pass_excludes_five_percent_or_twice_the_threshold(
    effect: Effect, threshold: float, kind: str
) -> None:
    assert kind_of(effect, threshold, level=0.01) == kind


@pytest.mark.parametrize(
    ("usable", "measured", "given"),
    [(0, 3, False), (0, 4, True), (4, 8, False), (4, 9, True), (1, 4, False)],
)
def test_a_case_is_abandoned_after_four_disturbed_pairs_if_they_are_the_majority(
    usable: int, measured: int, given: bool
) -> None:
    assert too_many_disturbed(usable, measured) is given


THRESHOLD, NOISE, CAP = 0.02, 0.02, 16


def simulated(slower: float, cases: int, runs: int = 1000) -> Dict[str, float]:
    """Return verdict -> its share, with the looks of against.py; '' if the pairs did not suffice.

    Pairs have normal noise, and being first takes 1% longer. The seed is fixed.
    """
    rng = random.Random(1)
    level = PairRule({THROUGHPUT: THRESHOLD}, cases, CAP).level
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


def benchmark(seconds: float, latency: Any = 1.0, **record: Any) -> Benchmark:
    """Return a benchmark of equal rounds of eight items."""
    usual = {"effective": {"precision": "float32"}, "latency.p99_ms": latency}
    return a_benchmark([seconds] * 20, 8.0, **{**usual, **record})


def in_order(pairs: List[Any]) -> List[Sides]:
    return [Sides(here, there, n % 2 == 0) for n, (here, there) in enumerate(pairs)]


def judged(sides: List[Any], thresholds: Dict[str, float]) -> Any:
    return conclude_pairs(in_order(sides), PairRule(thresholds))


def test_a_slower_case_has_regressed() -> None:
    noisy = [(benchmark(0.10 + n / 1000), benchmark(0.09 + n / 1000)) for n in range(4)]
    found = judged(noisy, {"throughput": 0.05})
    assert (found.kind, found.metric, found.processes) == ("regressed", "throughput", 4)
    assert found.now == pytest.approx(8 / 0.1015, rel=1e-3)
    assert found.before == pytest.approx(8 / 0.0915, rel=1e-3)
    assert found.change == pytest.approx(-0.0985, abs=0.001)
    assert found.low < found.change < found.high < -0.05
    assert judged([(b, a) for a, b in noisy], {"throughput": 0.05}).kind == "improved"
    passed = judged(noisy, {"throughput": 0.2})
    assert (passed.kind, passed.threshold, passed.allowed) == ("pass", 0.2, 0.2)
    assert judged(noisy, {"throughput": 0.11}).kind == "pass"


def test_an_open_result_of_the_pairs_is_inconclusive() -> None:
    """The estimate exceeds the threshold, but there may be no change at all."""
    seconds = ((0.10, 0.09), (0.09, 0.095), (0.10, 0.095), (0.105, 0.09))
    noisy = [(benchmark(here), benchmark(there)) for here, there in seconds]
    found = judged(noisy, {"throughput": 0.02})
    assert (found.kind, found.low < 0 < found.high) == ("inconclusive", True)


def test_without_a_threshold_the_change_is_shown() -> None:
    found = judged([(benchmark(0.2), benchmark(0.1))] * 4, {})
    assert (found.kind, found.change) == ("not judged", pytest.approx(-0.5))
    assert found.threshold is None and found.allowed is None


def test_another_metric_can_decide() -> None:
    sides = [(benchmark(0.1, latency=2.0), benchmark(0.1, latency=1.0))] * 4
    assert judged(sides, {"throughput": 0.05}).kind == "pass"
    found = judged(sides, {"throughput": 0.05, "latency_p99": 0.1})
    assert (found.kind, found.metric) == ("regressed", "latency_p99")
    (latency,) = found.also
    assert (latency.before, latency.now) == (pytest.approx(1), pytest.approx(2))
    assert latency.change == pytest.approx(1)
    assert (latency.low, latency.high) == (pytest.approx(1), pytest.approx(1))


def test_a_metric_that_one_process_lacks_is_not_judged() -> None:
    sides = [(benchmark(0.1), benchmark(0.1, compile="cached"))] * 4
    thresholds = {"throughput": 0.05, "compile_time": 0.1}
    found = judged(sides, thresholds)
    assert (found.kind, found.also) == ("pass", ())
    metrics = compare(in_order(sides), PairRule(thresholds))
    assert not_judged(metrics, thresholds) == [left_out("compile_time")]
    assert not_judged(metrics, {"throughput": 0.05}) == []


QUIET = Contention(lost=[0.0] * 20, kept=[True] * 20, enough=True, limit=0.02)


def test_processes_in_two_states_of_the_machine_are_not_compared() -> None:
    slow_copy, usual = (
        benchmark(0.1, contention=changed(QUIET, {"copy_ms": copy})) for copy in (2.0, 1.0)
    )
    assert Sides(usual, usual).usable
    assert not Sides(slow_copy, usual).usable
    for lost in (0.0, 0.3):
        unclear = benchmark(0.1, contention=changed(QUIET, {"lost": [lost] * 20, "enough": False}))
        assert not Sides(unclear, usual).usable


def test_the_canary_of_another_framework_changes_nothing() -> None:
    slow_canary = benchmark(0.1, **{"canary.seconds": [0.5]})
    assert judged([(slow_canary, benchmark(0.1))] * 4, {"throughput": 0.02}).change == 0


def test_another_engine_is_named_and_compared() -> None:
    other = benchmark(0.1, effective={"precision": "bfloat16"})
    found = judged([(benchmark(0.1), other)] * 4, {"throughput": 0.02})
    assert (found.kind, found.reasons) == ("pass", ("precision bfloat16 -> float32",))


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"config_hash": "x"}, "another configuration there"),
        ({"device.fingerprint": "gpu"}, "another device there (gpu)"),
        ({"throughput.unit": "steps/s"}, "unit steps/s -> items/s"),
        (
            {"rounds.shortened": 0.25},
            "requests sent at once (0.25 of those configured there, 1 here)",
        ),
    ],
)
def test_incomparable_cases(record: Dict[str, Any], reason: str) -> None:
    at_once: Dict[str, Any] = {"effective": {"precision": "float32", "request_type": "async"}}
    assert incomparable(benchmark(0.1, **at_once), benchmark(0.1, **at_once, **record)) == [reason]
    assert incomparable(benchmark(0.1), benchmark(0.1)) == []


def test_facts_of_a_test_are_compared_if_the_policy_names_them() -> None:
    here, there = (
        changed(benchmark(0.1), {"extra_info.others": {"batch_size": size, "date": "today"}})
        for size in (64, 128)
    )
    assert incomparable(here, there) == incomparable(here, there, ["date"]) == []
    assert len(incomparable(here, there, ["batch_size", "date", "nothing"])) == 1
    assert len(judged([(here, there)] * 4, {"throughput": 0.02}).extra_info) == 1
    assert judged([(here, here)] * 4, {"throughput": 0.02}).extra_info == ()


def test_other_items_and_settings_cannot_be_compared() -> None:
    def of(items: float, batches: int) -> Benchmark:
        facts = {"items_per_round": items, "rounds.batches_per_step": batches}
        return benchmark(0.1, **facts)

    here, longer, larger = of(64, 8), of(128, 16), of(128, 8)
    assert incomparable(here, longer) == []
    assert len(incomparable(here, larger)) == 1
    collected = changed(here, {"options": {"disable_gc": True, "timer": "a clock"}})
    kept = changed(here, {"options": {"disable_gc": False, "timer": "another"}})
    assert len(incomparable(collected, kept)) == 1
    assert incomparable(collected, here) == incomparable(collected, collected) == []


def test_latencies_of_different_calls_are_not_judged() -> None:
    def of(source: str) -> Benchmark:
        return benchmark(0.1, **{"latency.source": source})

    thresholds = {"throughput": 0.05, "latency_p99": 0.1}
    for source, metrics in (("rounds", 2), ("single-batch calls", 2), ("calls of several", 1)):
        sides = in_order([(of("single-batch calls"), of(source))] * 4)
        assert len(compare(sides, PairRule(thresholds))) == metrics


def of_change(change: float, number: int, alone: bool = True) -> Sides:
    """Return a pair whose side here takes ``change`` more time; others differ a little."""
    here = benchmark(0.1 * (1 + change) * (1 + 0.002 * (number % 3)))
    return Sides(here, benchmark(0.1), number % 2 == 0, alone=alone)


def measured(change: float, together: int, alone: int = 0, change_alone: float = 0) -> List[Sides]:
    """Return pairs with other cases, and then pairs without."""
    first = [of_change(change, number, alone=False) for number in range(together)]
    return first + [of_change(change_alone, number) for number in range(alone)]


GATE = PairRule({THROUGHPUT: 0.05}, cases=12)


@pytest.mark.parametrize(
    ("pairs", "decision"),
    [
        (measured(0, 0), Need(pairs=4)),
        (measured(0, 3), Need(pairs=1)),
        (measured(0, 2, 1), Need(pairs=1, alone=True)),
        (measured(0, 4), PASS),
        (measured(-0.3, 6), IMPROVED),
        # Far beyond the gate: other cases need not wait for it.
        (measured(0.3, 1), Need(pairs=3)),
        (measured(0.3, 2), Need(pairs=2, alone=True)),
        # Slower next to others: pairs of its own have to confirm it, one in each order.
        (measured(0.08, 8), Need(pairs=1, alone=True)),
        (measured(0.08, 8, 1, 0.08), Need(pairs=1, alone=True)),
        (measured(0.08, 8, 2, 0.08), REGRESSED),
        # It is not slower alone: pairs of its own decide.
        (measured(0.2, 8, 2, 0.0), Need(pairs=1, alone=True)),
        (measured(0.2, 8, 4, 0.0), PASS),
    ],
)
def test_what_a_case_has_or_needs(pairs: List[Sides], decision: Any) -> None:
    found = decide_pairs(pairs, GATE)
    assert (found if isinstance(found, Need) else found.kind) == decision


def test_a_case_that_was_faster_in_each_pair_passes_when_the_time_is_over() -> None:
    noisy = [of_change(change, number) for number, change in enumerate((-0.6, -0.25, -0.5))]
    for count in (2, 3):
        assert conclude_pairs(noisy[:count], GATE, ["no time"]).kind == PASS
    assert conclude_pairs(noisy[:1], GATE).kind == INCONCLUSIVE
    slower = [of_change(0.1, 0), *noisy[1:]]
    assert conclude_pairs(slower, GATE).kind == INCONCLUSIVE


def test_a_case_that_is_slower_only_next_to_others_never_fails() -> None:
    rule = PairRule({THROUGHPUT: 0.05}, most=9)
    for pairs in (measured(0.2, 9), measured(0.2, 8, 1, 0.2), measured(0.2, 7, 2, 0.0)):
        assert conclude_pairs(pairs, rule).kind == INCONCLUSIVE
    assert conclude_pairs(measured(0.2, 7, 2, 0.2), rule).kind == REGRESSED


def pair_of_rounds(change: float, noise: float, seed: int) -> Sides:
    """Return a pair of ten rounds a side, of 0.1 s with this noise, that differs by ``change``."""
    draw = random.Random(seed)
    here = [0.1 * math.exp(change + draw.gauss(0, noise)) for _ in range(10)]
    first = [number % 2 == 0 for number in range(10)]
    made = AdjacentRounds(Side(here, [0.0] * 10), Side([0.1] * 10, [0.0] * 10), first)
    return Sides(benchmark(0.1), benchmark(0.1), seed % 2 == 0, made)


@pytest.mark.parametrize(
    ("noise", "between", "overhead", "least", "most"),
    [
        (0.02, 0.05, 1.0, 0.0, 0.4),  # pairs differ far more than rounds: a few rounds are enough
        (0.2, 0.001, 1.0, 4.0, 4.1),  # rounds differ more: twice as many
        (0.05, 0.05, 1.0, 0.2, 0.9),
        (0.05, 0.05, 9.0, 0.7, 2.7),  # pairs that take long have more
    ],
)
def test_the_seconds_of_a_pair_follow_from_both_variances_and_both_times(
    noise: float, between: float, overhead: float, least: float, most: float
) -> None:
    changes = [0.0, between, -between, 1.2 * between, -1.2 * between, 0.5 * between]
    pairs = [pair_of_rounds(change, noise, seed) for seed, change in enumerate(changes)]
    found = seconds_wanted(pairs, overhead)
    assert found is not None and least <= found <= most
    assert seconds_wanted(pairs[:2], overhead) is None
