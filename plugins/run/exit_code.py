"""What a run ends with (docs/reference/exit-codes.md)."""

from __future__ import annotations

from pytest import ExitCode


def exit_code(ended: int, *problems: int) -> int:
    """Return pytest's own code, else that of the first problem, else 0."""
    return next((int(code) for code in (ended, *problems) if code), int(ExitCode.OK))
