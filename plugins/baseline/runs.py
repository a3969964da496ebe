"""A finished run as a document: its journal, or the baseline.json of its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Tuple

from ipubench.plugins.baseline.entries import measured
from ipubench.plugins.baseline.format import BaselineError
from ipubench.plugins.baseline.store import load_document
from ipubench.plugins.record.files import read_lines
from ipubench.plugins.record.record import record_of
from ipubench.plugins.record.verdict import REGRESSED
from ipubench.plugins.run.journal import FORMAT
from ipubench.plugins.run.results import SessionResults


def read_run(path: Path) -> Tuple[Dict[str, Any], List[str]]:
    """Return a run's document and its cases that regressed. Raises BaselineError."""
    if path.suffix != ".jsonl":
        return load_document(path), []
    try:
        lines = read_lines(path)
    except OSError as error:
        raise BaselineError(f"the run {path} cannot be read: {error}") from error
    version = lines[0].get("format") if lines and lines[0]["type"] == "run" else None
    if type(version) is not int:
        raise BaselineError(f"{path} is not the journal of a run; results/ has those of this suite")
    if version > FORMAT:
        raise BaselineError(
            f"the run {path} has format {version}, this version reads up to {FORMAT}: use "
            "a newer ipubench"
        )
    results = SessionResults()
    for line in lines:
        results.take(line)
    try:
        benchmarks = measured(results)
        revision = record_of(benchmarks[-1]).get("git") if benchmarks else None
        regressed = [
            nodeid for nodeid, verdict in results.verdicts.items() if verdict["kind"] == REGRESSED
        ]
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise BaselineError(
            f"the run {path} is damaged: a case of it lacks what a baseline keeps ({error!r})"
        ) from error
    if not benchmarks:
        raise BaselineError(f"the run {path} measured no case")
    # pytest-benchmark's program wants both parts; what they would say is in each record.
    return {
        "benchmarks": benchmarks,
        "machine_info": {},
        "commit_info": {"id": revision},
    }, regressed
