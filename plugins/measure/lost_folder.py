"""Temporary folders that somebody removes: one message, from the case or from the run that starts.

A case whose folder is gone fails, and the run goes on.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Generator

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.untrusted import printable
from ipubench.fixtures.machine import scratch
from ipubench.plugins.selection.expand import case_of

LONGEST = 200


@pytest.hookimpl(hookwrapper=True)
def pytest_sessionstart(session: pytest.Session) -> Generator[None, Any, None]:
    """End a run whose temporary files have no place any more: pytest-xdist makes some here."""
    outcome = yield
    error = outcome.excinfo[1] if outcome.excinfo else None
    place = Path(tempfile.gettempdir())
    if isinstance(error, FileNotFoundError) and place in Path(str(error.filename)).parents:
        outcome.force_exception(
            pytest.UsageError(
                f"the temporary folder {place} was removed while the run started; start it again, "
                "or set TMPDIR to a folder that nobody cleans up"
            )
        )


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, None]:
    """Say that the folder is gone, instead of where that was noticed."""
    outcome = yield
    error = outcome.excinfo[1] if outcome.excinfo else None
    ours = case_of(pyfuncitem) is not None and not isinstance(error, CaseError)
    lost = scratch.forget_lost() if ours and isinstance(error, Exception) else []
    if lost:
        said = printable((str(error).splitlines() or [""])[0], LONGEST)
        message = (
            f"the temporary folder {lost[0]} was removed while the run used it; measure again, or "
            f"set TMPDIR to a folder that nobody cleans up ({type(error).__name__}: {said})"
        )
        outcome.force_exception(CaseError(message))
