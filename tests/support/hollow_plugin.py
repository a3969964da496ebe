"""A pytest plugin (`-p`) with which a run selects and schedules its cases but measures none.

Each case records where it would run: in this process or in a separate one. No framework is loaded.
"""

from __future__ import annotations

import json
import os
from typing import Any, List, Optional, Tuple

import pytest

# Our modules are imported after pytest has chosen what to rewrite.

#: Names the file for a list of (place, case, flags).
LOG = "IPUBENCH_TEST_LOG"
ran: List[Tuple[str, str, Any]] = []


def pytest_configure(config: pytest.Config) -> None:
    """Pretend that the SDK is installed, and record cases for separate processes."""
    from ipubench.fixtures.devices import ipu
    from ipubench.plugins.measure import apart

    ipu.frameworks = lambda: ["poptorch", "popart", "tensorflow"]
    apart._measure = lambda item: note("apart", item)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Optional[object]:
    """Give a case no runtime of a framework."""
    from ipubench.plugins.selection.selected import FRAMEWORKS

    if fixturedef.argname not in FRAMEWORKS:
        return None
    nothing = object()
    fixturedef.cached_result = (nothing, fixturedef.cache_key(request), None)
    return nothing


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """Record a case instead of calling its bench function."""
    note("here", pyfuncitem)
    return True


def note(where: str, item: pytest.Function) -> None:
    """Record where a case would run, and its TensorFlow flags."""
    from ipubench.plugins.measure.apart import flags_of

    ran.append((where, item.nodeid, flags_of(item)))


def pytest_unconfigure() -> None:
    """Write the recorded list."""
    if ran:
        with open(os.environ[LOG], "w", encoding="utf-8") as file:
            json.dump(ran, file)
