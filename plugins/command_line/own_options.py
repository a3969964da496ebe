"""Options that a project's conftest.py or plugin declares, as words for another process.

A test may measure other work with them, so a fresh process of a case gets those of its run. Those
of installed plugins stay with the run: many name a file that two processes must not both write.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, List, Tuple

import pytest

from ipubench.fixtures.case.errors import CaseError

#: Folders of what is installed.
INSTALLED = ("site-packages", "dist-packages")
#: Packages with options of their own, which may be checkouts.
KNOWN = ("_pytest", "ipubench", "pytest_benchmark", "xdist")
#: How argparse calls options without a value -> their value where they were not given.
FLAGS = {"store_true": False, "store_false": True, "store_const": None}


@dataclass
class _Declared:
    """Stands in for pytest's parser: notes the options that a plugin declares to it."""

    options: List[Tuple[Tuple[str, ...], Dict[str, Any]]] = field(default_factory=list)

    def addoption(self, *names: str, **attributes: Any) -> None:
        """Note one option."""
        self.options.append((names, attributes))

    def getgroup(self, *_: Any, **__: Any) -> _Declared:
        """Return what notes the options of a group."""
        return self

    def addini(self, *_: Any, **__: Any) -> None:
        """Settings of pytest.ini are there for every process."""


def own_arguments(config: pytest.Config) -> List[str]:
    """Return the words that give another process the project's own options, and those of ``-o``.

    Raises CaseError for a value that no word can stand for.
    """
    words: List[str] = []
    for names, attributes in _declared(config).options:
        words += _words(config, names, attributes)
    for setting in config.getoption("override_ini") or ():
        if setting.partition("=")[0] != "addopts":
            words += ["-o", setting]
    return words


def _declared(config: pytest.Config) -> _Declared:
    found = _Declared()
    hook = config.pluginmanager.hook.pytest_addoption
    for hookimpl in hook.get_hookimpls():
        wraps = hookimpl.hookwrapper or getattr(hookimpl, "wrapper", False)
        if _is_own(hookimpl.plugin) and not wraps:
            given = {"parser": found, "pluginmanager": config.pluginmanager}
            hookimpl.function(*(given[name] for name in hookimpl.argnames))
    return found


def _is_own(plugin: Any) -> bool:
    """Tell whether a plugin belongs to the project, and is not installed."""
    module = plugin if isinstance(plugin, ModuleType) else sys.modules.get(type(plugin).__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None or module.__name__.split(".")[0] in KNOWN:
        return False
    return not set(INSTALLED) & set(Path(file).parts)


def _words(config: pytest.Config, names: Tuple[str, ...], attributes: Dict[str, Any]) -> List[str]:
    """Return the words of one option; none where it has the value that it has by itself."""
    flag = next((name for name in names if name.startswith("--")), names[0])
    dest = attributes.get("dest") or flag.lstrip("-").replace("-", "_")
    action = attributes.get("action", "store")
    value = config.getoption(dest)
    if value == attributes.get("default", FLAGS.get(action)):
        return []
    if action in FLAGS:
        return [flag]
    if action == "count":
        return [flag] * (value - (attributes.get("default") or 0))
    if action in ("append", "extend"):
        added = value[len(attributes.get("default") or ()) :]
        return [word for one in added for word in _word(flag, _text(flag, one, attributes))]
    if "nargs" in attributes and isinstance(value, (list, tuple)):
        return [flag, *(_text(flag, one, attributes) for one in value)]
    return _word(flag, _text(flag, value, attributes))


def _word(flag: str, text: str) -> List[str]:
    return [f"{flag}={text}"] if flag.startswith("--") else [flag, text]


def _text(flag: str, value: Any, attributes: Dict[str, Any]) -> str:
    """Return the text of a value. Raises CaseError where it would be read as another value."""
    text, same = str(value), False
    with contextlib.suppress(Exception):  # whatever the project's own function raises
        same = attributes.get("type", str)(text) == value
    if same:
        return text
    raise CaseError(
        f"{flag}: another process would not read {text} as the value {value!r}, and so would "
        "measure something else: have the option's type return what it reads again from its text"
    )
