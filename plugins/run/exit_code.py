"""Computes a run's exit code (docs/reference/exit-codes.md)."""

from __future__ import annotations

from typing import Iterable, Sequence

from pytest import ExitCode

from ipubench.plugins.record.verdict import DECIDED, EXIT_UNDECIDED, MISSING, REGRESSED
from ipubench.plugins.run.results import Recording

#: The kinds of verdict that fail a run.
FAILING = (REGRESSED, MISSING)


def of_verdicts(kinds: Iterable[str], failing: Sequence[str] = FAILING) -> int:
    """Return a gate's exit code: 1 if a verdict fails the run, 6 if no case was decided, else 0.

    It depends on nothing else: a marker such as ``xfail`` changes a test's outcome, not a verdict.
    """
    found = set(kinds)
    if found.intersection(failing):
        return ExitCode.TESTS_FAILED
    return ExitCode.OK if found.intersection(DECIDED) else EXIT_UNDECIDED


def exit_code(run: Recording, ended: int) -> int:
    """Return pytest's own code, ``ended``, if it is not 0; else the first problem's code; else 0.

    A resumed run with nothing left to do succeeds.
    """
    if run.signalled:
        return run.signalled
    if run.results.resumed and ended == ExitCode.NO_TESTS_COLLECTED:
        ended = ExitCode.OK
    if run.enough and ended == ExitCode.INTERRUPTED:
        ended = ExitCode.TESTS_FAILED
    lost = ExitCode.TESTS_FAILED if run.broken else ExitCode.OK
    return next((int(code) for code in (ended, lost, *run.problems) if code), int(ExitCode.OK))
