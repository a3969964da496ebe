"""Comparing two benchmarks."""

from __future__ import annotations

import math
import random
import re
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.plugins.gate import stored as gate
from ipubench.plugins.gate.decision import TIME_OVER
from ipubench.plugins.gate.inference import noise_floor
from ipubench.plugins.gate.metric_verdict import CANARY_SHARE, left_out
from ipubench.plugins.gate.stored import StoredRule
from ipubench.plugins.record.record import THROUGHPUT, with_processes
from ipubench.plugins.record.structs import Benchmark, Contention
from ipubench.plugins.record.verdict import (
    IMPROVED,
    INCOMPARABLE,
    INCONCLUSIVE,
    PASS,
    REGRESSED,
    UNJUDGED,
    Verdict,
    known,
    message,
)
from scripts.gate_study.drive import Measure, judged
from tests.support.stored import a_benchmark, changed


def benchmark(
    rounds: List[float], canaries: Any = None, items: Any = 10, **changes: Any
) -> Benchmark:
    """Return a benchmark as the meter leaves one, with a record of these changes."""
    shown = {} if canaries is None else {"canary.seconds": canaries}
    return changed(
        a_benchmark(rounds, items), {f"record.{k}": v for k, v in {**shown, **changes}.items()}
    )


LIMIT = {THROUGHPUT: 0.02}
rounds_lists = st.lists(st.floats(0.01, 0.02), min_size=5, max_size=30)


def stored(seconds: Sequence[float]) -> Benchmark:
    """Return a benchmark of several processes; all but the first are fresh."""
    own, *fresh = [benchmark([value] * 9) for value in seconds]
    return with_processes(own, fresh)


def processes(seconds: Sequence[float], asked: List[int]) -> Callable[[int], Benchmark]:
    """Return a function that measures again: each process in turn, then always the last."""

    def measure(number: int) -> Benchmark:
        asked.append(number)
        return benchmark([seconds[min(number, len(seconds)) - 1]] * 9)

    return measure


def compare(now: Benchmark, before: Benchmark, threshold: float) -> Verdict:
    """Judge throughput without further measurements."""
    return gate.judge(now, before, StoredRule({THROUGHPUT: threshold}))


CALM = [0.1, 0.1, 0.101, 0.099, 0.1, 0.1005, 0.0995]
NOISY = [0.1, 0.09, 0.11, 0.095, 0.105, 0.112, 0.088]


@given(rounds_lists)
def test_a_run_passes_against_itself(rounds: List[float]) -> None:
    verdict = compare(benchmark(rounds), benchmark(rounds), 0.05)
    assert verdict.kind in (PASS, INCONCLUSIVE)
    assert verdict.change == pytest.approx(0)
    assert known(verdict.low) <= 0 <= known(verdict.high)


@given(st.floats(1.06, 3))
def test_a_slower_copy_regresses_and_a_faster_one_improves(factor: float) -> None:
    slow = stored([value * factor for value in CALM])
    assert compare(slow, stored(CALM), 0.02).kind == REGRESSED
    assert compare(stored(CALM), slow, 0.02).kind == IMPROVED


@given(st.floats(0.5, 2))
def test_part_of_a_change_is_due_to_a_slower_machine(factor: float) -> None:
    """A case follows the canary in part; the rest is its own change."""
    now = benchmark([0.1 * factor] * 9, [0.001 * factor] * 3)
    verdict = compare(now, benchmark([0.1] * 9), 0.05)
    assert verdict.change == pytest.approx(factor ** (CANARY_SHARE - 1) - 1)


def test_a_process_counts_with_its_median_round_and_the_first_quartile_of_its_canaries() -> None:
    now = benchmark([0.1, 0.1, 0.2, 0.4, 0.8], [0.001, 0.002, 0.003, 0.004, 0.005])
    verdict = compare(now, benchmark([0.2] * 9, [0.002] * 3), 0.05)
    assert (verdict.now, verdict.change) == pytest.approx((50, 0))


