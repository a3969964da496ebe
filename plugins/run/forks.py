"""A process that a case has forked does not go on with the run: that is its parent's."""

from __future__ import annotations

import os
from typing import Any, Generator

import pytest

from ipubench.plugins.selection.selected import case_of

EXIT_CAME_BACK = 1
SAID = (
    "{} forked a process that came back from the test, and the suite ended it: end it with os._exit"
)


# The innermost: what stands around it ends what the parent still uses.
@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    """End a forked process that comes back, by ``sys.exit`` or an error, before pytest goes on.

    It would run all further tests and write the files of the run, beside its parent.
    """
    process = os.getpid()
    outcome = yield
    if os.getpid() == process or case_of(item) is None:
        return
    error = outcome.excinfo[1] if outcome.excinfo is not None else None
    why = f" ({type(error).__name__}: {error})" if error is not None else ""
    os.write(2, f"{SAID.format(item.nodeid)}{why}\n".encode(errors="backslashreplace"))
    os._exit(EXIT_CAME_BACK)
