"""The values of an entry's keys, each of the kind that its key wants, or an error with its line."""

from __future__ import annotations

from typing import Dict, Sequence

from ipubench.fixtures.case.options import nearest
from ipubench.plugins.benchmarks_yml.errors import SpecError, short
from ipubench.plugins.benchmarks_yml.variants import (
    SCALARS,
)
from ipubench.plugins.benchmarks_yml.yaml_reader import Value


class Fields:
    """The values of one file."""

    def __init__(self, name: str) -> None:
        """``name``: what messages call the file."""
        self.name = name

    def error(self, line: int, problem: str) -> SpecError:
        """Return the error of a line."""
        return SpecError(self.name, line, problem)

    def mapping(self, value: Value, what: str) -> Dict[str, Value]:
        """Return a mapping. Raises SpecError, as all of these do."""
        if not isinstance(value.data, dict):
            raise self.error(value.line, f"{what} holds names with values")
        found: Dict[str, Value] = value.data
        return found

    def keys(self, value: Value, what: str, known: Sequence[str]) -> Dict[str, Value]:
        """Return a mapping that has known keys only; those without a value are left out."""
        found = self.mapping(value, what)
        for key in found:
            if key not in known:
                raise self.error(
                    value.lines[key],
                    f"{what}: {short(key)} is no key{nearest(key, known)}; there are "
                    f"{', '.join(known)}",
                )
        return {key: inner for key, inner in found.items() if inner.data is not None}

    def text(self, value: Value, what: str) -> str:
        """Return a text that is not blank."""
        if not isinstance(value.data, str) or not value.data.strip():
            raise self.error(value.line, f"{what} is a text")
        return value.data

    def flag(self, value: Value, what: str) -> bool:
        """Return true or false."""
        if not isinstance(value.data, bool):
            raise self.error(value.line, f"{what} is true or false")
        return value.data

    def scalar(self, value: Value, what: str) -> str:
        """Return a text, a number, or true or false, as text."""
        if not isinstance(value.data, SCALARS):
            raise self.error(value.line, f"{what} is a text or a number")
        return str(value.data)
