"""How the end of a case is recorded, and the content of its report."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, List, Optional

import pytest

from ipubench.fixtures.case.cases import Case, case_key
from ipubench.fixtures.case.errors import CaseError
from ipubench.plugins.record.files import JsonLinesFile, json_lines
from ipubench.plugins.run import journal
from ipubench.plugins.run.exit_code import exit_code
from ipubench.plugins.run.recording import Recording
from ipubench.plugins.selection.selected import Selection
from tests.support.fake_cases import Fake

CASE = "bench.py::bench[one]"


@pytest.fixture
def item(tmp_path: Path) -> Any:
    """A test that is a case of a run."""
    file = JsonLinesFile(tmp_path / "run.jsonl")
    assert file.create()
    config: Any = SimpleNamespace(option=None)
    config.run = Recording(config, Selection({}, "cpu"), journal=file)
    return SimpleNamespace(nodeid=CASE, config=config, stash={case_key: Case(Fake("one"), "one")})


def reported(
    item: Any, outcome: str, shown: Any = None, when: str = "call", error: Optional[Any] = None
) -> Any:
    """Tell the journal how a phase of a test ended; return the report."""
    report: Any = SimpleNamespace(outcome=outcome, longrepr=shown, when=when, sections=[])
    call: Any = SimpleNamespace(excinfo=SimpleNamespace(value=error) if error else None)
    journal.end_case(item.config.run, item, call, report, [])
    return report


def lines_of(item: Any) -> List[Any]:
    """Return the journal's outcomes: how and why, and the message."""
    lines = json_lines(item.config.run.path)
    assert all((line["type"], line["case"]) == ("outcome", CASE) for line in lines)
    return [tuple(map(line.get, ("outcome", "why", "message"))) for line in lines]


def test_a_case_passes_after_its_call_and_fails_at_any_time(item: Any) -> None:
    for when in ("setup", "call", "teardown"):
        reported(item, "passed", when=when)
    assert lines_of(item) == [("passed", None, None)]
    reported(item, "skipped", ("bench.py", 7, "Skipped: not today"), when="setup")
    reported(item, "failed", "still runs\nmore", when="teardown")
    reported(item, "failed", "\n \nno memory")
    assert lines_of(item)[1:] == [
        ("skipped", "Skipped: not today", None),
        ("failed", "still runs", None),
        ("failed", "no memory", None),
    ]


def test_an_error_that_the_user_can_fix_is_its_whole_message(item: Any) -> None:
    error = CaseError("no memory\ntake a smaller batch")
    assert reported(item, "failed", "a traceback", error=error).longrepr == str(error)
    assert lines_of(item) == [("failed", "no memory", str(error))]


def test_only_cases_are_recorded(item: Any) -> None:
    item.stash.clear()
    reported(item, "failed", "no")
    assert lines_of(item) == []


@pytest.mark.parametrize(
    ("resumed", "broken", "code", "expected"),
    [
        (True, False, pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.OK),
        (False, False, pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.NO_TESTS_COLLECTED),
        (True, True, pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.TESTS_FAILED),
        (False, True, pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED),
        (False, True, pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERRUPTED),
        (True, False, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.TESTS_FAILED),
    ],
)
def test_a_run_succeeds_with_earlier_results_but_not_with_lost_lines(
    item: Any, resumed: bool, broken: bool, code: pytest.ExitCode, expected: pytest.ExitCode
) -> None:
    run = item.config.run
    run.results.resumed, run.broken = [CASE] if resumed else [], broken
    assert exit_code(run, code) == expected


OK, FAILED = pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize(
    ("ended", "problems", "enough", "signalled", "expected"),
    [
        (OK, [], False, 0, 0),
        (OK, [OK, 4, 6], False, 0, 4),  # that of the first problem
        (FAILED, [4], False, 0, 1),  # pytest's own comes first
        (pytest.ExitCode.INTERRUPTED, [], False, 0, 2),
        (pytest.ExitCode.INTERRUPTED, [4], True, 0, 1),  # -x with workers
        (pytest.ExitCode.INTERRUPTED, [6], False, 143, 143),
    ],
)
def test_a_run_ends_with_the_first_problem(
    item: Any, ended: int, problems: List[int], enough: bool, signalled: int, expected: int
) -> None:
    run = item.config.run
    run.problems, run.enough, run.signalled = problems, enough, signalled
    assert exit_code(run, ended) == expected == exit_code(run, exit_code(run, ended))
