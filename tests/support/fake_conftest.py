"""Registers the suite and the fake device. Tests copy this file to a project as conftest.py."""

from __future__ import annotations

import pytest  # noqa: F401  tests append hooks to their copy

from ipubench import PlainImports

PlainImports.install()
pytest_plugins = ["ipubench.plugins", "tests.support.fake_device"]
