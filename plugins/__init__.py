"""How a run is chosen, measured, stored, judged and shown.

Pytest takes this package for a plugin (conftest.py names it). It registers plugins/session.py,
which has all hooks of a run, and the modules with fixtures.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

MODULES = (
    "plugins.session",
    "plugins.measure.fixture",
    "plugins.benchmarks_yml.meter",
    "fixtures.pytest_fixtures",
)


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the modules.

    For each name in ``pytest_plugins`` pytest would read the entry points of all that is installed.
    """
    for module in MODULES:
        _register(pluginmanager, module)


def pytest_configure(config: pytest.Config) -> None:
    """Register our ``benchmark`` fixture after pytest-benchmark's, in whose place it stands."""
    _register(config.pluginmanager, "plugins.measure.benchmark_fixture")


def _register(pluginmanager: pytest.PytestPluginManager, module: str) -> None:
    name = f"ipubench.{module}"
    if pluginmanager.has_plugin(name) or pluginmanager.is_blocked(name):  # by `-p`
        return
    try:
        imported = importlib.import_module(name)
    except ModuleNotFoundError as error:
        import pytest

        if str(error.name).startswith("ipubench"):
            raise
        raise pytest.UsageError(
            f"{sys.executable} has no {error.name}, which ipubench needs; run pytest in the "
            "environment that has it (after `make setup`: .venv/bin/python -m pytest)"
        ) from error
    pluginmanager.register(imported, name)
