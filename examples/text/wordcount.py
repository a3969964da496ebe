"""Counts words: the code of this example."""

from __future__ import annotations

import collections
import re
from typing import Counter

WORD = re.compile(r"[a-z']+")


def count(text: str) -> Counter[str]:
    """Return how often each word of a text occurs, ignoring case."""
    return collections.Counter(WORD.findall(text.lower()))
