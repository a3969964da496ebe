"""Lets a case that needs too much memory fail with one message, so that the run continues.

While a case runs on the host, an allocation beyond the machine's memory fails at once. Otherwise
Linux would grant it and kill this process later. If a library then ends the process, a resumed run
measures the case in a separate process (plugins/measure/apart.py).
"""

from __future__ import annotations

import contextlib
import re
from functools import partial
from typing import Any, Callable, Iterator, Optional

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.untrusted import printable
from ipubench.fixtures.machine import memory
from ipubench.plugins.selection.selected import case_of

#: Errors of PyTorch and TensorFlow that mean a lack of memory.
NAMES = frozenset({"OutOfMemoryError", "ResourceExhaustedError"})
#: The texts of other errors, by allocators and by libraries that find a size too large.
TEXTS = re.compile(
    r"out of memory|not enough memory|can't allocate memory|cannot allocate memory"
    r"|failed to allocate|unable to allocate|bad_alloc|OOM when allocating"
    r"|storage size calculation overflow|array is too big|maximum allowed dimension exceeded"
    r"|encountered overflow when multiplying",
    re.IGNORECASE,
)
LONGEST = 200


@contextlib.contextmanager
def bounded_memory(pyfuncitem: pytest.Function, kind: str) -> Iterator[Callable[[Any], None]]:
    """Bound the memory of a case on a kind of device.

    Yields a function that replaces an exception about memory by our message.
    """
    case = case_of(pyfuncitem)
    if case is None:
        yield lambda outcome: None
        return
    with memory.bounded() if devices.of(kind).in_process else contextlib.nullcontext():
        yield partial(_explain_shortage, case)


def _explain_shortage(case: Case, outcome: Any) -> None:
    error = outcome.excinfo[1] if outcome.excinfo else None
    reason = None if isinstance(error, CaseError) else shortage(error)
    if reason is not None:
        outcome.force_exception(too_large(case, reason))


def shortage(error: Optional[BaseException]) -> Optional[str]:
    """Return the line of an error that is about missing memory; None if there is none."""
    if error is None:
        return None
    lines = str(error).splitlines() or [""]
    found = next((line.strip() for line in lines if TEXTS.search(line)), None)
    names = {kind.__name__ for kind in type(error).__mro__}
    if found is None and (isinstance(error, MemoryError) or names & NAMES):
        found = lines[0].strip() or type(error).__name__
    return None if found is None else printable(found, LONGEST)


def too_large(case: Case, reason: str) -> CaseError:
    """Return the error for a case that does not fit into memory."""
    values = {name: getattr(case.config, name, "") for name in sorted(case.overrides)}
    given = ", ".join(f"{name}={value}" for name, value in values.items())
    advice = "give less with --set" if given else "choose a smaller case, or a larger machine"
    return CaseError(
        f"the case needs more memory than there is{f' with {given}' if given else ''}; {advice} "
        f"({reason})"
    )
