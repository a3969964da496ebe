"""A project's own options reach the other processes of a run."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any, List

import pytest

from ipubench.plugins.command_line.own_options import own_arguments


def declares(plugin: Any, *options: str, wraps: bool = False, **attributes: Any) -> Any:
    """Return a plugin's hook that declares options."""

    def declare(parser: Any, pluginmanager: Any) -> None:
        parser.addini("speed", "in pytest.ini")
        parser.getgroup("own", "of the project")._addoption(*options, **attributes)

    names = ("parser", "pluginmanager")
    return SimpleNamespace(plugin=plugin, function=declare, argnames=names, hookwrapper=wraps)


def module(name: str, file: str) -> ModuleType:
    """Return the module of a file."""
    made = ModuleType(name)
    made.__file__ = file
    return made


class OfAClass:
    """A plugin class that the project registers."""


CONFTEST = module("conftest", "/project/conftest.py")
HOOKS = [
    declares(CONFTEST, "-w", "--deep-size", type=int),
    declares(CONFTEST, "--fast", action="store_true"),
    declares(CONFTEST, "--parts", nargs="+"),
    declares(CONFTEST, "--maybe", nargs="?"),
    declares(CONFTEST, "--wrapped", wraps=True),
    declares(OfAClass(), "--of-class"),
    declares(module("_pytest.main", "/src/_pytest/main.py"), "--maxfail"),
    declares(module("ipubench.plugins.x", "/project/ipubench/plugins/x.py"), "--budget"),
    declares(module("pytest_cov", "/venv/lib/python3/site-packages/pytest_cov.py"), "--cov"),
]


@pytest.mark.parametrize(
    ("words", "own"),
    [
        (["-q", "-w", "4", "-k", "x"], ["-w", "4"]),
        (["-w4", "x.py"], ["-w4"]),
        (["--deep-size=4", "x.py"], ["--deep-size=4"]),
        (["--fast", "x.py", "--of-class", "a b"], ["--fast", "--of-class", "a b"]),
        (["--parts", "1", "2", "--maybe", "-q"], ["--parts", "1", "2", "--maybe"]),
        (["--maybe", "1", "x.py"], ["--maybe", "1"]),
        (["-o", "speed=9", "-ospeed=8", "-o", "addopts=-q"], ["-o", "speed=9", "-ospeed=8"]),
        (["--override-ini=addopts=-q", "--override-ini=a=b"], ["--override-ini=a=b"]),
        (["--maxfail=1", "--budget", "3", "--cov", "--wrapped=1"], []),
    ],
)
def test_project_options_and_run_settings_are_passed_on(words: List[str], own: List[str]) -> None:
    hook = SimpleNamespace(pytest_addoption=SimpleNamespace(get_hookimpls=lambda: HOOKS))
    config: Any = SimpleNamespace(pluginmanager=SimpleNamespace(hook=hook))
    assert own_arguments(config, words) == own
    if not own:
        assert own_arguments(config, ["-o", "addopts=-q"], addopts=True) == ["-o", "addopts=-q"]
