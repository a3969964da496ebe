"""Finds hosts that are slower than others of their kind, by comparing the same cases.

For each case this takes the logarithm of a host's throughput over the median of all hosts. A host
is an outlier if the mean over its cases differs by more than LEAST, and if Student's t-test is
significant at the level CHANCE over all hosts (two-sided, Bonferroni).
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Dict, List, Mapping, Sequence

from ipubench.fixtures.case.errors import counted
from ipubench.plugins.gate.student import student_quantile
from ipubench.plugins.record.record import unnamed
from ipubench.plugins.record.structs import Benchmark
from ipubench.plugins.record.text import percent

#: The fewest cases of a host, and the fewest hosts of a kind, for a verdict.
LEAST_CASES, LEAST_HOSTS = 3, 3
LEAST = 0.03
CHANCE = 0.01


@dataclass(frozen=True)
class Outlier:
    """A host that differs from others of its kind; ``change`` is a fraction of the throughput."""

    host: str
    change: float
    cases: int


def ratios(rates: Mapping[str, Mapping[str, float]]) -> Dict[str, List[float]]:
    """Return host -> for each case, the logarithm of its rate over the hosts' median.

    ``rates``: case -> host -> items per second. Cases with too few hosts do not count.
    """
    found: Dict[str, List[float]] = {}
    for by_host in rates.values():
        if len(by_host) < LEAST_HOSTS or min(by_host.values()) <= 0:
            continue
        usual = statistics.median(by_host.values())
        for host, rate in by_host.items():
            found.setdefault(host, []).append(math.log(rate / usual))
    return found


def outliers(rates: Mapping[str, Mapping[str, float]]) -> List[Outlier]:
    """Return the hosts that differ, the slowest first."""
    found = []
    changes = {h: logs for h, logs in ratios(rates).items() if len(logs) >= LEAST_CASES}
    for host, logs in changes.items():
        mean, cases = statistics.fmean(logs), len(logs)
        error = statistics.stdev(logs) / math.sqrt(cases)
        certain = abs(mean) > student_quantile(1 - CHANCE / (2 * len(changes)), cases - 1) * error
        if certain and abs(math.expm1(mean)) > LEAST:
            found.append(Outlier(host, math.expm1(mean), cases))
    return sorted(found, key=lambda one: one.change)


def lines(benchmarks: Sequence[Benchmark]) -> List[str]:
    """Return lines about hosts that differ from others with the same fingerprint."""
    kinds: Dict[str, Dict[str, Dict[str, float]]] = {}
    for benchmark in benchmarks:
        record, host = benchmark.record, benchmark.record.host or ""
        cases = kinds.setdefault(record.device.fingerprint, {})
        cases.setdefault(unnamed(benchmark.fullname, host), {})[host] = record.throughput.median
    return [
        f"{one.host} is {percent(abs(one.change))} {'slower' if one.change < 0 else 'faster'} than "
        f"the median of hosts of its kind, over {counted(one.cases, 'case')}"
        for cases in kinds.values()
        for one in outliers(cases)
    ]
