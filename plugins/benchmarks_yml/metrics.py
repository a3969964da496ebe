"""Finds figures in a command's output, their units, and reduces several values to one."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, List, Sequence

from ipubench.fixtures.case.errors import counted
from ipubench.plugins.record.text import finite_number

REDUCTIONS = ("mean", "final", "min", "value")
THROUGHPUT, LATENCY = "throughput", "latency"
#: Instead of a reduction, for a throughput or latency that is derived.
DERIVED = "derived"
#: How ``skip`` drops values: the first ones, or, as the original runner, after sorting.
ORDER, VALUE = "order", "value"
SKIPS = (ORDER, VALUE)
UNITS = {
    1.0: "s sec secs second seconds",
    1e-3: "ms msec msecs millisecond milliseconds",
    # The micro sign and the Greek letter.
    1e-6: "us usec usecs microsecond microseconds \u00b5s \u00b5sec \u03bcs \u03bcsec",
    1e-9: "ns nsec nsecs nanosecond nanoseconds",
}
SECONDS = {word: seconds for seconds, words in UNITS.items() for word in words.split()}
MILLISECOND = 1e-3
#: A large number with commas: 12,345.6
THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d*)?")
RATE = re.compile(r"([A-Za-z][A-Za-z _-]*?)\s*/\s*s(ec(onds?)?)?\b")
BRACKETS = re.compile(r"[(\[]([^()\[\]]*)[)\]]")


class MetricError(ValueError):
    """An output does not contain a metric; the message has its name and the reason."""


@dataclass(frozen=True)
class Metric:
    """A metric of an entry."""

    name: str
    regexp: str
    skip: int = 0
    reduction: str = "mean"

    def values(
        self, texts: Sequence[str], factor: float = 1.0, seconds: float = MILLISECOND
    ) -> List[float]:
        """Return the matched numbers, times ``factor``. Raises MetricError.

        A latency may match with its own unit. Then it is converted to the metric's, which has this
        many ``seconds``.
        """
        found = []
        for text in texts:
            number, unit = text, ""
            if self.name == LATENCY:
                number, _, unit = text.strip().rpartition(" ")
                if unit not in SECONDS:
                    number, unit = text, ""
            value = finite_number(
                number.replace(",", "") if THOUSANDS.fullmatch(number) else number
            )
            if value is None:
                raise MetricError(f"{self.name}: {text[:60]!r} matched, which is not a number")
            value *= factor * (SECONDS[unit] / seconds if unit else 1.0)
            if not math.isfinite(value):
                raise MetricError(f"{self.name}: {text[:60]!r} matched, which is too large")
            found.append(value)
        if len(found) <= self.skip:
            needed = f"more than skip: {self.skip}" if self.skip else "at least one"
            raise MetricError(
                f"{self.name}: {counted(len(found), 'value')} matched "
                f"{self.regexp!r}, {needed} must"
            )
        return found

    def kept(self, values: Sequence[float], skip_by: str) -> List[float]:
        """Return the values that the reduction uses: one, or for ``mean`` all that are kept.

        ``mean`` drops ``skip`` values: the earliest, or with ``skip_by`` value the lowest, for a
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


def search(metrics: Iterable[Metric], streams: Iterable[Path]) -> Dict[str, List[str]]:
    """Return metric -> every match, stream after stream; a match may span lines."""
    patterns = {metric.name: re.compile(metric.regexp, re.MULTILINE) for metric in metrics}
    found: Dict[str, List[str]] = {name: [] for name in patterns}
    for stream in streams:
        # Carriage returns of progress bars end lines too.
        text = stream.read_text(encoding="utf-8", errors="replace")
        for name, pattern in patterns.items():
            found[name] += pattern.findall(text)
    return found


def unit_counted(titles: Sequence[str]) -> str:
    """Return what the titles of a rate's columns count: samples for ``samples/sec``, or items."""
    found = next(filter(None, map(RATE.search, titles)), None)
    return found.group(1).strip() if found else "items"


def seconds_of(titles: Sequence[str]) -> float:
    """Return the seconds of the unit in the brackets of a time's column, or of a millisecond."""
    words = [word.strip().lower() for title in titles for word in BRACKETS.findall(title)]
    return next((SECONDS[word] for word in words if word in SECONDS), MILLISECOND)
