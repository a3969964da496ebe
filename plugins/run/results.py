"""What a run has measured so far, by case, and the journal that has it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, FrozenSet, Iterable, List, Optional, Sequence, Set

import pytest

from ipubench.fixtures.case.untrusted import has_fields
from ipubench.fixtures.machine.processor import allowed_cpus
from ipubench.plugins.record.counts import Counts
from ipubench.plugins.record.files import JsonLinesFile, storable
from ipubench.plugins.record.record import INSTRUCTIONS, record_of, with_processes
from ipubench.plugins.run.machine import Machine
from ipubench.plugins.selection.selected import Selection

#: Type of a journal's line -> the parts that it is read for.
PARTS: Dict[str, Dict[str, Any]] = {
    "case": {"benchmark.fullname": str},
    "fresh": {"benchmark.fullname": str},
    "pair": {"case": str, "here": dict, "there": dict},
    # A damaged verdict stays, for the check of whoever relies on it: without one a case is new.
    "verdict": {"case": str, "verdict": (object, bool)},
    "count": {"case": str, "count": dict},
    "extra": {"case": str, "extra_info": dict},
    "begin": {"case": str},
    "outcome": {"case": str, "outcome": str},
    "profile": {"case": str, "profile": dict},
    "selected": {"cases": list},
    "resume": {"kept": list},
}


@dataclass
class SessionResults:
    """What this run has measured, by node id, in order."""

    benchmarks: Dict[str, Dict[str, Any]] = field(default_factory=dict)
    #: The same cases measured again, each benchmark by a fresh process.
    fresh: Dict[str, List[Dict[str, Any]]] = field(default_factory=dict)
    #: Their pairs: each a benchmark ``here`` and one ``there``, in another environment or revision,
    #: and the ``rounds`` of both where they took turns (plugins/gate/adjacent.py).
    pairs: Dict[str, List[Dict[str, Any]]] = field(default_factory=dict)
    verdicts: Dict[str, Dict[str, Any]] = field(default_factory=dict)
    outcomes: Dict[str, str] = field(default_factory=dict)
    #: Why a case did not pass, in one line.
    reasons: Dict[str, str] = field(default_factory=dict)
    #: What each process counted of a case's instructions (plugins/count).
    counts: Dict[str, List[Dict[str, Any]]] = field(default_factory=dict)
    #: Where the time of a regressed case went, here and there.
    profiles: Dict[str, Dict[str, Any]] = field(default_factory=dict)
    #: What the run was about, and how it ended; empty where a journal does not say so.
    selected: List[str] = field(default_factory=list)
    end: Dict[str, Any] = field(default_factory=dict)
    #: Cases that have begun and not ended, in a run that has not ended either; and those that did
    #: so before the run was resumed.
    running: Dict[str, None] = field(default_factory=dict)
    suspects: List[str] = field(default_factory=list)
    resumed: List[str] = field(default_factory=list)

    @classmethod
    def of(cls, lines: Iterable[Dict[str, Any]]) -> SessionResults:
        """Return what the lines of a journal say together."""
        found = cls()
        for line in lines:
            found.take(line)
        return found

    def take(self, line: Dict[str, Any]) -> None:
        """Add what one journal line says; one whose parts are missing or others says nothing."""
        kinds = PARTS.get(line["type"], {})
        if not has_fields(line, kinds):
            return
        names = [name for part in ("cases", "kept") if part in kinds for name in line[part]]
        if all(isinstance(name, str) for name in names):
            self._take(line)

    def _take(self, line: Dict[str, Any]) -> None:
        if line["type"] == "case":
            nodeid = line["benchmark"]["fullname"]
            self.forget([nodeid])
            self.benchmarks[nodeid] = line["benchmark"]
        elif line["type"] == "fresh":
            self.fresh.setdefault(line["benchmark"]["fullname"], []).append(line["benchmark"])
        elif line["type"] == "pair":
            pair = {"here": line["here"], "there": line["there"], "rounds": line.get("rounds")}
            self.pairs.setdefault(line["case"], []).append(pair)
        elif line["type"] == "count":
            self.counts.setdefault(line["case"], []).append(line["count"])
        elif line["type"] == "verdict":
            self.verdicts[line["case"]] = line["verdict"]
        elif line["type"] == "extra":
            if line["case"] in self.benchmarks:
                benchmark = self.benchmarks[line["case"]]
                extra = {**benchmark["extra_info"], **line["extra_info"]}
                self.benchmarks[line["case"]] = {**benchmark, "extra_info": extra}
        elif line["type"] == "begin":
            self.running[line["case"]] = None
        elif line["type"] == "outcome":
            self.running.pop(line["case"], None)
            self.outcomes[line["case"]] = line["outcome"]
            if isinstance(line.get("why"), str):
                self.reasons[line["case"]] = line["why"]
        elif line["type"] == "profile":
            self.profiles[line["case"]] = line["profile"]
        elif line["type"] == "selected":
            self.selected = list(line["cases"])
        elif line["type"] == "end":
            self.end = dict(line)
            self.running = {}
        elif line["type"] == "resume":
            self.end = {}
            self.resume(line["kept"])

    def resume(self, nodeids: List[str]) -> None:
        """Forget all cases but these, as the run goes on after its end."""
        self.suspects += self.running
        self.running = {}
        known = {nodeid for part in self._parts() for nodeid in part}
        self.forget(list(known.difference(nodeids)))

    def forget(self, nodeids: List[str]) -> None:
        """Forget these cases: they are measured anew."""
        for part in self._parts():
            for nodeid in nodeids:
                part.pop(nodeid, None)

    def only(self, nodeid: str) -> SessionResults:
        """Return what is known of one case alone."""
        found = SessionResults()
        for ours, its in zip(self._parts(), found._parts()):
            if nodeid in ours:
                its[nodeid] = ours[nodeid]
        return found

    @property
    def worth_a_report(self) -> bool:
        """Whether a report has anything to say: a case was measured, or failed."""
        return bool(self.benchmarks) or "failed" in self.outcomes.values()

    def whole(self, nodeid: str) -> Dict[str, Any]:
        """Return the benchmark of a case with all the processes that measured it."""
        whole = with_processes(self.benchmarks[nodeid], self.fresh.get(nodeid, ()))
        counts = self.counts.get(nodeid)
        if counts:
            record_of(whole)[INSTRUCTIONS] = Counts.of_lines(counts).as_dict()
        return whole

    def arrange(self, nodeids: List[str]) -> None:
        """Put the cases into an order; those that it does not name come first."""
        position = {nodeid: number for number, nodeid in enumerate(nodeids)}
        for part in self._parts():
            entries = sorted(part.items(), key=lambda entry: position.get(entry[0], -1))
            part.clear()
            part.update(entries)

    def _parts(self) -> List[Dict[str, Any]]:
        parts: List[Dict[str, Any]] = [self.benchmarks, self.fresh, self.pairs, self.counts]
        return [*parts, self.verdicts, self.outcomes, self.reasons, self.profiles]


@dataclass
class Recording:
    """The part of a run that its journal keeps, and what is said of it below its table."""

    config: pytest.Config
    selection: Selection
    #: The CPUs that it started with; its device pins this process to some of them.
    cpus: FrozenSet[int] = field(default_factory=lambda: frozenset(allowed_cpus()))
    #: Until there is a case to measure, and in a session that measures nothing, there is none.
    journal: Optional[JsonLinesFile] = None
    results: SessionResults = field(default_factory=SessionResults)
    #: The node ids of all selected cases, those that a resumed run has already done included.
    order: List[str] = field(default_factory=list)
    note: str = ""
    broken: bool = False  # the journal could not take every line
    #: Cases of which it lacks a line.
    partial: Set[str] = field(default_factory=set)
    closing: List[str] = field(default_factory=list)  # lines for the end of the summary
    #: What verdicts depend on besides the cases: its name in words -> a digest. If one of them is
    #: another, a resumed run measures anew.
    depends: Dict[str, str] = field(default_factory=dict)
    #: Where it measures, if not on this machine.
    machines: Sequence[Machine] = ()
    #: What this run calls a case -> its node id, where these differ: measured on several hosts.
    nodeids: Dict[str, str] = field(default_factory=dict)
    #: Exit codes of what went wrong beside its tests (plugins/run/exit_code.py), in their order.
    problems: List[int] = field(default_factory=list)
    #: Whether pytest-xdist interrupted it, because as many cases failed as -x or --maxfail allows.
    enough: bool = False
    terminated: bool = False  # by SIGTERM

    @property
    def path(self) -> Path:
        """The file of its journal."""
        assert self.journal is not None
        return self.journal.path

    @property
    def is_complete(self) -> bool:
        """Whether every case that it is about has ended; with ``-x`` some may not have."""
        return self.journal is not None and set(self.order) <= set(self.results.outcomes)

    @property
    def where(self) -> str:
        """Where all results are, as the end of a message; '' where the journal has not all."""
        return "" if self.broken else f"; the results are in {self.path}"

    def add(self, line: Dict[str, Any]) -> None:
        """Put one line into the results and on disk; a disk that fails is reported once.

        A full disk may have room for an outcome when it had none for a verdict, or a fresh process,
        before it. With it a resumed run would take the case for done, without them.
        """
        assert self.journal is not None
        line = storable(line)
        self.results.take(line)
        if line["type"] == "case" and line["benchmark"]["fullname"] not in self.order:
            self.order.append(line["benchmark"]["fullname"])
        if line["type"] == "outcome" and line["case"] in self.partial:
            return
        try:
            self.journal.append(line)
        except OSError as error:
            measured = line.get("benchmark", {}).get("fullname")
            self.partial.add(line.get("case", measured))
            if not self.broken:
                self.broken = True
                self.closing.append(
                    f"results could no longer be written to {self.path}: {error}; what is "
                    "missing there is only in this table"
                )
