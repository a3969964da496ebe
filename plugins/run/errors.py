"""Show an error that the user can mend as its one message, without a traceback."""

from __future__ import annotations

from typing import Any, Generator

import pytest

from ipubench.fixtures.case.errors import CaseError


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Replace the traceback of a CaseError, wherever in a case it was raised."""
    outcome = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, CaseError):
        outcome.get_result().longrepr = str(call.excinfo.value)
