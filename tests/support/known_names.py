"""Caches what pytest searches for in every run, which takes a fifth of a short run.

Pytest checks every name of every plugin for hooks and again for fixtures, and rewrites the
conftest.py and the cases of a test's project, which most tests leave unchanged. A server of runs
(tests/support/suite_server.py) fills the caches before it forks.
"""

from __future__ import annotations

import builtins
import os
import sys
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Iterator, Mapping, Sequence

import _pytest.assertion.rewrite
import _pytest.fixtures
import pluggy._manager

#: Packages whose modules and classes get no new names in a run.
PACKAGES = ("_pytest", "ipubench", "pytest_benchmark", "xdist")
#: Attributes of a fixture: until pytest 8.3, and since.
MARKS = ("_pytestfixturefunction", "_fixture_function_marker")


def know_names() -> None:
    """Have pytest skip names in imported modules that cannot be hooks or fixtures.

    Instances of their classes are skipped likewise.
    """
    holders = list(_holders())
    hooks = {one: [name for name in dir(one) if name.startswith("pytest_")] for one in holders}
    fixtures = {one: [name for name in dir(one) if _is_fixture(one, name)] for one in holders}
    _look_only_at(pluggy._manager, {k: v for k, v in hooks.items() if isinstance(k, ModuleType)})
    _look_only_at(_pytest.fixtures, fixtures)
    _find_functions_at_once()


def know_sources(*paths: Path) -> None:
    """Have pytest reuse rewritten code for files with one of these texts."""
    patched: Any = _pytest.assertion.rewrite
    rewrite = patched._rewrite_test
    known = {path.read_bytes(): rewrite(path, None) for path in paths}

    def rewritten(path: Path, config: Any) -> Any:
        found = known.get(path.read_bytes())
        if found is None:
            return rewrite(path, config)
        state, code = found  # until pytest 9.1 the file's dates, then a hash of its text
        return state if isinstance(state, bytes) else os.stat(path), _renamed(code, str(path))

    patched._rewrite_test = rewritten


def _holders() -> Iterator[Any]:
    """Yield the imported modules of the packages, and their classes."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in PACKAGES:
            yield module
            for value in vars(module).values():
                if isinstance(value, type) and value.__module__ == name:
                    yield value


def _is_fixture(holder: Any, name: str) -> bool:
    value = getattr(holder, name, None)
    return any(hasattr(value, mark) for mark in MARKS)


def _look_only_at(module: Any, known: Mapping[Any, Sequence[str]]) -> None:
    """Limit the names that a module's code sees in known modules and their classes' instances."""

    def names(holder: Any) -> Sequence[str]:
        key = holder if isinstance(holder, ModuleType) else type(holder)
        found = known.get(key)
        return builtins.dir(holder) if found is None else found

    module.dir = names


def _find_functions_at_once() -> None:
    """Have newer versions of pluggy skip the search for properties in a module."""
    patched: Any = pluggy._manager
    look = getattr(patched, "_static_hook_attr", None)
    if look is None:
        return

    def found(holder: Any, name: str) -> Any:
        value = vars(holder).get(name) if isinstance(holder, ModuleType) else None
        return (value, value) if isinstance(value, FunctionType) else look(holder, name)

    patched._static_hook_attr = found


def _renamed(code: CodeType, path: str) -> CodeType:
    """Return code as if it had been compiled from another file."""
    parts = (_renamed(one, path) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=path, co_consts=tuple(parts))
