"""Computes a run's exit code (docs/reference/exit-codes.md)."""

from __future__ import annotations

from pytest import ExitCode

from ipubench.plugins.run.recording import Recording


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
