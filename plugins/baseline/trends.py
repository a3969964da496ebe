"""Computes the trend of each case over many runs, and its changes (change_points.py)."""

from __future__ import annotations

import dataclasses
import math
from statistics import median
from typing import Dict, List, Optional, Sequence, Tuple

from ipubench.plugins.baseline.change_points import Change, changes_of, runs_needed
from ipubench.plugins.baseline.entries import Key, grouped, key_of
from ipubench.plugins.gate.shown_throughput import throughput_of
from ipubench.plugins.record.host_process import short_revision
from ipubench.plugins.record.record import processes_of
from ipubench.plugins.record.structs import Benchmark, Facts
from ipubench.plugins.record.text import distinct_names, name_of_test


@dataclasses.dataclass(frozen=True)
class Point:
    """One run of a case: its time (UTC, ISO 8601), its revision, items per second.

    ``low``, ``high``: its 95% interval, between processes if there are several.
    ``accepted``: why a person accepted a slow-down in this run, or ''.
    ``promoted``: the baseline that the run became, or ''.
    """

    time: str
    revision: str
    throughput: float
    processes: int
    accepted: str = ""
    promoted: str = ""
    low: Optional[float] = None
    high: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class Trend:
    """The runs of one case in one configuration and unit on one machine, oldest first."""

    key: Key
    unit: str
    points: Tuple[Point, ...]

    def changes(self) -> List[Change]:
        """Return the changes of level, oldest first. Raises ChangesUnavailable."""
        return changes_of(*self._logarithms())

    def runs_needed(self, changes: Sequence[Change]) -> int:
        """Return about how many runs would show whether its level changed; 0 if these do."""
        return runs_needed(*self._logarithms(), changes[-1].run if changes else 0)

    def _logarithms(self) -> Tuple[List[float], List[float]]:
        """Return the runs, and half of the interval of those that have one."""
        known = [(one.low, one.high) for one in self.points if one.low and one.high]
        widths = [math.log(high / low) / 2 for low, high in known]
        return [math.log(point.throughput) for point in self.points], widths


def trends_of(benchmarks: Sequence[Benchmark]) -> List[Trend]:
    """Return the trends, by machine and case, one for each configuration, device and unit."""
    return [trend for trend, _ in trends_with_runs(benchmarks)]


def trends_with_runs(
    benchmarks: Sequence[Benchmark],
) -> List[Tuple[Trend, Sequence[Benchmark]]]:
    """Return the trends, each with the runs behind its points."""
    ordered = sorted(benchmarks, key=lambda run: run.record.time)
    groups = grouped(ordered, lambda run: (key_of(run), run.record.throughput.unit))
    found = [
        (Trend(key, unit, tuple(map(_point, runs))), runs) for (key, unit), runs in groups.items()
    ]
    return sorted(found, key=lambda one: (one[0].key.fingerprint, one[0].key, one[0].unit))


def names_of_cases(trends: Sequence[Trend]) -> Dict[str, str]:
    """Return a name for each case: its test's, or its node id if two files have such a test."""
    return distinct_names({trend.key.nodeid: name_of_test(trend.key.nodeid) for trend in trends})


def _point(benchmark: Benchmark) -> Point:
    record = benchmark.record
    # An entry may keep several accepted slow-downs; only the last belongs to this run.
    reasons = [f"accepted: {one.reason}" for one in record.accepted[-1:]]
    throughput = throughput_of(benchmark)
    return Point(
        record.time,
        short_revision(record.git),
        throughput.median,
        len(processes_of(benchmark)),
        "".join(reasons),
        record.promoted,
        throughput.low,
        throughput.high,
    )


def levels(trend: Trend, changes: Sequence[Change]) -> List[Tuple[int, float]]:
    """Return the levels of a trend: the index of the first run, and the runs' median."""
    edges = [0, *(change.run for change in changes), len(trend.points)]
    rates = [point.throughput for point in trend.points]
    return [(here, median(rates[here:after])) for here, after in zip(edges, edges[1:])]


def less_likely(changes: Sequence[Change]) -> Dict[int, float]:
    """Return the runs that a change may have begun with as well: run -> probability."""
    return {
        run: chance
        for change in changes
        for run, chance in change.likely.items()
        if run != change.run
    }


def undecided_text(needed: int) -> str:
    """Return what a trend with too few runs shows instead of a change, or ''."""
    return f"too few runs to say; about {needed} are needed" if needed else ""


def as_dict(trend: Trend, changes: Sequence[Change]) -> Facts:
    """Return a trend as JSON values."""
    return {
        "case": trend.key.nodeid,
        "config_hash": trend.key.config_hash,
        "machine": trend.key.fingerprint,
        "unit": trend.unit,
        "runs": [dataclasses.asdict(point) for point in trend.points],
        "runs_needed": trend.runs_needed(changes),
        "changes": [
            {
                "run": one.run,
                "time": trend.points[one.run].time,
                "revision": trend.points[one.run].revision,
                "change": one.change,
                "low": one.low,
                "high": one.high,
                "sure": one.sure,
                "likely": [
                    {"run": run, "revision": trend.points[run].revision, "probability": chance}
                    for run, chance in one.likely.items()
                ],
            }
            for one in changes
        ],
    }