@given(rounds_lists, st.integers(1, 100))
def test_another_number_of_items_per_round_changes_nothing(
    rounds: List[float], batches: int
) -> None:
    more = {"rounds.batches_per_step": batches}
    now = benchmark([value * batches for value in rounds], items=10 * batches, **more)
    assert compare(now, benchmark(rounds), 0.05).change == pytest.approx(0)


@given(rounds_lists, st.randoms(use_true_random=False))
def test_the_order_of_rounds_changes_nothing(rounds: List[float], generator: random.Random) -> None:
    shuffled = list(rounds)
    generator.shuffle(shuffled)
    before = benchmark([0.015] * 9)
    one = compare(benchmark(rounds), before, 0.05)
    assert compare(benchmark(shuffled), before, 0.05).change == pytest.approx(one.change)


def test_more_compared_cases_require_more_evidence() -> None:
    slow = [0.105, 0.106, 0.104]
    few, many = [], []  # type: List[int], List[int]
    suspect, before = benchmark([0.105] * 9), stored(CALM)
    assert judged(suspect, before, StoredRule(LIMIT, 1), processes(slow, few)).kind == REGRESSED
    assert judged(suspect, before, StoredRule(LIMIT, 200), processes(slow, many)).kind == REGRESSED
    assert len(few) < len(many)


def test_a_change_within_the_threshold_passes_even_if_certain() -> None:
    slow = [value * 1.015 for value in CALM]
    rule = StoredRule(LIMIT, cap=50)
    verdict = judged(benchmark([0.105] * 9), stored(CALM), rule, processes(slow, []))
    assert verdict.kind == PASS
    assert verdict.change == pytest.approx(1 / 1.015 - 1, abs=0.005)


@pytest.mark.parametrize(
    ("costs", "threshold", "least"),
    [([0.0] * 9, 0.02, math.log(1.05)), ([0.0] * 9, 0.1, math.log(1.21)), (NOISY, 0.0001, None)],
)
def test_a_pass_excludes_five_percent_or_twice_the_threshold_or_the_allowance(
    costs: List[float], threshold: float, least: Optional[float]
) -> None:
    before = [10 * cost for cost in costs]
    judged = gate.MetricRule(THROUGHPUT, before, threshold, level=0.002)
    expected = noise_floor(before, 3) if least is None else least
    assert judged.detectable_change([0.0] * 3) == pytest.approx(expected)


def test_a_case_is_not_held_to_more_than_its_noise_allows() -> None:
    verdict = judged(benchmark([0.1] * 9), stored(NOISY), StoredRule(LIMIT), processes(NOISY, []))
    assert known(verdict.allowed) > known(verdict.threshold)
    floor = noise_floor(costs_of(NOISY[1:]), verdict.processes)
    assert verdict.allowed == pytest.approx(math.expm1(floor))


def test_the_least_slowdown_follows_from_the_baselines_processes() -> None:
    rule = StoredRule(LIMIT, 1)
    even, noisy = stored([0.01] * 9), stored([0.01, 0.011, 0.012] * 3)
    found = [gate.least_slowdown(before, rule) for before in (even, noisy)]
    assert found[0] is not None and found[1] is not None
    assert LIMIT[THROUGHPUT] < found[0] < gate.DETECTABLE_CHANGE < found[1]
    assert gate.least_slowdown(noisy, StoredRule({}, 1)) is None
    # At least three fresh processes decide, whatever the cap is.
    one, three = (gate.least_slowdown(noisy, StoredRule(LIMIT, 1, cap)) for cap in (1, 3))
    assert one == three and three is not None and three > found[1]


def costs_of(seconds: Sequence[float]) -> List[float]:
    return [math.log(value) for value in seconds]


