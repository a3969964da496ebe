"""Loads tests/support/plugin.py if the project's own tests run.

pytest also loads this file for `pytest .` and, until our options are known, for `--device ipu`, in
which it takes `ipu` for a path. Cases need none of the tests' modules.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Register the fixtures and hooks of the tests if the command line names any of them."""
    given = [arg.split("::")[0] for arg in getattr(config, "args", ())]  # pytest 7 lacks it: --help
    paths = [Path(os.path.abspath(config.invocation_params.dir / path)) for path in given]
    if any(TESTS in (path, *path.parents) for path in paths):
        config.pluginmanager.import_plugin("tests.support.plugin")
