"""Arguments of a command line, and those passed on to other processes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, List

import pytest

from ipubench.plugins.command_line.arguments import (
    BENCHMARK_FLAGS,
    BENCHMARK_OPTIONS,
    benchmark_arguments,
    options_among,
    typed_arguments,
)


def test_settings_and_arguments_configure_pytest_benchmark() -> None:
    added = {"addopts": ["--benchmark-min-rounds", "9"]}
    given = SimpleNamespace(args=("-q", "--benchmark-warmup=on", Path("x")))
    config: Any = SimpleNamespace(invocation_params=given, getini=added.get)
    assert typed_arguments(config) == ["-q", "--benchmark-warmup=on", "x"]
    assert benchmark_arguments(config) == ["--benchmark-min-rounds=9", "--benchmark-warmup=on"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["-q", "--benchmark-min-rounds", "9", "x.py"], [["--benchmark-min-rounds", "9"]]),
        (["--benchmark-min-rounds=9", "9"], [["--benchmark-min-rounds=9"]]),
        (["--benchmark-warmup", "yes"], [["--benchmark-warmup", "yes"]]),
        (["--benchmark-warmup", "-q"], [["--benchmark-warmup"]]),
        (["x.py", "--benchmark-warmup"], [["--benchmark-warmup"]]),
        (["--benchmark-disable-gc", "x.py"], [["--benchmark-disable-gc"]]),
        (["--benchmark-warmup-iterations=9"], [["--benchmark-warmup-iterations=9"]]),
        (["--benchmark-min-rounds-of-mine=9"], []),
    ],
)
def test_options_are_found_with_their_values(words: List[str], found: List[List[str]]) -> None:
    assert options_among(words, BENCHMARK_OPTIONS, BENCHMARK_FLAGS) == found


def test_a_short_option_may_have_its_value_attached() -> None:
    words = ["-p", "no:cacheprovider", "-pxdist", "--rootdir=here", "-k", "lstm"]
    found = [["-p", "no:cacheprovider"], ["-pxdist"], ["--rootdir=here"]]
    assert options_among(words, ("-p", "--rootdir")) == found
