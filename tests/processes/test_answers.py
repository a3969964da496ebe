"""The result of a fresh process, or one line with the reason for its failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Union

import pytest

from ipubench.fixtures.machine.process import LAST_LINES
from ipubench.plugins.processes import guarded_pytest
from ipubench.plugins.processes.place import THIS_PLACE, Place
from ipubench.plugins.processes.remote_case import (
    NO_SUCH_CASE,
    FreshError,
    Outcome,
    RemoteCase,
    why_not_there,
)
from ipubench.plugins.processes.revision import Revision
from ipubench.plugins.record.structs import Benchmark, as_plain
from ipubench.plugins.results.lines import CaseLine, Damaged, JournalLine, OutcomeLine, lines_of
from tests.support.stored import a_benchmark, changed

CASE = "a.py::a"
THERE = Place("python", [])
NOISE = [f"noise {number}" for number in range(20)]
MEASURED = changed(a_benchmark([1.0]), {"fullname": CASE})
TOO_LONG = "it took too long and was ended"


def measured(
    code: Optional[int],
    printed: List[str],
    journal: Sequence[Union[JournalLine, Damaged]],
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
) -> Dict[str, Benchmark]:
    """Return the run's result for a process that ended this way."""
    monkeypatch.setattr(RemoteCase, "run", lambda *_: Outcome(code, printed, journal))
    monkeypatch.setattr(RemoteCase, "most_seconds", 60.0)
    run: Any = None
    return RemoteCase(run, CASE, place).measured()


@pytest.mark.parametrize(
    ("code", "printed", "place", "how", "why"),
    [
        (1, [*NOISE, "the last"], THIS_PLACE, "exit code 1", "the last"),
        (None, [*NOISE, "at work"], THIS_PLACE, TOO_LONG, TOO_LONG),
        (-9, [], THIS_PLACE, "exit code -9", "exit code -9"),
        (4, ["ERROR: not found: a.py::a"], THERE, "exit code 4", NO_SUCH_CASE),
        (
            4,
            [
                "E   ModuleNotFoundError: No module named 'torch'",
                "ERROR: found no collectors for a",
            ],
            THERE,
            "exit code 4",
            "its tests cannot be collected: ModuleNotFoundError: No module named 'torch'",
        ),
        (
            1,
            ["!!! refused: another checkout !!!", "ERROR: later"],
            THERE,
            "exit code 1",
            "refused: another checkout",
        ),
    ],
)
def test_the_reason_for_a_missing_measurement_is_one_line(
    code: Optional[int],
    printed: List[str],
    place: Place,
    how: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(FreshError) as told:
        measured(code, printed, [], place, monkeypatch)
    said, *shown = str(told.value).splitlines()
    assert said.startswith(f"{CASE} ") and f" ({how}); " in said
    assert shown == printed[-LAST_LINES:]
    assert (told.value.why, told.value.elsewhere) == (why, place is THERE)


@pytest.mark.parametrize(
    ("place", "remedy"),
    [
        (Place("/opt/my old/python"), "install it with '/opt/my old/python' -m pip"),
        (Place("python", revision=Revision("c", Path("/tree"))), "--against-setup=COMMAND"),
    ],
)
def test_a_missing_package_there_has_its_remedy(place: Place, remedy: str) -> None:
    assert remedy in why_not_there("No module named 'torch'", place)
    assert why_not_there(NO_SUCH_CASE, place).endswith(NO_SUCH_CASE)


def test_a_process_with_modules_of_another_checkout_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: List[JournalLine] = [CaseLine(MEASURED), OutcomeLine(CASE, "passed")]
    with pytest.raises(FreshError, match=f"{CASE} "):
        measured(guarded_pytest.USAGE_ERROR, [], lines, THERE, monkeypatch)


def test_a_process_whose_test_fails_after_its_measurement_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: List[JournalLine] = [
        CaseLine(MEASURED),
        OutcomeLine(CASE, "failed", why="a wrong result"),
    ]
    with pytest.raises(FreshError, match=r"a\.py::a .*\(exit code 1\)") as told:
        measured(1, ["1 failed"], lines, THIS_PLACE, monkeypatch)
    assert told.value.why == "a wrong result"
    lines[1] = OutcomeLine(CASE, "passed")
    assert measured(0, [], lines, THIS_PLACE, monkeypatch) == {CASE: MEASURED}


def test_a_record_that_cannot_be_read_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = as_plain(CaseLine(MEASURED))
    del plain["benchmark"]["extra_info"]["ipubench"]["throughput"]["unit"]
    lines = [*lines_of([plain]), OutcomeLine(CASE, "passed")]
    with pytest.raises(FreshError) as told:
        measured(0, [], lines, THERE, monkeypatch)
    assert "benchmark.extra_info.ipubench.throughput" in told.value.why
