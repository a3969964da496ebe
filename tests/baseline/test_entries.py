"""Which stored entry a case is compared with, and which entries a run stores."""

from __future__ import annotations

from typing import Any, Dict

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
from ipubench.plugins.record.record import record_of
from ipubench.plugins.run.results import SessionResults
from tests.support.baselines import A, entry


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
def test_the_exact_entry_is_found_or_the_most_alike(wanted: Key, found: Any) -> None:
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


def test_an_entry_remembers_what_was_accepted_before_it_in_order_of_time() -> None:
    def accepted(month: int) -> Dict[str, Any]:
        return {"reason": "x", "change": month, "time": f"2026-{month:02}-01T00:00:00Z"}

    old, new, other = entry(), entry(slower=2), entry(machine="cpu/y")
    record_of(old)["accepted"] = [accepted(3), accepted(1)]
    former = entry(config_hash="g")
    record_of(former)["accepted"] = [accepted(5)]
    again = {**accepted(1), "time": "2026-04-01T00:00:00Z"}  # the same run was promoted twice
    record_of(new)["accepted"] = [accepted(2), accepted(3), again]
    new["extra_info"]["own"] = old["extra_info"]["own"] = "a test's"
    kept, untouched = replaced([other, former, old], [new])
    assert as_promoted(kept, "main")["extra_info"]["own"] == "a test's"
    assert record_of(kept)["accepted"] == [accepted(month) for month in (1, 2, 3, 5)]
    assert record_of(kept)["throughput"] == record_of(new)["throughput"]
    assert untouched == other


def test_a_run_keeps_its_credible_cases_with_all_their_processes() -> None:
    results = SessionResults()
    for name, implausible in (("a", False), ("b", True)):
        benchmark = entry(name)
        record_of(benchmark).update(implausible=implausible)
        del record_of(benchmark)["processes"]
        results.benchmarks[benchmark["fullname"]] = benchmark
    results.fresh[A] = [entry(slower=2)]
    results.benchmarks[A]["extra_info"]["own"] = "a test's"
    (kept,) = measured(results)
    assert kept["extra_info"]["own"] == "a test's"
    assert kept["fullname"] == A
    assert [process["fresh"] for process in record_of(kept)["processes"]] == [False, True]


def test_what_is_unproven_is_what_failed_for_another_reason_than_its_speed() -> None:
    results = SessionResults(
        benchmarks={name: entry() for name in ("good", "wrong", "slow", "wrong and judged")},
        verdicts={"slow": {"kind": "regressed"}, "wrong and judged": {"kind": "pass"}},
        outcomes={
            "good": "passed",
            "wrong": "failed",
            "slow": "failed",
            "wrong and judged": "failed",
            "never measured": "failed",
        },
    )
    assert unproven(results) == {"wrong": "failed", "wrong and judged": "failed"}


def test_a_case_made_by_options_is_gone_with_its_function_and_a_command_with_its_file() -> None:
    stored = [entry(f"{name}-noise0.02") for name in "abc"]
    for number, benchmark in enumerate(stored):
        record_of(benchmark)["overrides"] = ["noise"]
        benchmark["fullname"] = benchmark["fullname"].replace("bench_x[", f"bench_{number}[")
    spec = entry("command")
    record_of(spec)["spec"] = {}
    spec["fullname"] = "benchmarks.yml::bench_spec[command]"
    there = {benchmark["fullname"].replace("-noise0.02", "") for benchmark in stored[1:]}
    assert gone([*stored, spec], there) == [stored[0]]
