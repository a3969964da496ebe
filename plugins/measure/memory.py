"""A case that needs more memory than there is fails with one message, and the run goes on.

On the host an allocation beyond the machine's memory fails while a case runs, where Linux would
grant it and kill this process later. What a library does then is its own: where it ends the process
all the same, a resumed run measures the case in a process of its own (plugins/measure/apart.py).
"""

from __future__ import annotations

import contextlib
import re
from functools import partial
from typing import Any, Callable, Iterator, Optional

import pytest

from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.untrusted import printable
from ipubench.fixtures.machine import memory
from ipubench.plugins.selection.selected import case_of

#: Devices whose memory is the host's, and whose drivers reserve no address space of it.
HOST_KINDS = ("cpu", "fake")

#: Errors of PyTorch and TensorFlow that say nothing else.
NAMES = frozenset({"OutOfMemoryError", "ResourceExhaustedError"})
#: What the others say: allocators, and libraries that find a size beyond any memory.
WORDS = re.compile(
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

    Yields what makes one message of an outcome without memory.
    """
    case = case_of(pyfuncitem)
    if case is None:
        yield lambda outcome: None
        return
    with memory.bounded() if kind in HOST_KINDS else contextlib.nullcontext():
        yield partial(_explain_shortage, case)


def _explain_shortage(case: Case, outcome: Any) -> None:
    error = outcome.excinfo[1] if outcome.excinfo else None
    reason = None if isinstance(error, CaseError) else shortage(error)
    if reason is not None:
        outcome.force_exception(too_large(case, reason))


def shortage(error: Optional[BaseException]) -> Optional[str]:
    """Return in one line what an error says of missing memory; None where it says nothing of it."""
    if error is None:
        return None
    lines = str(error).splitlines() or [""]
    said = next((line.strip() for line in lines if WORDS.search(line)), None)
    names = {kind.__name__ for kind in type(error).__mro__}
    if said is None and (isinstance(error, MemoryError) or names & NAMES):
        said = lines[0].strip() or type(error).__name__
    return None if said is None else printable(said, LONGEST)


def too_large(case: Case, reason: str) -> CaseError:
    """Return the message of a case that does not fit."""
    values = {name: getattr(case.config, name, "") for name in sorted(case.overrides)}
    asked = ", ".join(f"{name}={value}" for name, value in values.items())
    advice = "give less with --set" if asked else "choose a smaller case, or a larger machine"
    return CaseError(
        f"the case needs more memory than there is{f' with {asked}' if asked else ''}; {advice} "
        f"({reason})"
    )
