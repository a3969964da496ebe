"""Options that a project's conftest.py or plugin declares, as words for another process.

A test may measure other work with them, so a fresh process of a case gets those of its run. Those
of installed plugins stay with the run: many name a file that two processes must not both write.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, List, Sequence, Tuple

import pytest

#: Folders of what is installed.
INSTALLED = ("site-packages", "dist-packages")
#: pytest's option for a setting of pytest.ini.
SETTING = ("-o", "--override-ini")
#: Packages with options of their own, which may be checkouts.
KNOWN = ("_pytest", "ipubench", "pytest_benchmark", "xdist")


class _Declared:
    """Stands in for pytest's parser: notes the options that a plugin declares to it."""

    def __init__(self) -> None:
        #: How each option is declared, by each of its names.
        self.options: Dict[str, Dict[str, Any]] = {}

    def addoption(self, *names: str, **attributes: Any) -> None:
        """Note one option."""
        self.options.update(dict.fromkeys(names, attributes))

    #: Of a group: lets it have a short name in lower case.
    _addoption = addoption

    def getgroup(self, *_: Any, **__: Any) -> _Declared:
        """Return what notes the options of a group."""
        return self

    def addini(self, *_: Any, **__: Any) -> None:
        """Settings of pytest.ini are there for every process."""


def own_arguments(config: pytest.Config, words: Sequence[str], addopts: bool = False) -> List[str]:
    """Return those of the ``words`` that give the project's own options, and settings by ``-o``.

    ``addopts``: with the setting of that name, which is for this run.
    """
    options = {**_declared(config), **{key: {} for key in SETTING}}
    found: List[str] = []
    for place, word in enumerate(words):
        name, attached = _split(word, options)
        if name not in options:
            continue
        given = [word]
        if not attached:
            following = itertools.takewhile(lambda one: not one.startswith("-"), words[place + 1 :])
            given += itertools.islice(following, _most_values(options[name]))
        if addopts or name not in SETTING or "addopts=" not in given[-1]:
            found += given
    return found


def _split(word: str, options: Dict[str, Dict[str, Any]]) -> Tuple[str, bool]:
    """Return the name of an option, and whether its value is in the same word."""
    if word.startswith("--"):
        name, equals, _ = word.partition("=")
        return name, bool(equals)
    return word[:2], len(word) > 2 and word[:2] in options


def _most_values(attributes: Dict[str, Any]) -> int:
    """Return how many of the words after an option may be its values."""
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
    """Tell whether a plugin belongs to the project, and is not installed."""
    module = plugin if isinstance(plugin, ModuleType) else sys.modules.get(type(plugin).__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None or module.__name__.split(".")[0] in KNOWN:
        return False
    return not set(INSTALLED) & set(Path(file).parts)
