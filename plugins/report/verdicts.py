"""Writes verdicts.json: the verdicts of a run, for programs that act on them."""

from __future__ import annotations

from typing import Optional, Sequence

import msgspec

from ipubench.plugins.record.structs import Part
from ipubench.plugins.record.verdict import COMPARED, JudgedMetric
from ipubench.plugins.results.case_row import CaseRow
from ipubench.plugins.results.next_step import NextStep, next_step
from ipubench.plugins.results.rows import Report, conclusion, exit_code

FORMAT = 1


class Evidence(Part, frozen=True, omit_defaults=False):
    """What a verdict is based on."""

    processes_now: int
    processes_before: int
    #: Whether both sides were measured alternately, not at two times.
    in_turns: bool
    by_cpu_time: bool
    #: Why the case ended as it did, why it is open, and what else differs.
    reasons: Sequence[str]


class CaseVerdict(Part, frozen=True, omit_defaults=False):
    """How a case ended, and what to do.

    Rates are in ``unit``. ``change`` is the speed now over the speed before, less 1, with its 95%
    interval. ``verdict`` is the gate's own, also if the case failed: inconclusive, for example.
    """

    case: str
    name: str
    kind: str
    verdict: str
    unit: str
    before: Optional[float]
    now: Optional[float]
    change: Optional[float]
    change_low: Optional[float]
    change_high: Optional[float]
    #: What the gate allows: the threshold, or more if the case is noisier.
    gate: Optional[float]
    allowed: Optional[float]
    #: The metric that decided, '' if nothing was compared; other judged metrics.
    decided_by: str
    also: Sequence[JudgedMetric]
    evidence: Evidence
    next_step: NextStep


class Verdicts(Part, frozen=True, omit_defaults=False):
    """The verdicts of a run, or of all its shards."""

    format: int
    #: In a few words; and the exit code of such a report.
    conclusion: str
    exit_code: int
    #: What was compared with, '' if nothing, and the gate.
    baseline: str
    gate: str
    #: Problems of the run itself, such as an early end.
    problems: Sequence[str]
    cases: Sequence[CaseVerdict]


def verdicts_json(report: Report) -> str:
    """Return the verdicts as JSON, whose schema scripts/schema.py writes."""
    rows, facts = report.rows(), report.facts
    found = Verdicts(
        FORMAT,
        conclusion(report, rows),
        exit_code(report, rows),
        facts.baseline,
        facts.gate,
        report.problems,
        list(map(_verdict_of, rows)),
    )
    return msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n"


def _verdict_of(row: CaseRow) -> CaseVerdict:
    verdict = row.verdict
    measured = row.benchmark is not None
    return CaseVerdict(
        row.id,
        row.name,
        row.kind,
        verdict.kind,
        row.rate.unit if measured else verdict.unit,
        verdict.before,
        row.rate.median if measured else verdict.now,
        verdict.change,
        verdict.low,
        verdict.high,
        verdict.threshold,
        verdict.allowed,
        verdict.metric if row.kind in COMPARED else "",
        verdict.also,
        Evidence(
            verdict.processes,
            verdict.processes_before,
            verdict.in_turns,
            verdict.by_cpu_time,
            row.reasons,
        ),
        next_step(row),
    )
