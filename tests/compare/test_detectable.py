"""What a baseline can find is named when it is saved, with the reasons of a disturbed one."""

from __future__ import annotations

from typing import List, Optional

import pytest

from ipubench.plugins.compare.detectable import what_it_finds, why_kept
from ipubench.plugins.record.structs import Benchmark
from tests.support.baselines import entry
from tests.support.stored import changed


def measured(case: str, spread: float, clean: Optional[List[bool]] = None) -> Benchmark:
    """Return an entry of 9 processes, which differ evenly by this share."""
    benchmark = entry(case, processes=9)
    for number in range(9):
        place = f"record.processes.{number}"
        seconds = [0.01 * (1 + spread * number / 8)] * 20
        benchmark = changed(benchmark, {f"{place}.seconds": seconds})
    for number, one in enumerate(clean or []):
        place = f"record.processes.{number}"
        benchmark = changed(benchmark, {f"{place}.clean": one, f"{place}.lost": 0.3})
    return benchmark


def test_quiet_cases_are_counted_and_noisy_ones_named_with_what_they_find() -> None:
    lines = what_it_finds([measured("a", 0.01), measured("b", 0.01), measured("c", 0.4)], 16)
    good, noisy = lines
    assert "2 cases" in good and "in a" not in noisy and " in c" in noisy
    (least,) = what_it_finds([measured("a", 0.01)], 16)
    assert "1 case" in least
    (alone,) = what_it_finds([measured("c", 0.4)], 16)
    share = alone.split("from ")[1].partition("%")[0]
    assert 10 < int(share) < 60


@pytest.mark.parametrize(
    ("clean", "wanted", "use", "why"),
    [
        ([False, False, False], 8, "no gate", "3 disturbed ones in a row"),
        ([True, False, False, True, False, False], 3, "2 of 7", "twice as many"),
        ([True, False, False, True, False, False], 4, "2 of 7", "no time"),
    ],
)
def test_a_kept_entry_has_the_processes_that_count_and_why_there_are_no_more(
    clean: List[bool], wanted: int, use: str, why: str
) -> None:
    benchmark = measured("a", 0.01, [False, *clean])
    processes = benchmark.record.processes[: len(clean) + 1]
    text = why_kept(changed(benchmark, {"record.processes": processes}), wanted)
    assert use in text and why in text
