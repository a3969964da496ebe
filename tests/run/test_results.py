"""What a run keeps of its cases, in memory and in its journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import pytest

from ipubench.plugins.record.files import JsonLinesFile, read_lines
from ipubench.plugins.run.results import Recording, SessionResults
from ipubench.plugins.selection.selected import Selection

ONE, TWO = "bench.py::bench[one]", "bench.py::bench[two]"


def recording(journal: JsonLinesFile) -> Recording:
    config: Any = None
    return Recording(config, Selection({}, "cpu"), journal=journal)


def begin(case: str) -> Dict[str, Any]:
    return {"type": "begin", "case": case}


def outcome(case: str, how: str = "passed", **more: str) -> Dict[str, Any]:
    return {"type": "outcome", "case": case, "outcome": how, **more}


def resume(*kept: str) -> Dict[str, Any]:
    return {"type": "resume", "kept": list(kept)}


def test_a_case_runs_from_its_beginning_to_its_outcome() -> None:
    found = SessionResults.of([begin(ONE), begin(TWO), outcome(ONE)])
    assert (list(found.running), found.outcomes) == ([TWO], {ONE: "passed"})
    found.take({"type": "end", "exit_code": 2})
    assert not found.running and found.end["exit_code"] == 2


def test_cases_that_ran_when_their_run_was_killed_are_suspects_of_each_later_one() -> None:
    lines = [begin(ONE), resume(), begin(TWO), {"type": "end"}, resume(), begin(TWO), resume()]
    found = SessionResults.of(lines)
    assert (found.suspects, list(found.running), found.end) == ([ONE, TWO], [], {})


def test_a_resumed_run_forgets_why_a_case_failed_and_where_its_time_went() -> None:
    profile = {"type": "profile", "case": ONE, "profile": {"here": {}}}
    lines = [outcome(ONE, "failed", why="no memory"), profile]
    found = SessionResults.of(lines)
    assert found.reasons == {ONE: "no memory"} and found.profiles == {ONE: {"here": {}}}
    found.take(resume())
    assert found == SessionResults()


def test_what_a_pair_says_of_its_rounds_is_kept() -> None:
    pair = {"here": {"fullname": ONE}, "there": {"fullname": ONE}}
    lines = [{"type": "pair", "case": ONE, **pair, "rounds": {"here": [1.0]}}]
    lines.append({"type": "pair", "case": ONE, **pair})  # those of one after the other
    (first, second) = SessionResults.of(lines).pairs[ONE]
    assert first == {**pair, "rounds": {"here": [1.0]}} and second == {**pair, "rounds": None}


def test_a_report_needs_a_case_that_was_measured_or_failed() -> None:
    measured = {"type": "case", "benchmark": {"fullname": ONE}}
    assert all(
        SessionResults.of([one]).worth_a_report for one in (measured, outcome(ONE, "failed"))
    )
    assert not SessionResults.of([outcome(ONE, "skipped"), outcome(TWO)]).worth_a_report


def test_cases_that_an_order_does_not_name_come_first() -> None:
    found = SessionResults.of([outcome(ONE), outcome("other"), outcome(TWO)])
    found.arrange([TWO, ONE])
    assert list(found.outcomes) == ["other", TWO, ONE]


def test_a_run_is_complete_when_each_of_its_cases_has_ended() -> None:
    # What ended is more than the run is about where its time was over (plugins/run/within.py).
    results = SessionResults.of([outcome(ONE), outcome("other")])
    run = recording(JsonLinesFile(Path("run.jsonl")))
    run.results, run.order = results, [ONE, TWO]
    assert not run.is_complete
    results.take(outcome(TWO, "failed"))
    assert run.is_complete
    run.journal = None
    assert not run.is_complete


def test_no_outcome_is_kept_without_what_came_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = {"type": "verdict", "case": ONE, "verdict": {"kind": "pass"}}
    journal = JsonLinesFile(tmp_path / "run.jsonl")
    assert journal.create()
    run = recording(journal)
    write = JsonLinesFile.append

    def append(file: JsonLinesFile, line: Dict[str, Any]) -> None:
        if line == lost:
            raise OSError(28, "No space left on device")
        write(file, line)

    monkeypatch.setattr(JsonLinesFile, "append", append)
    for line in (lost, outcome(ONE), outcome(TWO), {"type": "end"}):
        run.add(line)
    assert run.results.outcomes == {ONE: "passed", TWO: "passed"}
    assert SessionResults.of(read_lines(journal.path)).outcomes == {TWO: "passed"}
    (said,) = run.closing
    assert "could no longer be written" in said and run.broken and run.where == ""
