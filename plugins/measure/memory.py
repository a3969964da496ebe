"""A case that needs more memory than there is fails with one message, and the run goes on."""

from __future__ import annotations

import re
from typing import Any, Generator, Optional

import pytest

from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.untrusted import printable
from ipubench.plugins.selection.expand import case_of

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


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, None]:
    """Say what was asked for, instead of the framework's pages."""
    outcome = yield
    case = case_of(pyfuncitem)
    error = outcome.excinfo[1] if outcome.excinfo else None
    reason = None if case is None or isinstance(error, CaseError) else shortage(error)
    if case is not None and reason is not None:
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
