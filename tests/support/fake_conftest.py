"""Registers the suite and the fake device. Tests copy this file to a project as conftest.py."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("ipubench.fixtures", "ipubench.plugins")

pytest_plugins = ["ipubench.plugins", "tests.support.fake_device"]
