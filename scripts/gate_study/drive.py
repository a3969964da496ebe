"""Drives the gate as the loop of a run does, with given measurements."""

from __future__ import annotations

from typing import Callable, Optional

from msgspec.structs import replace

from ipubench.plugins.gate.decision import TIME_OVER, Need
from ipubench.plugins.gate.stored import StoredRule, conclude_stored, decide_stored
from ipubench.plugins.record.record import processes_of, sample_of, with_record
from ipubench.plugins.record.structs import Benchmark
from ipubench.plugins.record.verdict import Verdict

#: Returns the benchmark of the fresh process with this number, from 1; None if the time is over.
Measure = Callable[[int], Optional[Benchmark]]


def judged(now: Benchmark, before: Benchmark, rule: StoredRule, measure: Measure) -> Verdict:
    """Return the verdict on a benchmark; fresh processes measure as long as the gate needs them."""
    number = 0
    while True:
        found = decide_stored(now, before, rule)
        if not isinstance(found, Need):
            return found
        number += 1
        fresh = measure(number)
        if fresh is None:
            return conclude_stored(now, before, rule, [TIME_OVER])
        processes = [*processes_of(now), sample_of(fresh, fresh=True)]
        now = with_record(now, replace(now.record, processes=processes))
