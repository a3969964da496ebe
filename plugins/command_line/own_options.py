"""Passes the options that a project's conftest.py or plugin declares to other processes.

These options may change what a test measures, so a fresh process of a case gets them. It does not
get options of installed plugins: many name a file that two processes must not both write.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, List, Sequence, Tuple

import pytest

#: Folders of installed packages.
INSTALLED = ("site-packages", "dist-packages")
#: pytest's option for a setting of pytest.ini.
SETTING = ("-o", "--override-ini")
#: Packages that are not a project's plugins, even if they are checkouts.
KNOWN = ("_pytest", "ipubench", "pytest_benchmark", "xdist")


class _Declared:
    """Replaces pytest's parser, to collect the options that a plugin declares."""

    def __init__(self) -> None:
        #: Each name of an option -> its declaration.
        self.options: Dict[str, Dict[str, Any]] = {}

    def addoption(self, *names: str, **attributes: Any) -> None:
        """Note one option."""
        self.options.update(dict.fromkeys(names, attributes))

    #: A group's method for short names in lower case.
    _addoption = addoption

    def getgroup(self, *_: Any, **__: Any) -> _Declared:
        """Return this object, which also collects the options of groups."""
        return self

    def addini(self, *_: Any, **__: Any) -> None:
        """Ignore settings: every process reads them from pytest.ini."""


def own_arguments(
    config: pytest.Config, arguments: Sequence[str], addopts: bool = False
) -> List[str]:
    """Return the ``arguments`` that are options of the project, or settings by ``-o``.

    ``addopts``: include the setting of that name, which is for this run.
    """
    options = {**_declared(config), **{key: {} for key in SETTING}}
    found: List[str] = []
    for position, argument in enumerate(arguments):
        name, attached = _split(argument, options)
        if name not in options:
            continue
        given = [argument]
        if not attached:
            after = arguments[position + 1 :]
            values = itertools.takewhile(lambda one: not one.startswith("-"), after)
            given += itertools.islice(values, _most_values(options[name]))
        if addopts or name not in SETTING or "addopts=" not in given[-1]:
            found += given
    return found


def _split(argument: str, options: Dict[str, Dict[str, Any]]) -> Tuple[str, bool]:
    """Return the name of an option, and whether its value is in the same argument."""
    if argument.startswith("--"):
        name, equals, _ = argument.partition("=")
        return name, bool(equals)
    return argument[:2], len(argument) > 2 and argument[:2] in options


def _most_values(attributes: Dict[str, Any]) -> int:
    """Return how many arguments after an option may be its values."""
    nargs = attributes.get("nargs", 1)
    if attributes.get("action", "store") not in ("store", "append", "extend"):
        return 0
    return nargs if isinstance(nargs, int) else 1 if nargs == "?" else sys.maxsize


def _declared(config: pytest.Config) -> Dict[str, Dict[str, Any]]:
    found = _Declared()
    for hookimpl in config.pluginmanager.hook.pytest_addoption.get_hookimpls():
        wraps = hookimpl.hookwrapper or getattr(hookimpl, "wrapper", False)
        if _is_own(hookimpl.plugin) and not wraps:
            given = {"parser": found, "pluginmanager": config.pluginmanager}
            hookimpl.function(*(given[name] for name in hookimpl.argnames))
    return found.options


def _is_own(plugin: Any) -> bool:
    """Return whether a plugin belongs to the project, and is not an installed package."""
    module = plugin if isinstance(plugin, ModuleType) else sys.modules.get(type(plugin).__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None or module.__name__.split(".")[0] in KNOWN:
        return False
    return not set(INSTALLED) & set(Path(file).parts)
