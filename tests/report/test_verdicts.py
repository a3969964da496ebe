"""verdicts.json, and the next step of a case in all tables."""

from __future__ import annotations

import json
from typing import Any, Dict

import pytest

from ipubench.plugins.gate.decision import TIME_OVER
from ipubench.plugins.record.verdict import INCONCLUSIVE, REGRESSED, Verdict
from ipubench.plugins.report.markdown import markdown
from ipubench.plugins.report.open_cases import open_line
from ipubench.plugins.report.verdicts import verdicts_json
from ipubench.plugins.results.run_facts import RunFacts
from tests.support.reports import benchmark, report_on


def verdicts_of(verdict: Verdict, outcome: str = "passed") -> Dict[str, Any]:
    case = benchmark("a")
    run = RunFacts(
        selected=[case.fullname],
        outcomes={case.fullname: outcome},
        verdicts={case.fullname: verdict},
        baseline="main",
        gate="gate 5%",
        exit_code=0,
    )
    report = report_on([case], [run])
    found: Dict[str, Any] = json.loads(verdicts_json(report))
    found["summary"] = markdown(report)
    return found


CAP = Verdict(INCONCLUSIVE, before=100.0, now=80.0, processes=16)
OVER = Verdict(INCONCLUSIVE, processes=3, reasons=[TIME_OVER])


@pytest.mark.parametrize(
    ("verdict", "options", "text"),
    [
        (CAP, ["--gate-cap=32"], "--gate-cap=32 may decide"),
        (OVER, [], "a longer --gate-time may decide"),
        (Verdict(INCONCLUSIVE), [], "another run may decide"),
        (
            Verdict(INCONCLUSIVE, processes=3, reasons=["busy; --wait-for-quiet=2min waits"]),
            ["--wait-for-quiet=2min"],
            "--wait-for-quiet=2min may decide",
        ),
    ],
)
def test_an_inconclusive_case_has_a_next_step(verdict: Verdict, options: Any, text: str) -> None:
    found = verdicts_of(verdict)
    (case,) = found["cases"]
    assert (case["kind"], case["next_step"]) == ("inconclusive", {"text": text, "options": options})
    assert found["exit_code"] == 6
    assert options == [] or options[0] in found["summary"]


def test_a_case_has_its_change_and_evidence() -> None:
    verdict = Verdict(
        REGRESSED, 100.0, 80.0, "images/s", -0.2, -0.25, -0.15, 0.05, 0.05, 6, 9, in_turns=True
    )
    found = verdicts_of(verdict, "failed")
    (case,) = found["cases"]
    assert (case["change"], case["change_low"], case["change_high"]) == (-0.2, -0.25, -0.15)
    assert case["evidence"]["processes_before"] == 9 and case["evidence"]["in_turns"]
    assert case["next_step"]["options"] == ["--profile-on-regression"]
    assert (found["exit_code"], found["gate"]) == (1, "gate 5%")


def test_a_failed_inconclusive_case_keeps_its_verdict_and_its_next_step() -> None:
    (case,) = verdicts_of(CAP, "failed")["cases"]
    assert (case["kind"], case["verdict"]) == ("failed", "inconclusive")
    assert case["next_step"]["options"] == ["--gate-cap=32"]


def test_the_last_line_names_what_may_decide_each_case() -> None:
    assert "; --gate-cap=32 or a longer --gate-time" in open_line({"a": CAP, "b": OVER})