def test_the_shown_values_are_the_compared_ones() -> None:
    """Before and now differ by the change and by the machine's, which the message names."""
    before = with_processes(benchmark([0.1] * 9), [benchmark([s] * 9) for s in CALM])
    now = with_processes(
        benchmark([0.1] * 9), [benchmark([s * 1.5] * 9, [0.0011] * 3) for s in CALM]
    )
    verdict = compare(now, before, 0.02)
    machine = (1 / 1.1) ** CANARY_SHARE
    assert verdict.kind == REGRESSED
    assert known(verdict.now) / known(verdict.before) == pytest.approx(
        (1 + known(verdict.change)) * machine
    )
    assert f"found {1 - machine:.1%} slower now" in message("case", verdict, "there")


# --- other programs ---


def watched(seconds: float, clean: bool, copy_ms: float = 0.5) -> Benchmark:
    """Return a benchmark of nine rounds, of which others took a third or nothing.

    ``copy_ms``: more if other machines share the host.
    """
    lost = [0.0 if clean else 0.3] * 9
    return benchmark(
        [seconds] * 9,
        contention=Contention(enough=clean, lost=lost, limit=0.02, copy_ms=copy_ms),
    )


def in_turns(found: List[Benchmark], asked: List[int]) -> Measure:
    def measure(number: int) -> Benchmark:
        asked.append(number)
        return found[(number - 1) % len(found)]

    return measure


def baseline_of(seconds: Sequence[float], clean: bool = True) -> Benchmark:
    own, *fresh = [watched(value, clean) for value in seconds]
    return with_processes(own, fresh)


FINE, SLOW, LAME = watched(0.1, True), watched(0.11, True), watched(0.4, False)
BESIDE = watched(0.15, True, 1.0)  # equal code, with other machines on its host
SLOWER = watched(0.18, True)


@pytest.mark.parametrize(
    ("now", "before", "fresh", "kind", "asked", "counted"),
    [
        # A case that is as fast as before is not measured again.
        (FINE, CALM, [FINE], PASS, 0, (1, 6)),
        # Fresh processes clear a suspect; its own does not count.
        (SLOWER, CALM, [FINE], PASS, 3, (3, 6)),
        (SLOW, CALM, [SLOW, watched(0.111, True), watched(0.109, True)], REGRESSED, 3, (3, 6)),
        # An unclear case ends at the cap.
        (
            watched(0.12, True),
            NOISY,
            [watched(seconds, True) for seconds in (0.106, 0.1, 0.118, 0.092, 0.092, 0.092)],
            INCONCLUSIVE,
            6,
            (6, 6),
        ),
        # One process alone cannot show an improvement.
        (watched(0.05, True), CALM, [watched(0.05, True)], IMPROVED, 3, (3, 6)),
        (watched(0.05, True), CALM, [FINE], PASS, 3, (3, 6)),
        # Next to a busy neighbour the verdict comes soon.
        (LAME, CALM, [LAME], INCONCLUSIVE, 3, (3, 6)),
        (SLOW, CALM, [LAME], INCONCLUSIVE, 3, (1, 6)),
        # Clean processes replace disturbed ones, which clear no case.
        (SLOW, CALM, [LAME, SLOW, SLOW, SLOW], REGRESSED, 4, (3, 6)),
        (watched(0.1, False), CALM, [FINE], PASS, 3, (3, 6)),
        # So they do for those next to other machines.
        (BESIDE, CALM, [FINE, BESIDE, FINE, FINE], PASS, 4, (3, 6)),
        (BESIDE, CALM, [BESIDE], INCONCLUSIVE, 3, (3, 6)),
        # A few clean ones decide if each is slower than every process of the baseline.
        (LAME, NOISY[:3] + CALM, [LAME, SLOWER, LAME, SLOWER, LAME, LAME], REGRESSED, 6, (2, 9)),
        (LAME, [*CALM, 0.181], [LAME, SLOWER, LAME, SLOWER, LAME, LAME], INCONCLUSIVE, 6, (2, 7)),
        (LAME, CALM, [LAME, FINE, LAME, FINE, LAME, LAME], PASS, 6, (2, 6)),
    ],
)
def test_fresh_processes_decide_if_the_first_process_does_not_clear_a_case(
    now: Benchmark,
    before: List[float],
    fresh: List[Benchmark],
    kind: str,
    asked: int,
    counted: Tuple[int, int],
) -> None:
    numbers: List[int] = []
    rule = StoredRule(LIMIT, cap=6)
    verdict = judged(now, baseline_of(before), rule, in_turns(fresh, numbers))
    assert (verdict.kind, numbers) == (kind, list(range(1, asked + 1)))
    assert (verdict.processes, verdict.processes_before) == counted


