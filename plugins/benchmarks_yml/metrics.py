"""A figure that a command's output holds: how it is found, its unit, how several become one."""

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
#: In place of a reduction, of a throughput or latency that is no metric.
DERIVED = "derived"
#: How ``skip`` drops values: the first ones, or as the original runner, which sorts them before.
ORDER, VALUE = "order", "value"
SKIPS = (ORDER, VALUE)
WORDS = {
    1.0: "s sec secs second seconds",
    1e-3: "ms msec msecs millisecond milliseconds",
    # The micro sign and the Greek letter.
    1e-6: "us usec usecs microsecond microseconds \u00b5s \u00b5sec \u03bcs \u03bcsec",
    1e-9: "ns nsec nsecs nanosecond nanoseconds",
}
SECONDS = {word: seconds for seconds, words in WORDS.items() for word in words.split()}
MILLISECOND = 1e-3
SHORT = 2  # letters; longer words may be written in capitals
_LONGEST_FIRST = sorted(SECONDS, key=len, reverse=True)
# After "/" and "per" it is a rate; after "?" no certain word, as of the "s" in "m?s".
TIME = re.compile(
    r"(?P<rate>/\s*|\bper\s+)?(?<![A-Za-z\u00b5\u03bc'?])(?P<word>(?i:{long})|{short})(?![A-Za-z0-9])".format(
        long="|".join(word for word in _LONGEST_FIRST if len(word) > SHORT),
        short="|".join(word for word in _LONGEST_FIRST if len(word) <= SHORT),
    )
)
#: As this suite and many programs print large numbers: 12,345.6
THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d*)?")
RATE = re.compile(r"([A-Za-z][A-Za-z _-]*?)\s*/\s*s(ec(onds?)?)?\b")
BRACKETS = re.compile(r"[(\[]([^()\[\]]*)[)\]]")
# What opens a group beyond "(": its name, flags, or what must stand before or after.
OPENING = r"\(\?(?:P<\w+>|[A-Za-z-]*[:)]|<?[=!])"
# What stands in a regular expression for something else than itself.
NO_TEXT = re.compile(rf"\\(?P<escaped>.)|{OPENING}", re.DOTALL)
# How often something other than a letter is there; brackets may end between them.
QUANTIFIED = re.compile(r"(?<![A-Za-z\u00b5\u03bc)\]])([)\]]*)[?*+]+")


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
            value = finite_number(word.replace(",", "") if THOUSANDS.fullmatch(word) else word)
            if value is None:
                raise MetricError(f"{self.name}: {word[:60]!r} matched, which is no number")
            if not math.isfinite(value * factor):
                raise MetricError(f"{self.name}: {word[:60]!r} matched, which is too large")
            found.append(value * factor)
        if len(found) <= self.skip:
            needed = f"more than skip: {self.skip}" if self.skip else "at least one"
            raise MetricError(
                f"{self.name}: {counted(len(found), 'value')} matched "
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


def search(metrics: Iterable[Metric], streams: Iterable[Path]) -> Dict[str, List[str]]:
    """Return metric -> every match, stream after stream; a match may hold ends of lines."""
    patterns = {metric.name: re.compile(metric.regexp, re.MULTILINE) for metric in metrics}
    found: Dict[str, List[str]] = {name: [] for name in patterns}
    for stream in streams:
        # Carriage returns of progress bars end lines too.
        text = stream.read_text(encoding="utf-8", errors="replace")
        for name, pattern in patterns.items():
            found[name] += pattern.findall(text)
    return found


def unit_counted(titles: Sequence[str], regexps: Sequence[str]) -> str:
    """Return what a rate counts: the samples of ``samples/sec``; items where nobody says it."""
    texts = [*titles, *map(_plain, regexps)]
    found = next(filter(None, map(RATE.search, texts)), None)
    return found.group(1).strip() if found else "items"


def seconds_of(titles: Sequence[str], regexps: Sequence[str]) -> float:
    """Return the seconds of one unit of a time: of a millisecond where nobody says another one.

    The brackets of a title come first, then what a regular expression has after its group, which
    the command prints, then the rest of a title, and the last word before the group.
    """
    sides = list(map(_sides, regexps))
    texts = [inner for title in titles for inner in BRACKETS.findall(title)]
    texts += [after for _, after in sides]
    words = [word for text in (*texts, *titles) for word in _times(text)]
    words += [word for before, _ in sides for word in reversed(_times(before))]
    return SECONDS[words[0]] if words else MILLISECOND


def _times(text: str) -> List[str]:
    """Return the words of times in a text, without those of rates."""
    found = (match for match in TIME.finditer(text) if match["rate"] is None)
    return [match["word"].lower() for match in found]


def _sides(regexp: str) -> Tuple[str, str]:
    """Return what stands before and after the last bracket of a regular expression."""
    before, _, after = regexp.rpartition(")")
    return _plain(before), _plain(after)


def _plain(regexp: str) -> str:
    """Return the text of a regular expression: ``\\/`` is a slash, ``\\s?`` and ``(?:`` are blanks.

    The ``?`` of a letter stays: a word with a letter that may be missing is no certain one.
    """

    def text(found: Match[str]) -> str:
        character = found["escaped"] or ""
        return " " if character.isalnum() or character in "?*+" else character

    return QUANTIFIED.sub(r"\1 ", NO_TEXT.sub(text, regexp))
