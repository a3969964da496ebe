"""Graphcore's public benchmark programs as a pytest suite: measured, recorded, gated.

Bench files import the names below: ``from ipubench import cases, option``. ``-p ipubench`` loads
this module as a plugin, in any repository.

In a checkout this folder has links to the top-level folders, so that every module has one name
everywhere: ``ipubench.plugins``, ``ipubench.fixtures``.

pytest reads the word PYTEST_DONT_REWRITE here: a conftest.py, or the process of a host, may import
this module before pytest loads it as a plugin.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import TYPE_CHECKING, Any, Optional, Sequence

if TYPE_CHECKING:
    import pytest

    from ipubench.fixtures.case.cases import NAMED, Sweep, cases
    from ipubench.fixtures.case.options import CaseConfig, option
    from ipubench.fixtures.data.provider import Data
    from ipubench.fixtures.runtimes.public import Meter, PyTorch, TensorFlow
    from ipubench.fixtures.runtimes.step import ReferenceJobs, Step
    from ipubench.plugins.baseline.format import BaselineError
    from ipubench.plugins.report.load import load

    __version__: str

__all__ = [
    "NAMED",
    "BaselineError",
    "CaseConfig",
    "Data",
    "Meter",
    "PyTorch",
    "ReferenceJobs",
    "Step",
    "Sweep",
    "TensorFlow",
    "cases",
    "load",
    "option",
]

_HOMES = {
    "NAMED": "fixtures.case.cases",
    "Sweep": "fixtures.case.cases",
    "cases": "fixtures.case.cases",
    "BaselineError": "plugins.baseline.format",
    "load": "plugins.report.load",
    "CaseConfig": "fixtures.case.options",
    "option": "fixtures.case.options",
    "Data": "fixtures.data.provider",
    "Meter": "fixtures.runtimes.public",
    "PyTorch": "fixtures.runtimes.public",
    "ReferenceJobs": "fixtures.runtimes.step",
    "Step": "fixtures.runtimes.step",
    "TensorFlow": "fixtures.runtimes.public",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: client programs of servers need none of them."""
    if name == "__version__":
        from importlib import metadata

        try:
            return metadata.version(__name__)
        except metadata.PackageNotFoundError as error:  # a checkout that nobody installed
            raise AttributeError(str(error)) from None
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


class PlainImports:
    """Finds our modules before pytest, which would compile them again to rewrite their asserts."""

    @staticmethod
    def find_spec(
        name: str, path: Optional[Sequence[str]] = None, target: object = None
    ) -> Optional[ModuleSpec]:
        """Return where a module of ours is; None for any other, and for files of cases."""
        ours = name.startswith(("ipubench.fixtures", "ipubench.models", "ipubench.plugins"))
        return PathFinder.find_spec(name, path) if ours else None

    @classmethod
    def install(cls) -> None:
        """Use it from now on."""
        if cls not in sys.meta_path:
            sys.meta_path.insert(0, cls)


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the plugins, as this project's own conftest.py does."""
    PlainImports.install()
    name = f"{__name__}.plugins"
    if not pluginmanager.has_plugin(name):
        pluginmanager.register(importlib.import_module(name), name)