def test_disturbed_processes_of_a_baseline_do_not_count() -> None:
    """Nor do those that found the machine in an unusual state."""
    asked: List[int] = []
    clean = [watched(value, True) for value in CALM]
    for other in (watched(0.3, False), watched(0.2, True, 1.0)):
        mixed = with_processes(clean[0], [*clean[1:], other, other])
        verdict = judged(FINE, mixed, StoredRule(LIMIT), in_turns([FINE], asked))
        assert (verdict.kind, asked, verdict.processes_before) == (PASS, [], len(CALM) - 1)
        assert verdict.before == pytest.approx(100, 0.01)
    disturbed = baseline_of([value * 3 for value in CALM], clean=False)
    verdict = judged(FINE, disturbed, StoredRule(LIMIT), in_turns([FINE], asked))
    assert (verdict.kind, asked) == (INCONCLUSIVE, [])
    assert "7 of 7" in verdict.reasons[0] and "--against" in verdict.reasons[0]


def used(cpu: float, wall: float, clean: bool = True) -> Benchmark:
    """Return a benchmark of rounds that took ``wall`` seconds and ``cpu`` seconds of CPU time."""
    return changed(watched(wall, clean), {"record.contention.cpu_seconds": [cpu] * 9})


def computing(*beside: Benchmark, cpus: float = 1.0) -> Benchmark:
    """Return a baseline of a case that computes all the time; ``beside``: disturbed processes."""
    own, *fresh = [used(cpus * value, value) for value in CALM]
    return with_processes(own, [*fresh, *beside])


def held(cpu: float, cpus: float = 1.0, lost: float = 0.6) -> Benchmark:
    """Return a disturbed benchmark: it uses ``cpu`` times the CPU time of an undisturbed one.

    Its threads wait for the rest of a round.
    """
    seconds = 0.1 * cpus * cpu
    now = used(seconds, seconds / (cpus - lost), clean=False)
    return changed(now, {"record.contention.lost": [lost] * 9})


@pytest.mark.parametrize(
    ("cpu", "beside", "kind"),
    [
        (1.0, [], PASS),
        (0.7, [], PASS),
        (1.5, [], INCONCLUSIVE),  # its neighbours may be the cause
        (1.5, [1.05, 1.05], REGRESSED),
        (1.5, [1.5, 1.5], INCONCLUSIVE),
        (1.015, [1.05, 1.05], PASS),
        (1.5, [1.05], INCONCLUSIVE),
    ],
)
@pytest.mark.parametrize("cpus", [1.0, 2.0])
def test_cpu_time_decides_next_to_other_programs(
    cpu: float, beside: List[float], kind: str, cpus: float
) -> None:
    now = held(cpu, cpus)
    before = computing(*[held(factor, cpus) for factor in beside], cpus=cpus)
    verdict = judged(now, before, StoredRule(LIMIT), in_turns([now], []))
    assert (verdict.kind, verdict.by_cpu_time) == (kind, kind != INCONCLUSIVE)
    if kind == REGRESSED:
        assert 1 / (1 + known(verdict.change)) == pytest.approx(cpu / 1.05, 0.01)


