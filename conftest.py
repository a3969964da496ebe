"""Registers the plugins and the fixtures, nothing else."""

from __future__ import annotations

import pytest

# Plugins import each other, so one may be there before its own line below makes pytest rewrite it.
pytest.register_assert_rewrite("ipubench.fixtures", "ipubench.plugins")

pytest_plugins = [
    "ipubench.plugins.command_line.options",
    "ipubench.plugins.benchmarks_yml.plugin",
    "ipubench.plugins.benchmarks_yml.meter",
    "ipubench.plugins.selection.expand",
    "ipubench.plugins.selection.deselect",
    "ipubench.plugins.listing.describe",
    "ipubench.plugins.listing.dry_run",
    "ipubench.plugins.selection.datasets",
    "ipubench.plugins.processes.worker",
    "ipubench.plugins.processes.controller",
    "ipubench.plugins.run.journal",
    "ipubench.plugins.compare.policy",
    "ipubench.plugins.compare.baseline_plugin",
    "ipubench.plugins.compare.against_plugin",
    "ipubench.plugins.compare.judge_plugin",
    "ipubench.plugins.baseline.history",
    "ipubench.plugins.report.plugin",
    "ipubench.plugins.run.interruption",
    "ipubench.plugins.processes.fresh",
    "ipubench.plugins.run.progress",
    "ipubench.plugins.report.terminal",
    "ipubench.plugins.measure.fixture",
    "ipubench.plugins.measure.instance",
    "ipubench.fixtures.case.fixture",
    "ipubench.fixtures.devices.fixture",
    "ipubench.fixtures.runtimes.fixture",
    "ipubench.fixtures.data.fixture",
    "ipubench.fixtures.instances.fixture",
    "ipubench.fixtures.servers.fixture",
]
