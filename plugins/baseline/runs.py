"""What runs say beside their measurements: how their cases ended, and how they ended themselves.

A journal says it in its lines. A report's ``baseline.json`` and a merged file carry it, so that
what one shard found is in the report of all: the top-level key ``ipubench`` has it as ``runs``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence

from ipubench.fixtures.case.masking import mask_words
from ipubench.fixtures.machine.files import FOLDER
from ipubench.plugins.baseline import store
from ipubench.plugins.baseline.entries import Benchmark, complete, key_of, measured
from ipubench.plugins.baseline.format import FORMAT, BaselineError, problems
from ipubench.plugins.record.files import finite, read_lines
from ipubench.plugins.record.record import NAMESPACE, record_of
from ipubench.plugins.record.verdict import UNJUDGED
from ipubench.plugins.run import journal
from ipubench.plugins.run.results import SessionResults

FAILED, NOT_RUN, MEASURED = "failed", "not run", "measured"
#: How a case can end, in the order in which a reader wants to hear of it.
KINDS = (
    "regressed",
    FAILED,
    "missing",
    NOT_RUN,
    "inconclusive",
    "incomparable",
    "improved",
    "new",
    "pass",
    UNJUDGED,
    MEASURED,
)
BAD = ("regressed", FAILED, "missing", NOT_RUN)
#: pytest's for Ctrl-C, and a shell's for SIGTERM.
EXITS_OF_INTERRUPTED = (2, 143)
NO_GATE = "no gate"
#: What values of other types than they should be end in.
DAMAGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@dataclass
class RunFacts:
    """What one run says beside its measurements. Cases are named by their node ids."""

    #: Where it was read: a journal, a document, or the folder of a shard.
    name: str = ""
    command: str = ""
    started: Optional[float] = None  # seconds since 1970
    ended: Optional[float] = None
    #: Its cases; those that an earlier part of a resumed run has done included.
    selected: List[str] = field(default_factory=list)
    #: Case -> passed, failed, skipped.
    outcomes: Dict[str, str] = field(default_factory=dict)
    #: Case -> why it did not pass, in one line.
    reasons: Dict[str, str] = field(default_factory=dict)
    #: Case -> ``Verdict.as_dict()``; missing cases too.
    verdicts: Dict[str, Dict[str, Any]] = field(default_factory=dict)
    #: Case -> where its time went (plugins/compare/explain.py).
    profiles: Dict[str, Dict[str, Any]] = field(default_factory=dict)
    #: What it was compared with, or ''; and what judged it.
    baseline: str = ""
    gate: str = NO_GATE
    #: None where the run never said how it ended.
    exit_code: Optional[int] = None
    #: Why nothing is known of it, or ''.
    problem: str = ""

    @classmethod
    def of_dict(cls, values: Dict[str, Any]) -> RunFacts:
        """Return the run of a document that has been checked; what is not known is left out."""
        names = {part.name for part in dataclasses.fields(cls)}
        return cls(**{key: value for key, value in values.items() if key in names})

    def as_dict(self) -> Dict[str, Any]:
        """Return JSON values."""
        values: Dict[str, Any] = finite(dataclasses.asdict(self))
        return values

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C or SIGTERM ended it."""
        return self.exit_code in EXITS_OF_INTERRUPTED

    @property
    def judged(self) -> bool:
        """Whether it was compared with anything."""
        return bool(self.baseline) or any(
            verdict["kind"] != UNJUDGED for verdict in self.verdicts.values()
        )

    def cases(self) -> List[str]:
        """Return every case that it says something of."""
        return list(dict.fromkeys([*self.selected, *self.outcomes, *self.verdicts]))

    def kind_of(self, nodeid: str) -> str:
        """Return how a case ended, one of ``KINDS``, or 'skipped'."""
        outcome = self.outcomes.get(nodeid)
        kind = str(self.verdicts.get(nodeid, {}).get("kind", ""))
        if outcome == "failed" and kind not in ("regressed", "missing"):
            return FAILED
        if kind:
            return kind
        if outcome is None:
            return NOT_RUN
        return MEASURED if outcome == "passed" else outcome

    def trouble(self) -> str:
        """Return what is wrong with the run itself, beside its cases; '' where nothing is."""
        if self.problem:
            return self.problem
        done = sum(nodeid in self.outcomes for nodeid in self.selected)
        far = f"{done} of {len(self.selected)} cases had ended"
        if self.exit_code is None:
            # A journal of an older version does not say what was selected, nor how it ended.
            return f"the run has no end: its process was killed; {far}" if self.selected else ""
        if self.interrupted:
            return f"the run was interrupted; {far}"
        bad = any(self.kind_of(nodeid) in BAD for nodeid in self.cases())
        if self.exit_code in (0, 6) or (self.exit_code == 1 and bad):
            return ""
        return f"the run ended with exit code {self.exit_code}; {far}"

    def without(self, nodeids: Iterable[str]) -> RunFacts:
        """Return the run without some cases."""
        gone = set(nodeids)
        parts: Dict[str, Any] = {
            name: {case: value for case, value in getattr(self, name).items() if case not in gone}
            for name in ("outcomes", "reasons", "verdicts", "profiles")
        }
        kept = [nodeid for nodeid in self.selected if nodeid not in gone]
        return dataclasses.replace(self, selected=kept, **parts)


