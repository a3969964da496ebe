"""A project's own options become words that another process reads as the same values."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Dict, List, Sequence

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.plugins.command_line.own_options import BOOLEAN, Option, own_arguments, words_for


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
        (["--part"], {"nargs": "?", "const": True}, ["--part"], ["--part"]),
        (["--part"], {"nargs": "?", "const": True}, ["--part=one"], ["--part=one"]),
        (["--parts"], {"nargs": "*", "default": [1]}, ["--parts"], ["--parts"]),
        (["--parts"], {"action": "append"}, ["--parts=1", "--parts=2"], ["--parts=1", "--parts=2"]),
        (
            ["--part"],
            {"action": "extend", "nargs": "+", "type": int},
            ["--part", "2", "3", "--part", "4"],
            ["--part=2", "--part=3", "--part=4"],
        ),
        (["--name"], {"type": None}, ["--name=x"], ["--name=x"]),
        (["-n"], {"action": "append", "dest": "names"}, ["-na", "-nb"], ["-n", "a", "-n", "b"]),
        (["--in-part", "--ip"], {}, ["--ip=x"], ["--in-part=x"]),
    ],
)
def test_words_are_read_as_the_same(
    names: List[str], attributes: Dict[str, Any], given: List[str], words: List[str]
) -> None:
    assert words_of([(tuple(names), attributes)], given) == words


def as_list(text: str) -> List[str]:
    return text.split(",")


@pytest.mark.parametrize(
    ("attributes", "given"),
    [
        ({"type": as_list}, ["--odd=1"]),
        ({"type": lambda text: {text: int(text)}}, ["--odd=1"]),
        ({"type": as_list, "action": "append"}, ["--odd=1"]),
        ({"type": as_list, "nargs": "+"}, ["--odd", "1", "2"]),
        ({"action": "append_const", "const": "1"}, ["--odd"]),
    ],
)
def test_a_value_that_no_word_stands_for_is_refused(
    attributes: Dict[str, Any], given: List[str]
) -> None:
    with pytest.raises(CaseError, match="^--odd: another process would not read .*: have the opt"):
        words_of([(("--odd",), attributes)], given)


SPEED = [
    (("--fast",), {"action": "store_const", "const": "fast", "dest": "speed"}),
    (("--slow",), {"action": "store_const", "const": "slow", "dest": "speed"}),
    (("--speed",), {}),
]
LOUD = [
    (("-L",), {"action": "count", "dest": "loud", "default": 3}),
    (("--loud",), {"type": int, "default": 3}),
]
MODE = [(("--mode",), {"action": BOOLEAN, "dest": "mode"}), (("--mode-name",), {"dest": "mode"})]
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
        (LOUD, ["-LL"], ["-L", "-L"]),
        (LOUD, ["--loud=1"], ["--loud=1"]),
        pytest.param(MODE, ["--mode-name=x"], ["--mode-name=x"], marks=WITH_BOOLEAN),
        (CACHE, ["--use-cache"], ["--use-cache"]),
        (CACHE, ["--use-cache", "--no-cache"], []),
        (CACHE[::-1], ["--use-cache"], ["--use-cache"]),
    ],
)
def test_of_several_options_of_a_value_one_gives_it(
    options: List[Option], given: List[str], words: List[str]
) -> None:
    assert words_of(options, given) == words


def declares(plugin: Any, *options: str, wraps: bool = False, **attributes: Any) -> Any:
    """Return the hook of a plugin that declares numbers."""

    def declare(parser: Any, pluginmanager: Any) -> None:
        parser.addini("speed", "in pytest.ini")
        group = parser.getgroup("own", "of the project")
        for option in options:
            group._addoption(option, type=int, **attributes)

    names = ("parser", "pluginmanager")
    return SimpleNamespace(plugin=plugin, function=declare, argnames=names, hookwrapper=wraps)


def module(name: str, file: str) -> ModuleType:
    """Return a module of a file."""
    made = ModuleType(name)
    made.__file__ = file
    return made


class OfAClass:
    """A plugin that the project registers."""


CONFTEST = module("conftest", "/project/conftest.py")
HOOKS = [
    declares(CONFTEST, "-w", "--deep-size"),
    declares(CONFTEST, "--wrapped", wraps=True),
    declares(OfAClass(), "--of-class", dest="seven"),
    declares(module("_pytest.main", "/src/_pytest/main.py"), "--maxfail"),
    declares(module("ipubench.plugins.x", "/project/ipubench/plugins/x.py"), "--budget"),
    declares(module("pytest_cov", "/venv/lib/python3/site-packages/pytest_cov.py"), "--cov"),
]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, ["-w", "4", "--deep-size=4", "--of-class=7", "-o", "speed=9"]),
        ([], []),
        (["-w4", "-k", "x"], ["-w", "4"]),
        (["--deep-size", "4", "-ospeed=9"], ["--deep-size=4", "-o", "speed=9"]),
        (["-o", "addopts=-q"], ["-o", "addopts=-q"]),
    ],
)
def test_options_of_the_project_and_settings_of_the_run_are_passed_on(
    given: Any, words: List[str]
) -> None:
    hook = SimpleNamespace(pytest_addoption=SimpleNamespace(get_hookimpls=lambda: HOOKS))
    values: Dict[str, Any] = {"seven": 7, "override_ini": ["speed=9", "addopts=-q"]}
    config: Any = SimpleNamespace(pluginmanager=SimpleNamespace(hook=hook))
    config.getoption = lambda name: values.get(name, 4)
    assert own_arguments(config, given) == words
