"""Registers the plugins and the fixtures."""

from __future__ import annotations

import pytest

# Plugins import each other, so register them before any is imported.
pytest.register_assert_rewrite("ipubench.fixtures", "ipubench.plugins")

pytest_plugins = ["ipubench.plugins"]
