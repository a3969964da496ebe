"""Groups of pytest-benchmark: how many times longer each case takes than the fastest of its group.

A group is given by ``@pytest.mark.benchmark(group=...)``, ``benchmark.group`` or
``--benchmark-group-by``.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from ipubench.plugins.gate.countable import shown_processes
from ipubench.plugins.gate.inference import effect
from ipubench.plugins.gate.metric_verdict import log_cost
from ipubench.plugins.gate.shown_throughput import throughput_of
from ipubench.plugins.gate.stored import ASSUMED
from ipubench.plugins.record.record import THROUGHPUT, is_timed, processes_of
from ipubench.plugins.record.structs import Benchmark, Facts
from ipubench.plugins.results.case_row import CaseRow, Ratio
from ipubench.plugins.results.columns import GROUP

#: A 95% interval is this many standard errors wide.
ERRORS_WIDE = 2 * 1.96
GROUP_HEADINGS = ("case", *(column.heading for column in GROUP))


class Group(NamedTuple):
    """A group's name and unit, and the rows of its cases with their ratios, the fastest first."""

    name: str
    unit: str
    rows: List[CaseRow]


def groups_of(rows: Iterable[CaseRow]) -> List[Group]:
    """Return the groups with at least two cases of the same unit on the same machine."""
    found: Dict[Tuple[str, str, str], List[CaseRow]] = {}
    for row in rows:
        if row.benchmark is None or not row.benchmark.group or not is_timed(row.record):
            continue
        if not row.implausible:
            key = (row.benchmark.group, row.rate.unit, row.record.device.fingerprint)
            found.setdefault(key, []).append(row)
    return [
        Group(group, unit, _with_ratios(sorted(members, key=lambda row: -row.rate.median)))
        for (group, unit, _), members in found.items()
        if len(members) > 1
    ]


def _with_ratios(rows: Sequence[CaseRow]) -> List[CaseRow]:
    fastest, *others = rows
    return [
        dataclasses.replace(fastest, ratio=Ratio(1.0)),
        *(dataclasses.replace(one, ratio=_ratio(fastest, one)) for one in others),
    ]


def group_tables(rows: Sequence[CaseRow]) -> List[Facts]:
    """Return each group of some rows as a table with GROUP_HEADINGS."""
    return [
        {
            "heading": f"{group.name} ({group.unit})",
            "lines": [
                [row.name, *(column.texts(row)[0] for column in GROUP)] for row in group.rows
            ],
        }
        for group in groups_of(rows)
    ]


def _ratio(fastest: CaseRow, other: CaseRow) -> Ratio:
    """Return a ratio with its interval, by the gate's statistics of processes.

    The rounds of a single process add their own noise. A single round shows none, so there is no
    interval.
    """
    value = fastest.rate.median / other.rate.median
    rounds = [_error_of_rounds(one.result) for one in (fastest, other)]
    if None in rounds:
        return Ratio(value)
    before, now = (
        [
            log_cost(process, THROUGHPUT, canary=False) or 0.0
            for process in shown_processes(one.result)
        ]
        for one in (fastest, other)
    )
    found = effect(before, now, ASSUMED[THROUGHPUT])
    error = math.hypot(found.error, *(one or 0.0 for one in rounds))
    low, high = dataclasses.replace(found, change=math.log(value), error=error).interval()
    return Ratio(value, math.exp(low), math.exp(high))


def _error_of_rounds(benchmark: Benchmark) -> Optional[float]:
    """Return the standard error of a logarithmic throughput among rounds; None for one round.

    0 for several processes, whose differences contain it.
    """
    found = throughput_of(benchmark)
    if found.low is None or found.high is None:
        return None
    several = len(processes_of(benchmark)) > 1
    return 0.0 if several else math.log(found.high / found.low) / ERRORS_WIDE
