"""The pytest plugin that writes which cases a process has selected. It stands alone.

A process of another revision loads it: that revision may not have it, so it is copied and imports
nothing of the suite.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, List

import pytest

VARIABLE = "IPUBENCH_NAMES_FILE"


# Runs after all plugins have deselected tests.
@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the node ids of the cases that would be measured: those without a mark that skips."""
    names: List[str] = [item.nodeid for item in session.items if _measures(item)]
    Path(os.environ[VARIABLE]).write_text(json.dumps(names), encoding="utf-8")


def _measures(item: Any) -> bool:
    callspec = getattr(item, "callspec", None)
    found = callspec is not None and "ipubench_case" in callspec.params
    known = getattr(item, "_fixtureinfo", None)
    for name in ("meter", "benchmark"):
        given = name in getattr(item, "fixturenames", ())
        definitions = known.name2fixturedefs.get(name, ()) if known is not None else ()
        ours = any(str(one.func.__module__).startswith("ipubench.") for one in definitions)
        found = found or (given and (ours or not definitions))
    return found and not _is_skipped(item)


def _is_skipped(item: pytest.Item) -> bool:
    try:
        from _pytest.skipping import evaluate_skip_marks

        return evaluate_skip_marks(item) is not None
    except Exception:  # another pytest, or a wrong condition
        return False