@pytest.mark.parametrize(
    "now",
    [
        changed(held(1.0), {"record.contention.copy_ms": 1.0}),
        used(0.1, 0.5, clean=False),  # it waits for something else
        held(1.0, cpus=2.0),  # another number of threads
    ],
)
def test_cpu_time_is_no_evidence_of_other_circumstances(now: Benchmark) -> None:
    verdict = judged(now, computing(), StoredRule(LIMIT), in_turns([now], []))
    assert (verdict.kind, verdict.by_cpu_time) == (INCONCLUSIVE, False)


def test_a_baseline_that_waits_is_not_judged_by_cpu_time() -> None:
    own, *fresh = [used(0.5 * value, value) for value in CALM]
    now = held(1.0)
    verdict = judged(now, with_processes(own, fresh), StoredRule(LIMIT), in_turns([now], []))
    assert (verdict.kind, verdict.by_cpu_time) == (INCONCLUSIVE, False)


def test_only_clean_rounds_of_a_process_count() -> None:
    contention = Contention(enough=True, lost=[0.0, 0.5] * 5, limit=0.02, kept=[True, False] * 5)
    mixed = benchmark([0.1, 0.3] * 5, contention=contention)
    verdict = compare(mixed, baseline_of(CALM), 0.02)
    assert verdict.now == pytest.approx(100) and verdict.kind == PASS


def test_a_case_stays_open_when_the_time_is_over() -> None:
    verdict = judged(watched(0.2, True), baseline_of(CALM), StoredRule(LIMIT), lambda number: None)
    assert verdict.kind == INCONCLUSIVE
    assert verdict.reasons == (TIME_OVER,)


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("limit", [{}, LIMIT])
def test_a_disturbed_case_is_inconclusive_if_nothing_can_be_measured(
    there: bool, limit: Dict[str, float]
) -> None:
    """Its entry stays when the run is promoted, because its speed is unknown."""
    verdict = gate.judge(watched(0.1, not there), baseline_of(CALM, there), StoredRule(limit))
    assert verdict.kind == INCONCLUSIVE
    (why,) = verdict.reasons
    assert "disturbed" in why


def test_without_a_threshold_all_processes_are_shown() -> None:
    now = with_processes(benchmark([0.1] * 9), [benchmark([0.2] * 9)])
    verdict = judged(now, stored(CALM), StoredRule({}), processes(CALM, []))
    assert (verdict.kind, verdict.processes) == (UNJUDGED, 2)
    assert verdict.now == pytest.approx(100 / 2**0.5)


def test_another_metric_can_regress_at_an_unchanged_speed() -> None:
    rule = StoredRule({**LIMIT, "latency_p99": 0.1})
    now = changed(benchmark([0.1] * 9), {"record.latency.p99_ms": 9.0})
    verdict = judged(now, stored(CALM), rule, lambda number: now)
    assert (verdict.kind, verdict.metric) == (REGRESSED, "latency_p99")
    assert verdict.change == pytest.approx(0, abs=0.01)
    (latency,) = verdict.also
    assert (latency.before, latency.now) == pytest.approx((5.0, 9.0))
    text = message("x", verdict, "results/run.jsonl")
    assert re.search(r"99% latency .*: 5 ms .*, 9 ms .*, \+80\.0%", text)
    assert "has become slower" not in text


@pytest.mark.parametrize(
    ("metric", "lacking", "fresh"),
    [
        ("compile_time", {"compile": "reused", "compile_seconds": 50.0}, 3),
        ("compile_time", {"compile": "cached", "compile_seconds": 50.0}, 0),
        ("compile_time", {"compile": "fresh or cached", "compile_seconds": 50.0}, 0),
        ("latency_p99", {"latency.p99_ms": 0.0}, 0),
    ],
)
def test_a_metric_that_a_process_lacks_is_not_judged(
    metric: str, lacking: Dict[str, Any], fresh: int
) -> None:
    """Fresh processes compile for themselves what an earlier case of the session had compiled."""
    asked: List[int] = []
    now = benchmark([0.1] * 9, **lacking)
    rule = StoredRule({**LIMIT, metric: 0.1})
    verdict = judged(now, stored(CALM), rule, in_turns([now], asked))
    assert (verdict.kind, verdict.reasons) == (PASS, (left_out(metric),))
    assert len(asked) == fresh


