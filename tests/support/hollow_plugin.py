"""A pytest plugin (`-p`) under which a run selects and schedules its cases and measures none.

Each case notes where it would run: in this process, or in one of its own. No framework is loaded.
"""

from __future__ import annotations

import json
import os
from typing import Any, List, Optional, Tuple

import pytest

# Modules of ours are imported when pytest has chosen what it rewrites.

#: Names the file that gets a list of (where, case, flags).
LOG = "IPUBENCH_TEST_LOG"
ran: List[Tuple[str, str, Any]] = []


def pytest_configure(config: pytest.Config) -> None:
    """Say that the SDK is there, and only note what gets a process of its own."""
    from ipubench.fixtures.devices import ipu
    from ipubench.plugins.measure import apart

    ipu.frameworks = lambda: ["poptorch", "popart", "tensorflow"]
    apart._measure = lambda item: note("apart", item)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Optional[object]:
    """Give a case nothing in place of a framework's runtime."""
    from ipubench.plugins.selection.selected import FRAMEWORKS

    if fixturedef.argname not in FRAMEWORKS:
        return None
    nothing = object()
    fixturedef.cached_result = (nothing, fixturedef.cache_key(request), None)
    return nothing


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """Note a case instead of calling its bench function."""
    note("here", pyfuncitem)
    return True


def note(where: str, item: pytest.Function) -> None:
    """Note where a case would run, and with which flags of TensorFlow's."""
    from ipubench.plugins.measure.apart import flags_of

    ran.append((where, item.nodeid, flags_of(item)))


def pytest_unconfigure() -> None:
    """Leave what was noted."""
    if ran:
        with open(os.environ[LOG], "w", encoding="utf-8") as file:
            json.dump(ran, file)
