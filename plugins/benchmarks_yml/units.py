"""The units that a column's title or a regular expression speaks of."""

from __future__ import annotations

import re
from typing import List, Optional, Sequence, Tuple

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
# After "/" and "per" it is a rate; after "?" a flag of a regular expression, or no certain letter.
TIME = re.compile(
    r"(?P<rate>/\s*|\bper\s+)?(?<![A-Za-z\u00b5\u03bc'?])(?P<word>(?i:{long})|{short})(?![A-Za-z0-9])".format(
        long="|".join(word for word in _LONGEST_FIRST if len(word) > SHORT),
        short="|".join(word for word in _LONGEST_FIRST if len(word) <= SHORT),
    )
)
RATE = re.compile(r"([A-Za-z][A-Za-z _-]*?)\s*/\s*s(ec(onds?)?)?\b")
BRACKETS = re.compile(r"[(\[]([^()\[\]]*)[)\]]")
# The parts of a regular expression among which a bracket may be no group.
PARTS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?P<other>\?(?!P<))?|\)", re.DOTALL)


def counted(titles: Sequence[str], regexps: Sequence[str]) -> str:
    """Return what a rate counts: the samples of ``samples/sec``; items where nobody says it."""
    texts = [*titles, *map(_plain, regexps)]
    found = next(filter(None, map(RATE.search, texts)), None)
    return found.group(1).strip() if found else "items"


def seconds_of(titles: Sequence[str], regexps: Sequence[str]) -> float:
    """Return the seconds of one unit of a time: of a millisecond where nobody says another one.

    A title says it in its brackets or else anywhere; a regular expression after its group, or else
    as the last word before it.
    """
    for title in titles:
        words = [word for inner in BRACKETS.findall(title) for word in _times(inner)]
        words += _times(title)
        if words:
            return SECONDS[words[0]]
    for regexp in regexps:
        before, after = _sides(regexp)
        words = [*_times(after), *reversed(_times(before))]
        if words:
            return SECONDS[words[0]]
    return MILLISECOND


def _times(text: str) -> List[str]:
    """Return the words of times in a text, without those of rates."""
    found = (match for match in TIME.finditer(text) if match["rate"] is None)
    return [match["word"].lower() for match in found]


def _sides(regexp: str) -> Tuple[str, str]:
    """Return what stands before and after the group of a regular expression."""
    opened: List[Optional[int]] = []
    for part in PARTS.finditer(regexp):
        if part.group().startswith("("):
            opened.append(part.start() if part["other"] is None else None)
        elif part.group() == ")" and opened:
            start = opened.pop()
            if start is not None:
                return _plain(regexp[:start]), _plain(regexp[part.end() :])
    return "", _plain(regexp)


def _plain(regexp: str) -> str:
    """Return a regular expression without backslashes: ``\\/`` is a slash, ``\\s`` no letter."""
    return re.sub(r"\\(.)", lambda match: " " if match[1].isalnum() else match[1], regexp)
