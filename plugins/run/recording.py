"""What a run records: its results so far, and the journal that stores them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, FrozenSet, List, Sequence, Set

import pytest

from ipubench.fixtures.machine.processor import allowed_cpus
from ipubench.fixtures.pytest_fixtures import shared_of
from ipubench.plugins.command_line.role import Role
from ipubench.plugins.record.files import JsonLinesFile, NoFile, storable
from ipubench.plugins.record.structs import as_plain
from ipubench.plugins.results.lines import CaseLine, FreshLine, JournalLine, OutcomeLine, line_of
from ipubench.plugins.results.run_results import RunResults
from ipubench.plugins.run.machine import Machine
from ipubench.plugins.selection.selected import Selection


@dataclass
class Recording:
    """The part of a run that its journal stores, and the lines below its table."""

    config: pytest.Config
    selection: Selection
    role: Role = Role.MAIN
    #: The CPUs of the process before its device pins it to some of them.
    cpus: FrozenSet[int] = field(default_factory=lambda: frozenset(allowed_cpus()))
    #: It stores nothing before there is a case to measure, and in a listing or an instance.
    journal: JsonLinesFile = field(default_factory=NoFile)
    results: RunResults = field(default_factory=RunResults)
    #: The node ids of all selected cases, including those that are already done.
    order: List[str] = field(default_factory=list)
    note: str = ""
    broken: bool = False  # whether the journal lacks a line, because the disk failed
    #: Cases with a missing line.
    partial: Set[str] = field(default_factory=set)
    closing: List[str] = field(default_factory=list)  # lines for the end of the summary
    #: What verdicts depend on besides the cases: name -> digest. If one changes, a resumed run
    #: measures again.
    depends: Dict[str, str] = field(default_factory=dict)
    #: The machines that measure, if not this one.
    machines: Sequence[Machine] = ()
    #: Exit codes of problems outside the tests (plugins/run/exit_code.py), in their order.
    problems: List[int] = field(default_factory=list)
    #: Whether pytest-xdist interrupted the run because of -x or --maxfail.
    enough: bool = False
    #: The exit code of the signal that ended the run.
    signalled: int = 0
    #: Whether all files could be collected, so that counting or the first case has begun.
    begun: bool = False
    interrupted: bool = False  # after that

    @property
    def results_dir(self) -> Path:
        """The folder of results, absolute, which the fixtures use too."""
        return shared_of(self.config).results_dir

    def keep_results_in(self, folder: Path) -> None:
        """Set the folder of results when a run begins, and when its journal starts there."""
        shared_of(self.config).results_dir = folder.absolute()

    @property
    def path(self) -> Path:
        """The journal's file."""
        return self.journal.path

    @property
    def is_complete(self) -> bool:
        """Whether every selected case has ended; with ``-x`` some may not have."""
        return set(self.order) <= set(self.results.outcomes)

    @property
    def where(self) -> str:
        """The end of a message that names the journal; '' if the journal is incomplete."""
        return "" if self.broken else f"; the results are in {self.path}"

    def add(self, line: JournalLine) -> None:
        """Add a line to the results and to the journal; report a disk error once.

        If an earlier line of a case could not be written, its outcome is not written either:
        otherwise a resumed run would take the incomplete case for finished.
        """
        plain = storable(as_plain(line))
        taken = line_of(plain)
        case = getattr(line, "case", "")
        if taken is not None:
            self.results.take(taken)
        if (
            isinstance(line, CaseLine)
            and not isinstance(line, FreshLine)
            and case not in self.order
        ):
            self.order.append(case)
        if isinstance(line, OutcomeLine) and case in self.partial:
            return
        try:
            self.journal.append(plain)
        except OSError as error:
            self.partial.add(case)
            if not self.broken:
                self.broken = True
                self.closing.append(
                    f"results can no longer be written to {self.path}: {error}; the missing ones "
                    "are only in this table"
                )
