"""How a run is chosen, measured, stored, judged and shown.

Pytest takes this package for a plugin (conftest.py names it), and the package registers the others.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

MODULES = (
    "plugins.command_line.options",
    "plugins.run.time_spent",
    "plugins.benchmarks_yml.plugin",
    "plugins.benchmarks_yml.meter",
    "plugins.selection.expand",
    "plugins.selection.deselect",
    "plugins.selection.order",
    "plugins.listing.describe",
    "plugins.listing.dry_run",
    "plugins.selection.datasets",
    "plugins.processes.worker",
    "plugins.processes.controller",
    "plugins.run.within",
    "plugins.run.journal",
    "plugins.compare.policy",
    "plugins.compare.baseline_plugin",
    "plugins.compare.against_plugin",
    "plugins.compare.fresh_processes",
    "plugins.compare.explain",
    "plugins.compare.judge_plugin",
    "plugins.baseline.history",
    "plugins.report.plugin",
    "plugins.run.interruption",
    "plugins.processes.fresh",
    "plugins.run.progress",
    "plugins.report.terminal",
    "plugins.measure.fixture",
    "plugins.measure.memory",
    "plugins.measure.lost_folder",
    "plugins.measure.instance",
    "plugins.measure.apart",
    "fixtures.pytest_fixtures",
)


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the plugins, each of which then adds its own options.

    For each name in ``pytest_plugins`` pytest would read the entry points of all that is installed.
    """
    for module in MODULES:
        name = f"ipubench.{module}"
        if not (pluginmanager.has_plugin(name) or pluginmanager.is_blocked(name)):  # by `-p`
            pluginmanager.register(importlib.import_module(name), name)
