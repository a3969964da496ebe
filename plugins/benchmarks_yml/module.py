"""A benchmarks.yml as a pytest module: one bench function, whose cases are the entries."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any, Callable, List

import pytest

from ipubench.plugins.benchmarks_yml.cases import SpecConfig
from ipubench.plugins.benchmarks_yml.entry import Entry
from ipubench.plugins.selection.expand import case_of


class SpecSource:
    """A file that was named on the command line, read and checked."""

    def __init__(self, path: Path, nodeid: str, entries: List[Entry]) -> None:
        """``nodeid``: what the identifiers of its cases begin with."""
        self.path = path
        self.nodeid = nodeid
        self.entries = {entry.name: entry for entry in entries}


def bench_spec(config: SpecConfig, command_meter: Callable[[SpecConfig], None]) -> None:
    """Run the command of an entry and measure what it reports."""
    command_meter(config)


class SpecFile(pytest.Module):
    """The file as a module. Its function is a pytest.Function, so fixtures serve it."""

    source: SpecSource

    @classmethod
    def of(cls, parent: Any, source: SpecSource) -> SpecFile:
        """Return the node of a file."""
        found: SpecFile = cls.from_parent(parent, path=source.path, nodeid=source.nodeid)
        found.source = source
        return found

    def _getobj(self) -> types.ModuleType:
        module = types.ModuleType(self.path.name)
        module.bench_spec = bench_spec  # type: ignore[attr-defined]
        return module


def entry_of(item: pytest.Item) -> Entry:
    """Return the entry of the file that a case of :class:`SpecFile` runs."""
    file, case = item.getparent(SpecFile), case_of(item)
    assert file is not None and case is not None and isinstance(case.config, SpecConfig)
    return file.source.entries[case.config.entry]


def is_spec(item: pytest.Item) -> bool:
    """Tell whether an item is a case of a benchmarks.yml."""
    return item.getparent(SpecFile) is not None
