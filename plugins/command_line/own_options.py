"""Options that a project's conftest.py or plugin declares, as words for another process.

A test may measure other work with them, so a fresh process of a case gets those of its run. Those
of installed plugins stay with the run: many name a file that two processes must not both write.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest

from ipubench.fixtures.case.errors import CaseError

#: Folders of what is installed.
INSTALLED = ("site-packages", "dist-packages")
#: Packages with options of their own, which may be checkouts.
KNOWN = ("_pytest", "ipubench", "pytest_benchmark", "xdist")
#: Names of an option, and how it is declared.
Option = Tuple[Tuple[str, ...], Dict[str, Any]]
#: How argparse calls options without a value -> their value where they were not given, and given.
FLAGS = {"store_true": (False, True), "store_false": (True, False), "store_const": (None, None)}
#: Of Python 3.9: --NAME and --no-NAME.
BOOLEAN = getattr(argparse, "BooleanOptionalAction", None)


@dataclass
class _Declared:
    """Stands in for pytest's parser: notes the options that a plugin declares to it."""

    options: List[Option] = field(default_factory=list)

    def addoption(self, *names: str, **attributes: Any) -> None:
        """Note one option."""
        self.options.append((names, attributes))

    #: Of a group: lets it have a short name in lower case.
    _addoption = addoption

    def getgroup(self, *_: Any, **__: Any) -> _Declared:
        """Return what notes the options of a group."""
        return self

    def addini(self, *_: Any, **__: Any) -> None:
        """Settings of pytest.ini are there for every process."""


def own_arguments(config: pytest.Config, given: Optional[Sequence[str]] = None) -> List[str]:
    """Return the words that give another process the project's own options, and those of ``-o``.

    ``given``: of those alone that these words give, where the process reads the project's settings.
    Raises CaseError for a value that no word can stand for.
    """
    by_dest: Dict[str, List[Option]] = {}
    for option in _declared(config).options:
        by_dest.setdefault(_dest(option), []).append(option)
    words: List[str] = []
    for dest, options in by_dest.items():
        names = tuple(name for option in options for name in option[0])
        if given is None or any(word.startswith(names) for word in given):
            words += words_for(config.getoption(dest), options)
    for setting in config.getoption("override_ini") or ():
        if given is None:
            wanted = setting.partition("=")[0] != "addopts"  # which are for this run
        else:
            wanted = any(word.endswith(setting) for word in given)
        words += ["-o", setting] if wanted else []
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


def _flag(option: Option) -> str:
    names, _ = option
    return next((name for name in names if name.startswith("--")), names[0])


def _dest(option: Option) -> str:
    return option[1].get("dest") or _flag(option).lstrip("-").replace("-", "_")


def words_for(value: Any, options: Sequence[Option]) -> List[str]:
    """Return the words of one of the options of a value, which give it; none where it is default.

    Raises CaseError where none of them can give it.
    """
    attributes = options[0][1]
    unset, _ = FLAGS.get(attributes.get("action", "store"), (None, None))
    if value == attributes.get("default", unset):
        return []
    for option in options:
        words = _giving(value, option)
        if words is not None:
            return words
    raise CaseError(
        f"{_flag(options[0])}: another process would not read {value} as the value {value!r}, and "
        "so would measure something else: have the option's type return what it reads again from "
        "its text"
    )


def _giving(value: Any, option: Option) -> Optional[List[str]]:
    """Return the words by which an option gives a value; None where it cannot."""
    flag, attributes = _flag(option), option[1]
    action, default = attributes.get("action", "store"), attributes.get("default")
    if action in FLAGS:
        given = attributes["const"] if action == "store_const" else FLAGS[action][1]
        return [flag] if value == given else None
    if action is BOOLEAN:
        return [flag if value else f"--no-{flag[2:]}"] if isinstance(value, bool) else None
    if action == "count":
        more = value - (default or 0) if isinstance(value, int) else 0
        return [flag] * more or None
    several = isinstance(value, (list, tuple))
    if action in ("append", "extend") and several:
        added = value[len(default or ()) :]
        texts = [_text(one, attributes) for one in added]
        return None if None in texts else [word for text in texts for word in _word(flag, text)]
    if "nargs" in attributes and several:
        texts = [_text(one, attributes) for one in value]
        return None if None in texts else [flag, *map(str, texts)]
    text = _text(value, attributes)
    if text is None and attributes.get("nargs") == "?" and value == attributes.get("const"):
        return [flag]
    return None if text is None else _word(flag, text)


def _word(flag: str, text: Optional[str]) -> List[str]:
    return [f"{flag}={text}"] if flag.startswith("--") else [flag, str(text)]


def _text(value: Any, attributes: Dict[str, Any]) -> Optional[str]:
    """Return the text of a value; None where it would be read as another one."""
    text = str(value)
    with contextlib.suppress(Exception):  # whatever the project's own function raises
        if (attributes.get("type") or str)(text) == value:
            return text
    return None
