"""A figure that a command's output holds, and how several of them become one."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, List, Sequence

REDUCTIONS = ("mean", "final", "min", "value")
THROUGHPUT, LATENCY = "throughput", "latency"
#: How ``skip`` drops values: the first ones, or as the original runner, which sorts them before.
ORDER, VALUE = "order", "value"
SKIPS = (ORDER, VALUE)


class MetricError(ValueError):
    """An output does not hold a metric; the message says which and why."""


@dataclass(frozen=True)
class Metric:
    """A metric of an entry."""

    name: str
    regexp: str
    skip: int = 0
    reduction: str = "mean"

    def values(self, words: Sequence[str], factor: float = 1.0) -> List[float]:
        """Return the numbers that matched, times ``factor``. Raises MetricError."""
        found = []
        for word in words:
            try:
                value = float(word)
            except ValueError:
                value = math.nan
            if not math.isfinite(value):
                raise MetricError(f"{self.name}: {word[:60]!r} matched, which is no number")
            if not math.isfinite(value * factor):
                raise MetricError(f"{self.name}: {word[:60]!r} matched, which is too large")
            found.append(value * factor)
        if len(found) <= self.skip:
            needed = f"more than skip: {self.skip}" if self.skip else "at least one"
            raise MetricError(
                f"{self.name}: {len(found)} value{'' if len(found) == 1 else 's'} matched "
                f"{self.regexp!r}, {needed} must"
            )
        return found

    def kept(self, values: Sequence[float], skip_by: str) -> List[float]:
        """Return the values that its figure is made of: of ``final``, ``min``, ``value`` the one.

        ``mean`` leaves out ``skip``: the earliest, or with ``skip_by`` value the lowest, of a
        latency the highest.
        """
        if self.reduction == "final":
            return [values[-1]]
        if self.reduction == "min":
            return [min(values)]
        if self.reduction == "value":
            return [values[0]]
        if skip_by == VALUE:
            values = sorted(values, reverse=self.name == LATENCY)
        return list(values[self.skip :])


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean."""
    return math.fsum(values) / len(values)


def search(metrics: Iterable[Metric], streams: Iterable[Path]) -> Dict[str, List[str]]:
    """Return metric -> every match of every line, stream after stream."""
    patterns = {metric.name: re.compile(metric.regexp) for metric in metrics}
    found: Dict[str, List[str]] = {name: [] for name in patterns}
    for stream in streams:
        # Carriage returns of progress bars end lines too.
        with stream.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                for name, pattern in patterns.items():
                    found[name] += pattern.findall(line.rstrip("\n"))
    return found
