"""The results of a run so far, by case, and the journal that stores them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, FrozenSet, Iterable, List, Sequence, Set, Union

import pytest
from msgspec.structs import replace

from ipubench.fixtures.machine.processor import allowed_cpus
from ipubench.fixtures.pytest_fixtures import shared_of
from ipubench.plugins.command_line.role import Role
from ipubench.plugins.record.counts import Counts
from ipubench.plugins.record.files import JsonLinesFile, NoFile, storable
from ipubench.plugins.record.record import with_processes, with_record
from ipubench.plugins.record.structs import Benchmark, CountedCase, Facts, Profile, as_plain
from ipubench.plugins.record.verdict import MISSING, Verdict
from ipubench.plugins.run.lines import (
    BeginLine,
    CaseLine,
    CountLine,
    Damaged,
    EndLine,
    ExtraLine,
    FreshLine,
    JournalLine,
    OutcomeLine,
    PairLine,
    ProfileLine,
    ResumeLine,
    SelectedLine,
    VerdictLine,
    line_of,
)
from ipubench.plugins.run.machine import Machine
from ipubench.plugins.selection.selected import Selection


@dataclass
class SessionResults:
    """The results of a run, by node id, in order."""

    benchmarks: Dict[str, Benchmark] = field(default_factory=dict)
    #: Measurements of the same cases in fresh processes.
    fresh: Dict[str, List[Benchmark]] = field(default_factory=dict)
    #: Pairs of measurements, here and in another environment or revision.
    pairs: Dict[str, List[PairLine]] = field(default_factory=dict)
    #: Each process's count of a case's instructions (plugins/count).
    counts: Dict[str, List[CountedCase]] = field(default_factory=dict)
    verdicts: Dict[str, Verdict] = field(default_factory=dict)
    outcomes: Dict[str, str] = field(default_factory=dict)
    #: Why a case did not pass, in one line.
    reasons: Dict[str, str] = field(default_factory=dict)
    #: Full messages of errors that the user can fix.
    messages: Dict[str, str] = field(default_factory=dict)
    #: The operations of regressed cases, here and there.
    profiles: Dict[str, Profile] = field(default_factory=dict)
    #: Case, or the reason if that is lost too -> why a line cannot be read.
    damaged: Dict[str, str] = field(default_factory=dict)
    #: The selected cases, and how the run ended; empty if the journal lacks them.
    selected: List[str] = field(default_factory=list)
    end: EndLine = field(default_factory=EndLine)
    #: Cases that have begun but not ended, while the run has not ended either; ``suspects`` are
    #: those from before the run was resumed.
    running: Dict[str, None] = field(default_factory=dict)
    suspects: List[str] = field(default_factory=list)
    resumed: List[str] = field(default_factory=list)

    @classmethod
    def of(cls, lines: Iterable[Union[JournalLine, Damaged]]) -> SessionResults:
        """Return the results in the lines of a journal."""
        found = cls()
        for line in lines:
            found.take(line)
        return found

    def take(self, line: Union[JournalLine, Damaged]) -> None:
        """Add one journal line."""
        if isinstance(line, Damaged):
            self.damaged[line.case or line.why] = line.why
        elif isinstance(line, FreshLine):
            self.fresh.setdefault(line.case, []).append(line.benchmark)
        elif isinstance(line, CaseLine):
            self.forget([line.case])
            self.benchmarks[line.case] = line.benchmark
        elif isinstance(line, PairLine):
            self.pairs.setdefault(line.case, []).append(line)
        elif isinstance(line, CountLine):
            self.counts.setdefault(line.case, []).append(line.counted)
        elif isinstance(line, VerdictLine):
            self.verdicts[line.case] = line.verdict
        elif isinstance(line, ExtraLine):
            self._note(line.case, line.extra_info)
        elif isinstance(line, BeginLine):
            self.running[line.case] = None
        elif isinstance(line, OutcomeLine):
            self.running.pop(line.case, None)
            self.outcomes[line.case] = line.outcome
            if line.why:
                self.reasons[line.case] = line.why
            if line.message:
                self.messages[line.case] = line.message
        elif isinstance(line, ProfileLine):
            self.profiles[line.case] = line.profile
        elif isinstance(line, SelectedLine):
            self.selected = list(line.cases)
        elif isinstance(line, EndLine):
            self.end = line
            self.running = {}
        elif isinstance(line, ResumeLine):
            self.end = EndLine()
            self.resume(line.kept, line.compared)

    def _note(self, nodeid: str, facts: Facts) -> None:
        """Add what a test has put into ``extra_info`` after its measurement."""
        if nodeid in self.benchmarks:
            benchmark = self.benchmarks[nodeid]
            extra = benchmark.extra_info
            extra = replace(extra, others={**extra.others, **facts})
            self.benchmarks[nodeid] = replace(benchmark, extra_info=extra)

    def resume(self, nodeids: Sequence[str], compared: Sequence[str] = ()) -> None:
        """Forget all cases except these, because the run is resumed.

        Of those ``compared`` the pairs stay, and what was measured here in the first one.
        """
        self.suspects += self.running
        self.running = {}
        known = {nodeid for part in self._parts() for nodeid in part}
        pairs = {name: (self.benchmarks[name], self.pairs[name]) for name in compared}
        self.forget(list(known.difference(nodeids)))
        for name, (benchmark, found) in pairs.items():
            self.benchmarks[name], self.pairs[name] = benchmark, found

    def forget(self, nodeids: Sequence[str]) -> None:
        """Forget these cases, which are measured again."""
        for part in self._parts():
            for nodeid in nodeids:
                part.pop(nodeid, None)

    def kind(self, nodeid: str) -> str:
        """Return the kind of a case's verdict, or ''."""
        return self.verdicts[nodeid].kind if nodeid in self.verdicts else ""

    @property
    def judged(self) -> Dict[str, Verdict]:
        """The verdicts of a run that has ended, with those of missing cases."""
        return {**self.verdicts, **{nodeid: Verdict(MISSING) for nodeid in self.end.missing}}

    @property
    def worth_a_report(self) -> bool:
        """Whether a case was measured or failed, so that a report is useful."""
        return bool(self.benchmarks) or "failed" in self.outcomes.values()

    def with_fresh(self, nodeid: str) -> Benchmark:
        """Return the benchmark of a case with all the processes that measured it."""
        found = with_processes(self.benchmarks[nodeid], self.fresh.get(nodeid, ()))
        if nodeid not in self.counts:
            return found
        counts = Counts.of_processes(self.counts[nodeid])
        return with_record(found, replace(found.record, instructions=counts.for_record()))

    def arrange(self, nodeids: List[str]) -> None:
        """Sort the cases into this order; cases that it lacks come first."""
        position = {nodeid: number for number, nodeid in enumerate(nodeids)}
        for part in self._parts():
            entries = sorted(part.items(), key=lambda entry: position.get(entry[0], -1))
            part.clear()
            part.update(entries)

    def _parts(self) -> List[Dict[str, Any]]:
        return [
            self.benchmarks,
            self.fresh,
            self.pairs,
            self.counts,
            self.verdicts,
            self.outcomes,
            self.reasons,
            self.messages,
            self.profiles,
            self.damaged,
        ]


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
    results: SessionResults = field(default_factory=SessionResults)
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
