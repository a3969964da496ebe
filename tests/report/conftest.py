"""Fixtures of this folder."""

from __future__ import annotations

import pytest

from ipubench.plugins.results.rows import Report
from tests.support.reports import large_report


@pytest.fixture(scope="module")
def report() -> Report:
    """Return a report with cases of every kind."""
    return large_report()