def test_a_metric_that_fresh_processes_lack_is_left_out_and_named() -> None:
    """If processes share a stored model, only the first one compiles it."""
    asked: List[int] = []
    rule = StoredRule({**LIMIT, "compile_time": 0.1})
    kept = benchmark([0.1] * 9, compile="cached", compile_seconds=0.1)
    slow = benchmark([0.2] * 9, compile_seconds=9.0)
    verdict = judged(slow, stored(CALM), rule, in_turns([kept], asked))
    assert (verdict.kind, verdict.also, asked) == (PASS, (), [1, 2, 3])
    assert verdict.reasons[0] == left_out("compile_time")


def test_the_available_fresh_processes_decide_and_not_the_first_process() -> None:
    fast_own, slow = benchmark([0.1] * 9), [benchmark([value] * 9) for value in (0.2, 0.201, 0.199)]
    asked: List[int] = []
    now = with_processes(fast_own, slow)
    verdict = judged(now, stored(CALM), StoredRule(LIMIT), processes(CALM, asked))
    assert (verdict.kind, asked) == (REGRESSED, [])


def test_a_slowdown_beyond_the_threshold_that_is_not_certain_does_not_pass() -> None:
    """Estimate 4%, gate 2%, hundreds of cases: neither certain nor within the threshold."""
    slow = stored([value * 1.04 for value in NOISY])
    verdict = gate.judge(slow, stored(NOISY), StoredRule(LIMIT, 500))
    assert verdict.kind == INCONCLUSIVE


def sized(gigabytes: float, **more: Any) -> Benchmark:
    return benchmark([0.1] * 9, **{"memory.host_peak_rss_bytes": int(gigabytes * 1e9)}, **more)


@pytest.mark.parametrize(("grown", "kind", "fresh"), [(1.0, PASS, 0), (1.11, REGRESSED, 3)])
def test_memory_is_compared_with_fresh_processes(grown: float, kind: str, fresh: int) -> None:
    """The baseline's own session had measured other cases before, so it used more."""
    before = with_processes(sized(1.1), [sized(1.0) for _ in range(3)])
    asked: List[int] = []

    def measure(number: int) -> Benchmark:
        asked.append(number)
        return sized(grown)

    verdict = judged(sized(grown), before, StoredRule({"peak_memory": 0.1}), measure)
    assert (verdict.kind, len(asked)) == (kind, fresh)


def test_a_session_that_compiled_before_does_not_clear_the_compile_time() -> None:
    rule = StoredRule({"compile_time": 0.5})
    before = with_processes(
        benchmark([0.1] * 9, compile_seconds=10.0),
        [benchmark([0.1] * 9, compile_seconds=10.0) for _ in range(6)],
    )
    warm, slower = (benchmark([0.1] * 9, compile_seconds=taken) for taken in (8.0, 20.0))
    verdict = judged(warm, before, rule, lambda number: slower)
    assert (verdict.kind, verdict.metric) == (REGRESSED, "compile_time")


def test_fresh_processes_compile_what_the_session_reused() -> None:
    """An earlier case of the run had the same network."""
    rule, before = StoredRule({**LIMIT, "compile_time": 0.5}), stored(CALM)
    reused, slower = benchmark([0.1] * 9, compile="reused"), benchmark([0.1] * 9, compile_seconds=9)
    verdict = judged(reused, before, rule, lambda number: slower)
    assert (verdict.kind, verdict.metric) == (REGRESSED, "compile_time")
    over = judged(reused, before, rule, lambda number: None)
    assert (over.kind, over.also) == (PASS, ())
    assert over.reasons == (TIME_OVER, left_out("compile_time"))


