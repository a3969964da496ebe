"""Registers the plugins and the fixtures, nothing else."""

from __future__ import annotations

import pytest

# Plugins import each other, so one may be there before its own line below makes pytest rewrite it.
pytest.register_assert_rewrite("fixtures", "plugins")

pytest_plugins = [
    "plugins.options",
    "plugins.errors",
    "plugins.spec.plugin",
    "plugins.selection",
    "plugins.describe",
    "plugins.dry_run",
    "plugins.datasets",
    "plugins.workers",
    "plugins.journal",
    "plugins.policy",
    "plugins.gating",
    "plugins.against",
    "plugins.history",
    "plugins.report.plugin",
    "plugins.interruption",
    "plugins.fresh",
    "plugins.progress",
    "plugins.terminal",
    "plugins.meter",
    "plugins.instance",
    "fixtures.case",
    "fixtures.device",
    "fixtures.runtimes.fixture",
    "fixtures.data.fixture",
    "fixtures.instances.fixture",
    "fixtures.servers.fixture",
]