class StoredRun(NamedTuple):
    """A document in pytest-benchmark's format, and the runs that measured it."""

    document: Dict[str, Any]
    runs: List[RunFacts]

    @property
    def benchmarks(self) -> List[Benchmark]:
        """Return the measured cases."""
        benchmarks: List[Benchmark] = self.document["benchmarks"]
        return benchmarks


def read_run(path: Path) -> StoredRun:
    """Return what is in a journal or a document, or in a folder with one. Raises BaselineError.

    Of several journals in a folder the later one says how a case ended: the folder is one shard's.
    """
    if store.kind(path) == FOLDER:
        return _read_folder(path)
    if path.suffix != ".jsonl":
        document = store.load_document(path)
        runs = [RunFacts.of_dict(run) for run in document[NAMESPACE].get("runs", ())]
        return StoredRun(document, runs)
    return _read_journal(path)


def _read_folder(folder: Path) -> StoredRun:
    store.listed(folder)  # which says why a folder cannot be read
    try:
        journals = journal.journals(folder)
    except OSError as error:
        raise BaselineError(f"{folder} cannot be read: {error.strerror or error}") from error
    document = folder / "baseline.json"
    if not journals:
        if not store.exists(document):
            raise BaselineError(f"{folder} has neither a journal (run-*.jsonl) nor a baseline.json")
        return read_run(document)
    found = [_read_journal(path) for path in journals]
    newest: Dict[str, Benchmark] = {}
    for one in found:
        newest.update((benchmark["fullname"], benchmark) for benchmark in one.benchmarks)
    runs = superseded([run for one in found for run in one.runs])
    return StoredRun({**found[-1].document, "benchmarks": list(newest.values())}, runs)


def _read_journal(path: Path) -> StoredRun:
    try:
        lines = read_lines(path)
    except OSError as error:
        raise BaselineError(f"the run {path} cannot be read: {error}") from error
    version = lines[0].get("format") if lines and lines[0]["type"] == "run" else None
    if type(version) is not int:
        raise BaselineError(f"{path} is not the journal of a run; results/ has those of this suite")
    if version > journal.FORMAT:
        raise BaselineError(
            f"the run {path} has format {version}, this version reads up to {journal.FORMAT}: use "
            "a newer ipubench"
        )
    results = SessionResults.of(lines)
    try:
        benchmarks = measured(results)
        revision = record_of(benchmarks[-1]).get("git") if benchmarks else None
        command = mask_words(list(map(str, lines[0].get("command", ()))))
        run = facts_of(results, str(path), " ".join(command))
        run.started = lines[0].get("started")
    except DAMAGE as error:
        raise BaselineError(
            f"the run {path} is damaged: a case of it lacks what a baseline keeps ({error!r})"
        ) from error
    # pytest-benchmark's program wants both parts; what they would say is in each record.
    around = {"machine_info": {}, "commit_info": {"id": revision}}
    document = {**around, "benchmarks": benchmarks, NAMESPACE: {"format": FORMAT}}
    facts = {"format": FORMAT, "runs": [run.as_dict()]}
    faults = problems({NAMESPACE: facts, "benchmarks": finite(benchmarks)})
    if faults:
        raise BaselineError(
            f"the run {path} is damaged: {faults[0]}; the same command with --resume measures "
            "what is damaged anew"
        )
    return StoredRun(document, [run])