def test_a_session_that_clears_a_case_alone_is_shown_in_the_verdict() -> None:
    now = with_processes(benchmark([0.1] * 9), [benchmark([0.12] * 9)])
    verdict = judged(now, stored(CALM), StoredRule(LIMIT), processes(CALM, []))
    assert (verdict.kind, verdict.processes) == (PASS, 1)
    assert verdict.change == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"device.fingerprint": "cpu/y"}, "another machine (cpu/x, now cpu/y)"),
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
        ({"throughput.unit": "images/s"}, "unit items/s -> images/s"),
        (
            {"effective": {"request_type": "async"}, "rounds.shortened": 0.25},
            "requests sent at once (1.0 of those configured, now 0.25)",
        ),
        ({"canary.seconds": []}, "canaries on one side only"),
    ],
)
def test_incomparable_benchmarks_have_a_reason(change: Dict[str, Any], reason: str) -> None:
    now = benchmark([9.0] * 9, **change)
    verdict = compare(now, benchmark([0.1] * 9), 0.05)
    assert verdict.kind == INCOMPARABLE
    assert reason in verdict.reasons
    # Otherwise a number would be shown in the wrong unit.
    assert (verdict.before is None) == reason.startswith("unit")


def test_other_items_per_batch_are_incomparable_and_longer_rounds_are_not() -> None:
    before, longer, halved = (
        benchmark([seconds] * 9, items=items, **{"rounds.batches_per_step": batches})
        for seconds, items, batches in ((0.1, 80, 10), (0.2, 160, 20), (0.05, 40, 10))
    )
    assert compare(longer, before, 0.05).kind == PASS
    verdict = compare(halved, before, 0.05)
    assert (verdict.kind, len(verdict.reasons)) == (INCOMPARABLE, 1)


def test_facts_of_a_test_are_shown_and_judged_if_the_rule_names_them() -> None:
    now, before = (
        changed(benchmark([0.1] * 9), {"extra_info.others": {"batch": size}}) for size in (64, 128)
    )
    shown = compare(now, before, 0.05)
    assert (shown.kind, shown.reasons, len(shown.extra_info)) == (PASS, (), 1)
    named = gate.judge(now, before, StoredRule(LIMIT, extra_info=("batch",)))
    assert (named.kind, named.reasons) == (INCOMPARABLE, shown.extra_info)
    assert gate.judge(now, now, StoredRule(LIMIT, extra_info=("batch",))).kind != INCOMPARABLE


@pytest.mark.parametrize(
    ("measured_by", "kind"), [("pytest-benchmark", INCOMPARABLE), (None, PASS)]
)
def test_the_timer_decides_what_pytest_benchmark_measures(
    measured_by: Optional[str], kind: str
) -> None:
    effective = {"precision": "own", "measured_by": measured_by}
    now, before = (
        changed(benchmark([0.1] * 9, effective=effective), {"options": {"timer": timer}})
        for timer in ("process_time", "perf_counter")
    )
    assert compare(now, before, 0.05).kind == kind


def test_latencies_of_different_calls_are_not_judged() -> None:
    now, before = (
        benchmark([0.1] * 9, **{"latency.p99_ms": p99, "latency.source": source})
        for p99, source in ((1e-4, "calls of several batches"), (9.0, "single-batch calls"))
    )
    rule = StoredRule({THROUGHPUT: 0.05, "latency_p99": 0.05})
    for one, other in ((now, before), (before, now)):
        verdict = gate.judge(one, other, rule)
        assert (verdict.kind, verdict.also, len(verdict.reasons)) == (PASS, (), 1)


def test_unjudged_metrics_have_the_values_of_the_deciding_processes() -> None:
    before = stored([9.0, 0.1, 0.1, 0.1])
    verdict = compare(benchmark([0.2] * 9, config_hash="g"), before, 0.05)
    assert (verdict.before, verdict.now) == pytest.approx((100, 50))
    assert (verdict.processes, verdict.processes_before) == (1, 3)
