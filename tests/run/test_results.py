"""A run's data about its cases, in memory and in its journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List

import pytest

from ipubench.plugins.record.files import JsonLinesFile
from ipubench.plugins.record.structs import Profile
from ipubench.plugins.record.verdict import Verdict
from ipubench.plugins.results.lines import (
    BeginLine,
    CaseLine,
    Damaged,
    EndLine,
    JournalLine,
    OutcomeLine,
    ProfileLine,
    ResumeLine,
    VerdictLine,
    line_of,
    lines_of,
    read_lines,
)
from ipubench.plugins.results.run_results import RunResults
from ipubench.plugins.run.recording import Recording
from ipubench.plugins.selection.selected import Selection
from tests.support.stored import a_benchmark, changed

ONE, TWO = "bench.py::bench[one]", "bench.py::bench[two]"


def recording(journal: JsonLinesFile) -> Recording:
    config: Any = None
    return Recording(config, Selection({}, "cpu"), journal=journal)


def resume(*kept: str) -> ResumeLine:
    return ResumeLine(kept)


def test_a_case_runs_from_its_start_to_its_outcome() -> None:
    found = RunResults.of([BeginLine(ONE), BeginLine(TWO), OutcomeLine(ONE, "passed")])
    assert (list(found.running), found.outcomes) == ([TWO], {ONE: "passed"})
    found.take(EndLine(2))
    assert not found.running and found.exit_code == 2


def test_cases_that_were_running_in_a_killed_run_are_suspects() -> None:
    lines: List[JournalLine] = [
        BeginLine(ONE),
        resume(),
        BeginLine(TWO),
        EndLine(),
        resume(),
        BeginLine(TWO),
        resume(),
    ]
    found = RunResults.of(lines)
    assert (found.suspects, list(found.running)) == ([ONE, TWO], [])


def test_a_resumed_run_forgets_earlier_failures_and_times() -> None:
    profile = Profile("folder")
    lines: List[JournalLine] = [
        OutcomeLine(ONE, "failed", why="no memory"),
        ProfileLine(ONE, profile),
    ]
    found = RunResults.of(lines)
    assert found.reasons == {ONE: "no memory"} and found.profiles == {ONE: profile}
    found.take(resume())
    assert found == RunResults()


def test_a_report_needs_a_measured_or_failed_case() -> None:
    measured = CaseLine(a_benchmark([1.0]))
    assert all(
        RunResults.of([one]).worth_a_report for one in (measured, OutcomeLine(ONE, "failed"))
    )
    assert not RunResults.of(
        [OutcomeLine(ONE, "skipped"), OutcomeLine(TWO, "passed")]
    ).worth_a_report


def test_cases_missing_from_an_order_come_first() -> None:
    found = RunResults.of(
        [OutcomeLine(ONE, "passed"), OutcomeLine("other", "passed"), OutcomeLine(TWO, "passed")]
    )
    found.arrange([TWO, ONE])
    assert list(found.outcomes) == ["other", TWO, ONE]


def test_a_run_is_complete_when_all_its_cases_have_ended() -> None:
    # More cases may have ended than the run covers.
    results = RunResults.of([OutcomeLine(ONE, "passed"), OutcomeLine("other", "passed")])
    run = recording(JsonLinesFile(Path("run.jsonl")))
    run.results, run.order = results, [ONE, TWO]
    assert not run.is_complete
    results.take(OutcomeLine(TWO, "failed"))
    assert run.is_complete


def test_a_run_without_a_file_keeps_its_lines_in_memory() -> None:
    config: Any = None
    run = Recording(config, Selection({}, "cpu"))
    run.add(OutcomeLine(ONE, "passed"))
    assert (run.results.outcomes, run.closing, run.broken) == ({ONE: "passed"}, [], False)
    assert not run.journal.stores and not run.path.is_file()


def test_an_outcome_is_not_stored_before_its_earlier_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = VerdictLine(ONE, Verdict("pass"))
    journal = JsonLinesFile(tmp_path / "run.jsonl")
    assert journal.create()
    run = recording(journal)
    write = JsonLinesFile.append

    def append(file: JsonLinesFile, line: Any) -> None:
        if line["type"] == "verdict":
            raise OSError(28, "No space left on device")
        write(file, line)

    monkeypatch.setattr(JsonLinesFile, "append", append)
    for line in (lost, OutcomeLine(ONE, "passed"), OutcomeLine(TWO, "passed"), EndLine()):
        run.add(line)
    assert run.results.outcomes == {ONE: "passed", TWO: "passed"}
    assert RunResults.of(read_lines(journal.path)).outcomes == {TWO: "passed"}
    (said,) = run.closing
    assert str(journal.path) in said and run.broken and run.where == ""


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ({"type": "verdict", "case": ONE, "verdict": {"kind": 3}}, "$.verdict.kind"),
        ({"type": "verdict", "case": ONE, "verdict": []}, "$.verdict"),
        ({"type": "outcome", "case": ONE, "outcome": None}, "$.outcome"),
        ({"type": "case", "benchmark": {"fullname": ONE}}, "$.benchmark"),
        ({"type": "profile", "case": ONE, "profile": {"here": [{}]}}, "$.profile.here[0]"),
    ],
)
def test_a_damaged_line_says_of_which_case_it_is_and_where(line: Any, place: str) -> None:
    found = line_of(line)
    assert isinstance(found, Damaged) and found.case == ONE and f"`{place}`" in found.why
    results = RunResults.of([found])
    assert results.damaged == [f"{found.why} ({ONE})"]
    results.take(CaseLine(changed(a_benchmark([1.0]), {"fullname": ONE})))
    assert not results.damaged


@pytest.mark.parametrize(
    "line",
    [
        {"type": "verdict", "case": [ONE], "verdict": {}},
        {"type": "end", "exit_code": "x"},
        {"type": "selected", "cases": [[]]},
        {"type": "resume", "kept": 3},
        {"case": ONE},
        [],
        ValueError("no JSON"),
    ],
)
def test_a_damaged_line_without_a_case_is_counted_until_all_is_measured_again(line: Any) -> None:
    assert line_of({"type": "of another version", "case": ONE}) is None
    (found,) = lines_of([line])
    assert isinstance(found, Damaged) and (found.case, found.why[:8]) == ("", "line 1: ")
    results = RunResults.of([found])
    assert results.damaged == [found.why]
    results.take(resume())
    assert not results.damaged
