"""Registers the plugins and the fixtures, nothing else."""

from __future__ import annotations

import pytest

# Plugins import each other, so one may be there before pytest is told to rewrite it.
pytest.register_assert_rewrite("ipubench.fixtures", "ipubench.plugins")

pytest_plugins = ["ipubench.plugins"]
