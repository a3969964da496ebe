"""A project's own options become words that another process reads as the same values."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Dict, List, Sequence

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.plugins.command_line.own_options import BOOLEAN, Option, words_for


def words_of(options: Sequence[Option], given: List[str]) -> List[str]:
    """Return the words for what is given; what they make of it must be the same."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    (dest,) = {parser.add_argument(*names, **attributes).dest for names, attributes in options}
    value = vars(parser.parse_args(given))[dest]
    words = words_for(value, options)
    assert vars(parser.parse_args(words))[dest] == value
    return words


TURBO = (["--turbo"], {"action": BOOLEAN})
WITH_BOOLEAN = pytest.mark.skipif(BOOLEAN is None, reason="needs Python 3.9")


@pytest.mark.parametrize(
    ("names", "attributes", "given", "words"),
    [
        (["--size"], {"type": int, "default": 10}, ["--size=20"], ["--size=20"]),
        (["--size"], {"type": int, "default": 10}, ["--size=10"], []),
        (["-s", "--size"], {}, ["-s", "a b"], ["--size=a b"]),
        (["-s"], {"type": float}, ["-s.5"], ["-s", "0.5"]),
        (["--in-path"], {"type": Path}, ["--in-path=x/y"], ["--in-path=x/y"]),
        (["--fast"], {"action": "store_true"}, ["--fast"], ["--fast"]),
        (["--fast"], {"action": "store_true"}, [], []),
        (["--no-fast"], {"action": "store_false", "dest": "fast"}, ["--no-fast"], ["--no-fast"]),
        (["--fast"], {"action": "store_const", "const": 3}, ["--fast"], ["--fast"]),
        pytest.param(*TURBO, ["--turbo"], ["--turbo"], marks=WITH_BOOLEAN),
        pytest.param(*TURBO, ["--no-turbo"], ["--no-turbo"], marks=WITH_BOOLEAN),
        (["-s"], {"action": "count", "default": 1}, ["-ss"], ["-s", "-s"]),
        (["-s"], {"action": "count"}, ["-ss"], ["-s", "-s"]),
        (
            ["--part"],
            {"action": "append", "type": int, "default": [1]},
            ["--part=2", "--part=3"],
            ["--part=2", "--part=3"],
        ),
        (["--parts"], {"nargs": "+", "type": int}, ["--parts", "2", "3"], ["--parts", "2", "3"]),
        (["--part"], {"nargs": "?", "const": "all"}, ["--part"], ["--part=all"]),
    ],
)
def test_words_are_read_as_the_same(
    names: List[str], attributes: Dict[str, Any], given: List[str], words: List[str]
) -> None:
    assert words_of([(tuple(names), attributes)], given) == words


@pytest.mark.parametrize("kind", [lambda text: text.split(","), lambda text: {text: int(text)}])
def test_a_value_that_no_word_stands_for_is_refused(kind: Any) -> None:
    with pytest.raises(CaseError, match="^--odd: another process would not read .*: have the opt"):
        words_of([(("--odd",), {"type": kind})], ["--odd=1"])


SPEED = [
    (("--fast",), {"action": "store_const", "const": "fast", "dest": "speed"}),
    (("--slow",), {"action": "store_const", "const": "slow", "dest": "speed"}),
    (("--speed",), {}),
]
CACHE = [
    (("--use-cache",), {"action": "store_true", "default": False}),
    (("--no-cache",), {"action": "store_false", "dest": "use_cache", "default": False}),
]


@pytest.mark.parametrize(
    ("options", "given", "words"),
    [
        (SPEED, ["--fast"], ["--fast"]),
        (SPEED, ["--fast", "--slow"], ["--slow"]),
        (SPEED, ["--speed=odd"], ["--speed=odd"]),
        (SPEED, [], []),
        (CACHE, ["--use-cache"], ["--use-cache"]),
        (CACHE, ["--use-cache", "--no-cache"], []),
        (CACHE[::-1], ["--use-cache"], ["--use-cache"]),
    ],
)
def test_of_several_options_of_a_value_one_gives_it(
    options: List[Option], given: List[str], words: List[str]
) -> None:
    assert words_of(options, given) == words
