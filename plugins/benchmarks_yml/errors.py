"""What is wrong with a benchmarks.yml."""

from __future__ import annotations


class SpecError(ValueError):
    """A file cannot be used; the message says which one, the line, why and what to write."""

    def __init__(self, name: str, line: int, problem: str) -> None:
        """``line``: from 1; 0 where the file as a whole is meant."""
        super().__init__(f"{name}{f', line {line}' if line else ''}: {problem}")


def short(text: object, most: int = 60) -> str:
    """Return a text of the file in quotes, cut where it is long."""
    shown = repr(str(text))
    return shown if len(shown) <= most else f"{shown[: most - 4]}...'"
