"""Finds figures in a command's output, their units, and reduces several values to one."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, List, Match, Sequence, Tuple

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
SHORT = 2  # letters; longer words may be written in capitals
_LONGEST_FIRST = sorted(SECONDS, key=len, reverse=True)
# After "/" and "per" it is a rate. After "?" it is uncertain, as the "s" in "m?s".
TIME = re.compile(
    r"(?P<rate>/\s*|\bper\s+)?(?<![A-Za-z\u00b5\u03bc'?])(?P<word>(?i:{long})|{short})(?![A-Za-z0-9])".format(
        long="|".join(word for word in _LONGEST_FIRST if len(word) > SHORT),
        short="|".join(word for word in _LONGEST_FIRST if len(word) <= SHORT),
    )
)
#: A large number with commas: 12,345.6
THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d*)?")
RATE = re.compile(r"([A-Za-z][A-Za-z _-]*?)\s*/\s*s(ec(onds?)?)?\b")
BRACKETS = re.compile(r"[(\[]([^()\[\]]*)[)\]]")
# The opening of a group with a name, with flags, or of a lookaround.
OPENING = r"\(\?(?:P<\w+>|[A-Za-z-]*[:)]|<?[=!])"
# The parts of a regular expression that do not match themselves.
NO_TEXT = re.compile(rf"\\(?P<escaped>.)|{OPENING}", re.DOTALL)
# Quantifiers, except after letters; brackets may end between them.
QUANTIFIED = re.compile(r"(?<![A-Za-z\u00b5\u03bc)\]])([)\]]*)[?*+]+")


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


def unit_counted(titles: Sequence[str], regexps: Sequence[str]) -> str:
    """Return what a rate counts: samples for ``samples/sec``; by default items."""
    texts = [*titles, *map(_plain, regexps)]
    found = next(filter(None, map(RATE.search, texts)), None)
    return found.group(1).strip() if found else "items"


def seconds_of(titles: Sequence[str], regexps: Sequence[str]) -> float:
    """Return the seconds of one unit of a time; by default of a millisecond.

    The unit is searched in this order: brackets in a title, the text of a regular expression after
    its group, the rest of a title, and the text before the group, from its end.
    """
    around = list(map(_around_group, regexps))
    texts = [text for title in titles for text in BRACKETS.findall(title)]
    texts += [after for _, after in around]
    units = [unit for text in (*texts, *titles) for unit in _times(text)]
    units += [unit for before, _ in around for unit in reversed(_times(before))]
    return SECONDS[units[0]] if units else MILLISECOND


def _times(text: str) -> List[str]:
    """Return the units of time in a text, without those of rates."""
    found = (match for match in TIME.finditer(text) if match["rate"] is None)
    return [match["word"].lower() for match in found]


def _around_group(regexp: str) -> Tuple[str, str]:
    """Return the text before and after the last bracket of a regular expression."""
    before, _, after = regexp.rpartition(")")
    return _plain(before), _plain(after)


def _plain(regexp: str) -> str:
    """Return the text of a regular expression: ``\\/`` is a slash, ``\\s?`` and ``(?:`` are blanks.

    A ``?`` after a letter stays: a word with an optional letter is uncertain.
    """

    def text(found: Match[str]) -> str:
        character = found["escaped"] or ""
        return " " if character.isalnum() or character in "?*+" else character

    return QUANTIFIED.sub(r"\1 ", NO_TEXT.sub(text, regexp))
