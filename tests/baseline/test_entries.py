"""Which stored entry a case is compared with, and which entries a run stores."""

from __future__ import annotations

from typing import Any

import pytest

from ipubench.plugins.baseline.entries import (
    Key,
    as_promoted,
    by_case,
    find,
    gone,
    key_of,
    measured,
    newest,
    replaced,
    unproven,
)
from ipubench.plugins.record.structs import Accepted, Spec
from ipubench.plugins.record.verdict import Verdict
from ipubench.plugins.results.run_results import RunResults
from tests.support.baselines import A, entry
from tests.support.stored import changed


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Key(A, "h", "cpu/x"), ("h", "cpu/x")),
        (Key(A, "g", "cpu/y"), ("g", "cpu/y")),
        (Key(A, "other", "cpu/y"), ("g", "cpu/y")),
        (Key(A, "g", "cpu/z"), ("g", "cpu/y")),
        (Key(A, "other", "cpu/z"), ("h", "cpu/x")),  # the newest
    ],
)
def test_the_exact_entry_is_found_or_else_the_most_similar(wanted: Key, found: Any) -> None:
    benchmarks = [
        entry(time="2026-01-03T00:00:00Z"),
        entry(machine="cpu/y", config_hash="g"),
        entry("b", config_hash="other", machine="cpu/z"),
    ]
    benchmark = find(by_case(benchmarks), *wanted)
    assert benchmark is not None and key_of(benchmark) == Key(A, *found)


def test_the_newest_entry_of_a_case_is_the_latest_in_time() -> None:
    late, early = entry(time="2026-02-01T00:00:00Z", config_hash="g"), entry()
    other = entry(machine="cpu/y")
    assert newest([late, other, early]) == [other, late]


def test_an_entry_keeps_earlier_acceptances_in_order_of_time() -> None:
    def accepted(month: int, again: int = 0) -> Accepted:
        return Accepted("x", f"2026-{again or month:02}-01T00:00:00Z", month)

    own, other = {"extra_info.others": {"own": "a test's"}}, entry(machine="cpu/y")
    old = changed(entry(), {**own, "record.accepted": [accepted(3), accepted(1)]})
    former = changed(entry(config_hash="g"), {"record.accepted": [accepted(5)]})
    # The same run was promoted twice.
    thrice = [accepted(2), accepted(3), accepted(1, again=4)]
    new = changed(entry(slower=2), {**own, "record.accepted": thrice})
    kept, untouched = replaced([other, former, old], [new])
    assert as_promoted(kept, "main").extra_info.others == {"own": "a test's"}
    assert kept.record.accepted == [accepted(month) for month in (1, 2, 3, 5)]
    assert kept.record.throughput == new.record.throughput
    assert untouched == other


def test_a_run_stores_its_credible_cases_with_all_their_processes() -> None:
    results = RunResults()
    for name, implausible in (("a", False), ("b", True)):
        changes = {"record.implausible": implausible, "record.processes": ()}
        own = {"extra_info.others": {"own": "a test's"}}
        benchmark = changed(entry(name), {**changes, **own})
        results.benchmarks[benchmark.fullname] = benchmark
    results.fresh[A] = [entry(slower=2)]
    (kept,) = measured(results)
    assert kept.extra_info.others == {"own": "a test's"}
    assert kept.fullname == A
    assert [process.fresh for process in kept.record.processes] == [False, True]


def test_a_case_is_unproven_if_it_failed_for_another_reason_than_speed() -> None:
    results = RunResults(
        benchmarks={name: entry() for name in ("good", "wrong", "slow", "wrong and judged")},
        verdicts={"slow": Verdict("regressed"), "wrong and judged": Verdict("pass")},
        outcomes={
            "good": "passed",
            "wrong": "failed",
            "slow": "failed",
            "wrong and judged": "failed",
            "never measured": "failed",
        },
    )
    assert unproven(results) == {"wrong": "failed", "wrong and judged": "failed"}


def test_a_case_from_options_goes_with_its_function_and_a_command_with_its_file() -> None:
    stored = [
        changed(
            entry(),
            {"fullname": f"bench_x.py::bench_{n}[{n}-noise0.02]", "record.overrides": ["noise"]},
        )
        for n in range(3)
    ]
    facts = Spec("command", "", (), 1.0, None)
    command = {"record.spec": facts, "fullname": "benchmarks.yml::bench_spec[command]"}
    spec = changed(entry(), command)
    there = {benchmark.fullname.replace("-noise0.02", "") for benchmark in stored[1:]}
    assert gone([*stored, spec], there) == [stored[0]]
