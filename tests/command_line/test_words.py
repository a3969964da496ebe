"""The words of a command line, and those of them that other processes get."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, List

import pytest

from ipubench.plugins.command_line.words import (
    BENCHMARK_FLAGS,
    BENCHMARK_OPTIONS,
    benchmark_arguments,
    options_among,
    typed_words,
)


@pytest.mark.skipif(pytest.version_tuple < (8, 2), reason="older versions of pytest read no @FILE")
def test_words_in_a_file_are_words_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("-k\ntwo words\n@more\n")
    (tmp_path / "more").write_text("--budget=3\n")
    given = pytest.Config.InvocationParams(
        args=("-q", "@words", str(tmp_path)), plugins=None, dir=tmp_path
    )
    added = ["--benchmark-min-rounds", "9", "@told"]
    config: Any = SimpleNamespace(invocation_params=given, getini={"addopts": added}.get)
    found = typed_words(config)
    assert found == ["-q", "-k", "two words", "--budget=3", str(tmp_path)]
    (tmp_path / "told").write_text("--benchmark-warmup=on\n")
    told = ["--benchmark-min-rounds=9", "--benchmark-warmup=on"]
    assert benchmark_arguments(config) == told


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
