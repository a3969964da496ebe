"""The results of one run, while it lasts or from its journal."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Sequence, Union

from msgspec.structs import replace

from ipubench.plugins.record.counts import Counts
from ipubench.plugins.record.record import with_processes, with_record
from ipubench.plugins.record.structs import Benchmark, CountedCase, Facts
from ipubench.plugins.record.verdict import MISSING, Verdict
from ipubench.plugins.results.lines import (
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
    RunLine,
    SelectedLine,
    VerdictLine,
)
from ipubench.plugins.results.run_facts import RunFacts


class RunResults(RunFacts):
    """All results of one run, by node id, in order: a session fills it, a journal yields it."""

    benchmarks: Dict[str, Benchmark] = {}
    #: Measurements of the same cases in fresh processes.
    fresh: Dict[str, List[Benchmark]] = {}
    #: Pairs of measurements, here and in another environment or revision.
    pairs: Dict[str, List[PairLine]] = {}
    #: Each process's count of a case's instructions (plugins/count).
    counts: Dict[str, List[CountedCase]] = {}
    #: Full messages of errors that the user can fix.
    messages: Dict[str, str] = {}
    #: Case, or the reason if that is lost too -> why a line cannot be read.
    unreadable: Dict[str, str] = {}
    #: Lines below its table.
    closing: List[str] = []
    #: Cases that have begun but not ended, while the run has not ended either; ``suspects`` are
    #: those from before the run was resumed.
    running: Dict[str, None] = {}
    suspects: List[str] = []
    resumed: List[str] = []

    @classmethod
    def of(cls, lines: Iterable[Union[JournalLine, Damaged]], name: str = "") -> RunResults:
        """Return the results in the lines of a journal."""
        found = cls(name)
        for line in lines:
            found.take(line)
        return found

    def take(self, line: Union[JournalLine, Damaged]) -> None:
        """Add one journal line."""
        if isinstance(line, RunLine):
            self.command, self.started = line.shown_command, line.started
        elif isinstance(line, Damaged):
            self.unreadable[line.case or line.why] = line.why
            self._list_damage()
        elif isinstance(line, FreshLine):
            self.fresh.setdefault(line.case, []).append(line.benchmark)
        elif isinstance(line, CaseLine):
            self.forget([line.case])
            self.benchmarks[line.case] = line.benchmark
            self.machines[line.case] = line.benchmark.record.device.fingerprint
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
            self._end(line)
            self.verdicts.update((nodeid, Verdict(MISSING)) for nodeid in line.missing)
            self.running = {}
        elif isinstance(line, ResumeLine):
            self.resume(line.kept, line.compared)

    def _end(self, line: EndLine) -> None:
        self.exit_code, self.ended = line.exit_code, line.time
        self.baseline, self.gate = line.baseline, line.gate
        self.gate_notes, self.closing = list(line.gate_notes), list(line.closing)

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
        self._end(EndLine())
        known = {nodeid for part in self._parts() for nodeid in part}
        pairs = {name: (self.benchmarks[name], self.pairs[name]) for name in compared}
        self.forget(list(known.difference(nodeids)))
        for name, (benchmark, found) in pairs.items():
            self.take(CaseLine(benchmark))
            self.pairs[name] = found

    def forget(self, nodeids: Sequence[str]) -> None:
        """Forget these cases, which are measured again."""
        for part in self._parts():
            for nodeid in nodeids:
                part.pop(nodeid, None)
        self._list_damage()

    def _list_damage(self) -> None:
        self.damaged = [
            why if case == why else f"{why} ({case})" for case, why in self.unreadable.items()
        ]

    @property
    def worth_a_report(self) -> bool:
        """Whether a case was measured or failed, so that a report is useful."""
        return bool(self.benchmarks) or "failed" in self.outcomes.values()

    @property
    def whole(self) -> List[Benchmark]:
        """Each case's benchmark with all the processes that measured it."""
        return list(map(self.with_fresh, self.benchmarks))

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
            self.machines,
            self.unreadable,
        ]