def why_damaged(results: SessionResults, nodeid: str) -> str:
    """Return why what a journal holds of a measured case cannot be used, or ''."""
    pairs = [pair[side] for pair in results.pairs.get(nodeid, ()) for side in ("here", "there")]
    benchmarks = [results.benchmarks[nodeid], *results.fresh.get(nodeid, ()), *pairs]
    facts = facts_of(results, "", "")
    run = facts.without(case for case in facts.cases() if case != nodeid)
    ours = {"format": FORMAT, "runs": [run.as_dict()]}
    try:
        found = [problems({NAMESPACE: ours, "benchmarks": [complete(b)]}) for b in benchmarks]
    except DAMAGE as error:
        return repr(error)
    return next((faults[0] for faults in found if faults), "")


def facts_of(results: SessionResults, name: str, command: str) -> RunFacts:
    """Return what a run's results say; its ``end`` says the rest, where it has ended."""
    end = results.end
    missing = {nodeid: {"kind": "missing"} for nodeid in end.get("missing", ())}
    return RunFacts(
        name=name,
        command=command,
        ended=end.get("time"),
        selected=list(results.selected),
        outcomes=dict(results.outcomes),
        reasons=dict(results.reasons),
        verdicts={**results.verdicts, **missing},
        profiles=dict(results.profiles),
        baseline=str(end.get("baseline", "")),
        gate=str(end.get("gate", NO_GATE)),
        exit_code=end.get("exit_code"),
    )


def joined(stored: Sequence[StoredRun]) -> StoredRun:
    """Return several as one; of one case on one machine the newest result stays."""
    entries: Dict[Any, Benchmark] = {}
    for benchmark in sorted(
        (benchmark for one in stored for benchmark in one.benchmarks),
        key=lambda benchmark: str(record_of(benchmark)["time"]),
    ):
        entries[key_of(benchmark)] = benchmark
    newest = max((one.document for one in stored), key=lambda found: str(found.get("datetime", "")))
    runs = in_time(run for one in stored for run in one.runs)
    return StoredRun({**newest, "benchmarks": list(entries.values())}, runs)


def lost(name: str, problem: str) -> RunFacts:
    """Return the run of a shard that left nothing that can be read."""
    return RunFacts(name=name, problem=problem)


def in_time(runs: Iterable[RunFacts]) -> List[RunFacts]:
    """Return runs in the order in which they started; one run that is there twice comes once."""
    found: List[RunFacts] = []
    for run in sorted(runs, key=lambda run: run.started or 0.0):
        if run not in found:
            found.append(run)
    return found


def superseded(runs: Iterable[RunFacts]) -> List[RunFacts]:
    """Return runs of which the last in which a case has ended alone speaks of it."""
    ordered = in_time(runs)
    last = {
        nodeid: number
        for number, run in enumerate(ordered)
        for nodeid in (*run.outcomes, *run.verdicts)
    }
    kept: List[RunFacts] = []
    for number, run in enumerate(ordered):
        left = run.without(case for case in run.cases() if last.get(case, number) != number)
        if left.cases() or not run.cases():
            kept.append(left)
    return kept


def worst_run(runs: Sequence[RunFacts]) -> Dict[str, RunFacts]:
    """Return case -> the run in which it ended worst: what one shard found wrong stays wrong."""
    found: Dict[str, RunFacts] = {}
    for run in runs:
        for nodeid in run.cases():
            known = found.get(nodeid)
            if known is None or _rank(run, nodeid) < _rank(known, nodeid):
                found[nodeid] = run
    return found


def _rank(run: RunFacts, nodeid: str) -> int:
    kind = run.kind_of(nodeid)
    return KINDS.index(kind) if kind in KINDS else len(KINDS)
