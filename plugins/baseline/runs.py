"""Stored runs: a journal, a document, or a folder with them, read with suspicion."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence

from ipubench.fixtures.machine.files import FOLDER
from ipubench.plugins.baseline import store
from ipubench.plugins.baseline.entries import (
    Benchmark,
    Place,
    complete,
    key_of,
    measured,
    place_of,
)
from ipubench.plugins.baseline.format import FORMAT, BaselineError, problems
from ipubench.plugins.baseline.run_facts import NO_GATE, RunFacts, in_time, lost, superseded
from ipubench.plugins.record.files import read_lines, storable
from ipubench.plugins.record.record import NAMESPACE, record_of
from ipubench.plugins.run import journal
from ipubench.plugins.run.results import SessionResults

NO_FIRST_LINE = (
    "this journal has no first line, so its process was killed before it measured anything; delete "
    "it"
)
#: What values of other types than they should be end in.
DAMAGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


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
        return StoredRun(document, runs_of(document))
    return _run_of(path, _lines_of(path))


def runs_of(document: Dict[str, Any]) -> List[RunFacts]:
    """Return the runs that a document carries."""
    return [RunFacts.of_dict(run) for run in document[NAMESPACE].get("runs", ())]


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
    found: List[StoredRun] = []
    empty: List[RunFacts] = []
    for path in journals:
        lines = _lines_of(path)
        if lines:
            found.append(_run_of(path, lines))
        else:
            empty.append(lost(str(path), NO_FIRST_LINE))
    if not found:
        raise BaselineError(f"{journals[0]}: {NO_FIRST_LINE}")
    newest: Dict[Place, Benchmark] = {}
    for one in found:
        newest.update((place_of(benchmark), benchmark) for benchmark in one.benchmarks)
    runs = superseded([*empty, *(run for one in found for run in one.runs)])
    return StoredRun({**found[-1].document, "benchmarks": list(newest.values())}, runs)


def _lines_of(path: Path) -> List[Dict[str, Any]]:
    try:
        return read_lines(path)
    except OSError as error:
        raise BaselineError(f"the run {path} cannot be read: {error}") from error


def _run_of(path: Path, lines: List[Dict[str, Any]]) -> StoredRun:
    """Return the run of a journal's lines. Raises BaselineError."""
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
        words = list(map(str, lines[0].get("command", ())))
        run = facts_of(results, str(path), journal.shown_command(words))
        run.started = lines[0].get("started")
    except DAMAGE as error:
        raise BaselineError(
            f"the run {path} is damaged: a case of it lacks what a baseline keeps ({error!r})"
        ) from error
    # pytest-benchmark's program wants both parts; what they would say is in each record.
    around = {"machine_info": {}, "commit_info": {"id": revision}}
    document = {**around, "benchmarks": benchmarks, NAMESPACE: {"format": FORMAT}}
    facts = {"format": FORMAT, "runs": [run.as_dict()]}
    faults = problems({NAMESPACE: facts, "benchmarks": storable(benchmarks)})
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
    run = facts_of(results.only(nodeid), "", "")
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
        machines=dict(filter(all, map(place_of, results.benchmarks.values()))),
        baseline=str(end.get("baseline", "")),
        gate=str(end.get("gate", NO_GATE)),
        exit_code=end.get("exit_code"),
    )


def joined(stored: Sequence[StoredRun]) -> StoredRun:
    """Return several as one; of one case on one machine the newest result stays."""
    benchmarks = [benchmark for one in stored for benchmark in one.benchmarks]
    benchmarks.sort(key=lambda benchmark: str(record_of(benchmark)["time"]))
    entries = {key_of(benchmark): benchmark for benchmark in benchmarks}
    newest = max((one.document for one in stored), key=lambda found: str(found.get("datetime", "")))
    runs = in_time(run for one in stored for run in one.runs)
    return StoredRun({**newest, "benchmarks": list(entries.values())}, runs)
