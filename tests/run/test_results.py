"""What a run keeps of its cases, in memory and in its journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import pytest

from ipubench.plugins.record.files import JsonLinesFile, read_lines
from ipubench.plugins.run.results import Run, SessionResults

ONE, TWO = "bench.py::bench[one]", "bench.py::bench[two]"


@pytest.mark.parametrize(
    "lost",
    [
        {"type": "case", "benchmark": {"fullname": ONE}},
        {"type": "fresh", "benchmark": {"fullname": ONE}},
        {"type": "verdict", "case": ONE, "verdict": {"kind": "pass"}},
    ],
)
def test_no_outcome_is_kept_without_what_came_before_it(
    lost: Dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk that had no room for a verdict may have some for the short line of an outcome."""
    journal = JsonLinesFile(tmp_path / "run.jsonl")
    assert journal.create()
    run = Run(journal, SessionResults())
    write = JsonLinesFile.append

    def append(file: JsonLinesFile, line: Dict[str, Any]) -> None:
        if line == lost:
            raise OSError(28, "No space left on device")
        write(file, line)

    monkeypatch.setattr(JsonLinesFile, "append", append)
    ended: List[Dict[str, Any]] = [
        {"type": "outcome", "case": case, "outcome": "passed"} for case in (ONE, TWO)
    ]
    for line in (lost, *ended, {"type": "end"}):
        run.add(line)
    assert run.results.outcomes == {ONE: "passed", TWO: "passed"}
    assert SessionResults.of(read_lines(journal.path)).outcomes == {TWO: "passed"}
    (said,) = run.closing
    assert "could no longer be written" in said and run.broken and run.where == ""
