"""The trend of each case over many runs, and where its level has changed.

Change points are those of PELT (Killick, Fearnhead and Eckley, JASA 107, 2012) from the library
ruptures, with the absolute loss, under which a level is a median. A level has three runs at least,
of which most must agree: one bad run is no change, two in a row are.
"""

from __future__ import annotations

import dataclasses
import math
from statistics import median
from typing import Dict, List, Optional, Sequence, Tuple

from ipubench.plugins.baseline.entries import Key, grouped, key_of
from ipubench.plugins.gate.shown_throughput import throughput_of
from ipubench.plugins.record.host_process import short_revision
from ipubench.plugins.record.record import processes_of
from ipubench.plugins.record.structs import Benchmark, Facts
from ipubench.plugins.record.text import distinct_names, name_of_test

LEAST_RUNS_OF_A_LEVEL = 3
#: A case whose runs agree better than this still moves with the machine.
SMALLEST_NOISE = 0.005
#: See :func:`penalty`.
PENALTY_FACTOR = 2.0
# The median absolute deviation of normal values, as a share of their standard deviation.
MAD_OF_NORMAL = 0.6745


@dataclasses.dataclass(frozen=True)
class Point:
    """One run of a case: when (UTC, ISO 8601), of which revision, items per second.

    ``low``, ``high``: its 95 % interval, between the processes where there are several.
    ``accepted``: why a person accepted that the case became slower in this run, or ''.
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

    def changes(self) -> List[int]:
        """Return the index of the first run of each new level. Raises ChangesUnavailable."""
        return change_points([math.log(point.throughput) for point in self.points])


def trends_of(benchmarks: Sequence[Benchmark]) -> List[Trend]:
    """Return the trends, by machine and case; equal configuration, device and unit form one."""
    ordered = sorted(benchmarks, key=lambda run: run.record.time)
    groups = grouped(ordered, lambda run: (key_of(run), run.record.throughput.unit))
    found = [Trend(key, unit, tuple(map(_point, runs))) for (key, unit), runs in groups.items()]
    return sorted(found, key=lambda trend: (trend.key.fingerprint, trend.key, trend.unit))


def names_of_cases(trends: Sequence[Trend]) -> Dict[str, str]:
    """Return what to call each case: its test, or its node id where two files have such a test."""
    return distinct_names({trend.key.nodeid: name_of_test(trend.key.nodeid) for trend in trends})


def _point(benchmark: Benchmark) -> Point:
    record = benchmark.record
    # Of several slow-downs that an entry remembers, the last is this run's own.
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


def levels(trend: Trend, changes: Sequence[int]) -> List[Tuple[int, float]]:
    """Return each level of a trend: the index of its first run, and its runs' median."""
    edges = [0, *changes, len(trend.points)]
    rates = [point.throughput for point in trend.points]
    return [(here, median(rates[here:after])) for here, after in zip(edges, edges[1:])]


def level_changes(trend: Trend, changes: Sequence[int]) -> Dict[int, float]:
    """Return the relative change of level of each run that begins one: medians of both levels."""
    found = levels(trend, changes)
    steps = zip(found, found[1:])
    return {start: rate / before - 1 for (_, before), (start, rate) in steps}


def as_dict(trend: Trend, changes: Sequence[int]) -> Facts:
    """Return a trend as JSON values."""
    return {
        "case": trend.key.nodeid,
        "config_hash": trend.key.config_hash,
        "machine": trend.key.fingerprint,
        "unit": trend.unit,
        "runs": [dataclasses.asdict(point) for point in trend.points],
        "changes": [
            {
                "run": index,
                "time": trend.points[index].time,
                "revision": trend.points[index].revision,
                "change": change,
            }
            for index, change in level_changes(trend, changes).items()
        ],
    }


class ChangesUnavailable(Exception):
    """The library is not installed; the message says how to get it."""


def noise(values: Sequence[float]) -> float:
    """Return the standard deviation of a series around its level, steps and outliers aside.

    From the median absolute difference of neighbours, of which a step is only one (von Neumann's
    idea, made robust): divided by that of normal values, and by sqrt(2) for a difference of two.
    """
    differences = [abs(b - a) for a, b in zip(values, values[1:])]
    return max(SMALLEST_NOISE, median(differences) / MAD_OF_NORMAL / math.sqrt(2))


def penalty(values: Sequence[float]) -> float:
    """Return what one more level must save in absolute deviations: 2 sigma log(n).

    sigma log(n) is the penalty of Schwarz's criterion (Yao, Statistics and Probability Letters 6,
    1988), which has sigma^2 log(n) for squared deviations, in the unit of absolute ones. The factor
    was chosen by simulation, see docs/how-to/baselines.md.
    """
    return PENALTY_FACTOR * noise(values) * math.log(len(values))


def change_points(values: Sequence[float]) -> List[int]:
    """Return the index of the first value of each new level of a series of logarithms.

    Raises ChangesUnavailable without the library.
    """
    try:
        import numpy as np
        import ruptures
    except ImportError:
        raise ChangesUnavailable(
            "change points need the library ruptures: pip install 'ipubench[report]'"
        ) from None
    if len(values) < 2 * LEAST_RUNS_OF_A_LEVEL:
        return []
    search = ruptures.Pelt(model="l1", min_size=LEAST_RUNS_OF_A_LEVEL, jump=1)
    series = np.asarray(values, dtype=np.float64).reshape(-1, 1)
    ends = search.fit(series).predict(pen=penalty(values))
    return [int(end) for end in ends[:-1]]
