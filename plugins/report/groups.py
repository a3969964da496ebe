"""Groups of pytest-benchmark: how many times longer each case takes than the fastest of its group.

A group is given by ``@pytest.mark.benchmark(group=...)``, ``benchmark.group`` or
``--benchmark-group-by``.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ipubench.plugins.baseline.case_row import CaseRow, Ratio
from ipubench.plugins.baseline.columns import GROUP
from ipubench.plugins.baseline.rows import Report
from ipubench.plugins.gate.countable import deciding
from ipubench.plugins.gate.inference import effect
from ipubench.plugins.gate.metric_verdict import log_cost
from ipubench.plugins.gate.shown_throughput import shown_throughput, throughput_of
from ipubench.plugins.gate.stored import ASSUMED
from ipubench.plugins.record.record import THROUGHPUT, is_timed, processes_of
from ipubench.plugins.record.structs import Benchmark, Facts
from ipubench.plugins.record.verdict import Verdict

#: A 95% interval is this many standard errors wide.
ERRORS_WIDE = 2 * 1.96
GROUP_HEADINGS = ("case", *(column.heading for column in GROUP))


class Group(NamedTuple):
    """A group's name and unit, and its cases with their ratios, the fastest first."""

    name: str
    unit: str
    ratios: Dict[str, Ratio]


def groups_of(measured: Mapping[str, Benchmark], verdicts: Mapping[str, Verdict]) -> List[Group]:
    """Return the groups with at least two cases of the same unit on the same machine.

    Both arguments are by the name of the case. The ratios are those of the throughput that a table
    shows next to the verdicts.
    """
    found: Dict[Tuple[str, str, str], Dict[str, float]] = {}
    for name, one in measured.items():
        record = one.record
        if one.group and is_timed(record) and not record.implausible:
            rate = shown_throughput(one, verdicts.get(name))
            key = (one.group, rate.unit, record.device.fingerprint)
            found.setdefault(key, {})[name] = rate.median
    groups = []
    for (group, unit, _), rates in found.items():
        if len(rates) > 1:
            ordered = sorted(rates, key=lambda name: -rates[name])
            fastest = ordered[0]
            ratios = {fastest: Ratio(1.0)}
            for name in ordered[1:]:
                value = rates[fastest] / rates[name]
                ratios[name] = _ratio(value, measured[fastest], measured[name])
            groups.append(Group(group, unit, ratios))
    return groups


def group_tables(report: Report, rows: Sequence[CaseRow]) -> List[Facts]:
    """Return each group of a report as a table with GROUP_HEADINGS.

    ``rows`` are those of the report, with distinct names.
    """
    row_of = {row.id: row for row in rows}

    def line(row: CaseRow) -> Sequence[str]:
        return [row.name, *(column.texts(row)[0] for column in GROUP)]

    return [
        {
            "heading": f"{group.name} ({group.unit})",
            "lines": [
                line(dataclasses.replace(row_of[case], ratio=ratio))
                for case, ratio in group.ratios.items()
            ],
        }
        for group in groups_of(report.measured(), report.verdicts)
    ]


def _ratio(value: float, fastest: Benchmark, other: Benchmark) -> Ratio:
    """Return a ratio with its interval, by the gate's statistics of processes.

    The rounds of a single process add their own noise. A single round shows none, so there is no
    interval.
    """
    rounds = [_error_of_rounds(one) for one in (fastest, other)]
    if None in rounds:
        return Ratio(value)
    before, now = (
        [log_cost(process, THROUGHPUT, canary=False) or 0.0 for process in deciding(one)]
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
