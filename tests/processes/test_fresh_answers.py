"""What a run makes of a fresh process: its result, or in one line why there is none."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import pytest

from ipubench.plugins.processes import fresh, only_from
from ipubench.plugins.processes.other_python import Environment

CASE = "a.py::a"
THERE = Environment("python", [], {}, None)
NOISE = "".join(f"noise {number}\n\n" for number in range(20))
TOO_LONG = "it took too long and was ended"


@pytest.fixture(autouse=True)
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh, "most_seconds", lambda *_: 60.0)


@pytest.mark.parametrize(
    ("code", "output", "elsewhere", "how", "why"),
    [
        (1, f"{NOISE}the last\n", None, "exit code 1", "the last"),
        (None, f"{NOISE}at work\n", None, TOO_LONG, TOO_LONG),
        (-9, "", None, "exit code -9", "exit code -9"),
        (4, "ERROR: not found: a.py::a\n", THERE, "exit code 4", "there is no such case"),
        (
            1,
            "!!! refused: another checkout !!!\nERROR: later\n",
            THERE,
            "exit code 1",
            "refused: another checkout",
        ),
    ],
)
def test_why_a_process_measured_nothing_is_one_line(
    code: Optional[int],
    output: str,
    elsewhere: Optional[Environment],
    how: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fresh, "run_case", lambda *_, **__: (code, output))
    config: Any = None
    with pytest.raises(fresh.FreshError) as told:
        fresh.measure_again(config, CASE, elsewhere)
    said, *shown = str(told.value).splitlines()
    assert said == f"{CASE} could not be measured again in a fresh process ({how}); its last lines:"
    assert shown == [line for line in output.splitlines() if line][-fresh.LAST_LINES :]
    assert (told.value.why, told.value.elsewhere) == (why, elsewhere is not None)


def test_what_a_process_with_modules_of_another_checkout_measured_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: List[Dict[str, Any]] = [
        {"type": "case", "benchmark": {"fullname": CASE}},
        {"type": "outcome", "case": CASE, "outcome": "passed"},
    ]
    monkeypatch.setattr(fresh, "lines_in", lambda _: lines)
    monkeypatch.setattr(fresh, "run_case", lambda *_, **__: (only_from.USAGE_ERROR, ""))
    config: Any = None
    with pytest.raises(fresh.FreshError, match="could not be measured again"):
        fresh.measure_again(config, CASE, THERE)
