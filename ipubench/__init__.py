"""Graphcore's public benchmark programs as a pytest suite: measured, recorded, gated.

The names below are what a bench file of one's own needs: ``from ipubench import cases, option``.
``-p ipubench`` makes pytest take this module for a plugin, in any repository.

In a checkout this folder holds links to the folders of the top level, so that every module has
one name, here and where the project is installed: ``ipubench.plugins``, ``ipubench.fixtures``.

PYTEST_DONT_REWRITE, which pytest reads: a conftest.py, or the process of a host, may import this
module before pytest takes it for a plugin.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from ipubench.fixtures.case.cases import NAMED, Sweep, cases
    from ipubench.fixtures.case.options import CaseConfig, option
    from ipubench.fixtures.runtimes.step import Step

__all__ = ["NAMED", "CaseConfig", "Step", "Sweep", "cases", "option"]

_HOMES = {
    "NAMED": "fixtures.case.cases",
    "Sweep": "fixtures.case.cases",
    "cases": "fixtures.case.cases",
    "CaseConfig": "fixtures.case.options",
    "option": "fixtures.case.options",
    "Step": "fixtures.runtimes.step",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for: client programs of servers want none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register what this project's own conftest.py names."""
    name = f"{__name__}.plugins"
    if not pluginmanager.has_plugin(name):
        pluginmanager.register(importlib.import_module(name), name)
