"""How a failed case is shown: pytest's traceback and what was printed, without secrets.

pytest shows the arguments of functions, source lines and messages of errors, and puts them into
JUnit XML too.
"""

from __future__ import annotations

from typing import Any, Callable

import pytest


def mask_report(report: pytest.TestReport, mask: Callable[[str], str]) -> None:
    """Take the secrets out of all that a report shows."""
    report.sections = [(title, mask(text)) for title, text in report.sections]
    shown: Any = report.longrepr
    if isinstance(shown, str):
        report.longrepr = mask(shown)
    elif isinstance(shown, tuple):  # where it was skipped, and why
        report.longrepr = (*shown[:2], mask(shown[2]))
    chain = getattr(shown, "chain", ())
    if not chain and hasattr(shown, "reprtraceback"):  # --tb=native
        chain = [(shown.reprtraceback, shown.reprcrash, None)]
    for traceback, crash, _ in chain:
        if crash is not None:
            crash.message = mask(crash.message)
        for entry in traceback.reprentries:
            _mask_entry(entry, mask)


def _mask_entry(entry: Any, mask: Callable[[str], str]) -> None:
    entry.lines = list(map(mask, entry.lines))
    arguments = getattr(entry, "reprfuncargs", None)
    if arguments is not None:
        arguments.args = [(name, mask(text)) for name, text in arguments.args]
    for part in ("reprlocals", "reprfileloc"):
        found: Any = getattr(entry, part, None)
        if hasattr(found, "lines"):
            found.lines = list(map(mask, found.lines))
        if hasattr(found, "message"):
            found.message = mask(found.message)
