"""Reads stored runs: a journal, a document, or a folder with them. The files are not trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Sequence, Union

from ipubench.fixtures.machine.files import FOLDER
from ipubench.plugins.baseline import store
from ipubench.plugins.baseline.entries import key_of
from ipubench.plugins.baseline.format import BaselineError
from ipubench.plugins.record.structs import Around, Benchmark
from ipubench.plugins.results.lines import Damaged, JournalLine, RunLine, read_lines
from ipubench.plugins.results.places import EntryKey, place_of
from ipubench.plugins.results.rows import Report
from ipubench.plugins.results.run_facts import RunFacts, lost, superseded
from ipubench.plugins.results.run_results import RunResults
from ipubench.plugins.run import journal

NO_FIRST_LINE = (
    "this journal has no first line, so its process was killed before it measured anything; delete "
    "it"
)


Lines = Sequence[Union[JournalLine, Damaged]]


def read_run(path: Path) -> Report:
    """Return what is in a journal or a document, or in a folder with one. Raises BaselineError.

    A folder belongs to one shard: of several journals in it, the later one wins.
    """
    if store.kind(path) == FOLDER:
        return _read_folder(path)
    if path.suffix != ".jsonl":
        return store.load_document(path).report()
    return _run_of(path, _lines_of(path))


def read_sound_run(path: Path) -> Report:
    """Return what :func:`read_run` does. Raises BaselineError also for a damaged journal."""
    stored = read_run(path)
    for damage in filter(None, (run.damage() for run in stored.runs)):
        raise BaselineError(f"{path}: {damage}")
    return stored


def _read_folder(folder: Path) -> Report:
    store.listed(folder)  # raises if the folder cannot be read
    try:
        journals = journal.journals(folder)
    except OSError as error:
        raise BaselineError(f"{folder} cannot be read: {error.strerror or error}") from error
    document = folder / "baseline.json"
    if not journals:
        if not store.exists(document):
            raise BaselineError(f"{folder} has neither a journal (run-*.jsonl) nor a baseline.json")
        return read_run(document)
    found: List[Report] = []
    empty: List[RunFacts] = []
    for path in journals:
        lines = _lines_of(path)
        if lines:
            found.append(_run_of(path, lines))
        else:
            empty.append(lost(str(path), NO_FIRST_LINE))
    if not found:
        raise BaselineError(f"{journals[0]}: {NO_FIRST_LINE}")
    newest: Dict[EntryKey, Benchmark] = {}
    for one in found:
        newest.update((place_of(benchmark), benchmark) for benchmark in one.benchmarks)
    runs = superseded([*empty, *(run for one in found for run in one.runs)])
    return Report(list(newest.values()), runs, around=found[-1].around)


def _lines_of(path: Path) -> Lines:
    try:
        return read_lines(path)
    except OSError as error:
        raise BaselineError(f"the run {path} cannot be read: {error}") from error


def _run_of(path: Path, lines: Lines) -> Report:
    """Return the run of a journal's lines. Raises BaselineError."""
    first = lines[0] if lines else None
    if not isinstance(first, RunLine):
        raise BaselineError(f"{path} is not the journal of a run; look for run-*.jsonl in results/")
    if first.format > journal.FORMAT:
        raise BaselineError(
            f"the run {path} has format {first.format}, this version reads up to "
            f"{journal.FORMAT}: use a newer ipubench"
        )
    results = RunResults.of(lines, str(path))
    benchmarks = results.whole
    revision = benchmarks[-1].record.git if benchmarks else None
    # Each record has what pytest-benchmark would add.
    return Report(benchmarks, [results], around=Around(commit_info={"id": revision}))


def joined(stored: Sequence[Report]) -> Report:
    """Return several runs as one; the newest result of a case on a machine wins."""
    benchmarks = [benchmark for one in stored for benchmark in one.benchmarks]
    benchmarks.sort(key=lambda benchmark: benchmark.record.time)
    entries = {key_of(benchmark): benchmark for benchmark in benchmarks}
    around = max((one.around for one in stored), key=lambda found: found.datetime)
    runs = [run for one in stored for run in one.runs]
    return Report(list(entries.values()), runs, around=around)
