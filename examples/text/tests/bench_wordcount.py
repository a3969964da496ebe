"""Measures how fast words are counted and numbers sorted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from wordcount import count

from ipubench import CaseConfig, Sweep, cases, option

LINE = "It was the best of times, it was the worst of times, it was the age of wisdom.\n"


@dataclass(frozen=True)
class Text(CaseConfig):
    """Options of a text; ``--set=lines=500`` changes one."""

    name: str = option("text", "first part of the case's name")
    data: str = option("generated", "where the input comes from", choices=("generated",))
    lines: int = option(100, "lines of the text", minimum=1)


@cases(Sweep(Text(), "lines", (10, 100, 1000)))
def bench_count(config: Text, meter: Any) -> None:
    text = LINE * config.lines
    meter(lambda: count(text), items=len(text), unit="characters")


@pytest.mark.parametrize("length", [1000, 100_000])
def bench_sort(benchmark: Any, length: int) -> None:
    """A test as users of pytest-benchmark write it."""
    assert benchmark(sorted, range(length, 0, -1))[0] == 1
