"""Writes the end of a run to the terminal: the table, notes, and verdicts."""

from __future__ import annotations

from typing import Any, Dict, List

from ipubench.fixtures.case.errors import counted, some_of
from ipubench.fixtures.case.untrusted import printable
from ipubench.plugins.gate.passed import why_passed
from ipubench.plugins.record.verdict import (
    DECIDED,
    INCONCLUSIVE,
    MISSING,
    PASS,
    REGRESSED,
    Verdict,
    change_text,
)
from ipubench.plugins.report import published
from ipubench.plugins.report.mean_change import mean_in_words
from ipubench.plugins.report.notes import notes_of
from ipubench.plugins.report.of_run import report_of
from ipubench.plugins.report.open_cases import last_line
from ipubench.plugins.report.profiles import one_line
from ipubench.plugins.report.table import Row, layout, shared_by, table_rows
from ipubench.plugins.results.rows import CHANGED, Report, named, own_noise, reasons_of
from ipubench.plugins.results.run_facts import BAD
from ipubench.plugins.results.run_results import RunResults
from ipubench.plugins.run.time_spent import time_summary
from ipubench.plugins.state import Run

MOST_LINES = 6  # of one kind
COLOURS: Dict[str, Dict[str, bool]] = {
    **{kind: {"red": True} for kind in BAD},
    "inconclusive": {"yellow": True},
    "incomparable": {"yellow": True},
    "improved": {"green": True},
}


def write_summary(terminalreporter: Any, run: Run) -> None:
    """Write the table, notes and verdicts; with -qq or --benchmark-quiet only the verdicts.

    With -q, the lines on the machine and the time are left out.
    """
    config = run.config
    verbose = config.getoption("verbose", 0)
    terse = verbose <= -2 or config.getoption("benchmark_quiet")
    width = terminalreporter._tw.fullwidth
    report = report_of(run)
    lines = [] if terse else summary(report, run.results, width, quiet=verbose < 0)
    lines += gate_lines(run, report)
    lines += [Row((line,)) for line in run.closing]
    if run.results.benchmarks and not terse and verbose >= 0:
        lines += [Row((line,)) for line in time_summary(run.spent, width)]
    lines += last_lines(run, report)
    if lines and not terse:
        terminalreporter.section("benchmarks")
    for line in lines:
        # pytest omits the colours with NO_COLOR or without a terminal.
        terminalreporter.write_line(printable(line.cells[0]), **COLOURS.get(line.kind, {}))


def summary(report: Report, run: RunResults, width: int, quiet: bool = False) -> List[Row]:
    """Return the table of all measured cases as lines, and notes on them.

    ``quiet``: leave out how the machine has affected them.
    """
    rows = [row for row in report.rows() if row.benchmark is not None]
    lines = table_rows(rows)
    notes = [
        shared_by(lines),
        *notes_of(run, rows, _names(report), quiet),
        *published.last_lines(report.benchmarks),
    ]
    return layout(lines, width) + [Row((note,)) for note in notes if note]


def _names(report: Report) -> Dict[str, str]:
    """Return a distinct name for each case, without its function if possible."""
    return {row.id: row.name for row in named(report.rows())}


def gate_lines(run: Run, report: Report) -> List[Row]:
    """Return the verdicts: the number of each kind, and each case that did not pass by name."""
    facts, verdicts = report.facts, report.facts.verdicts
    if not facts.baseline:
        return []
    if run.interrupted and not verdicts:
        return []
    by_kind: Dict[str, List[str]] = {}
    for nodeid, verdict in verdicts.items():
        by_kind.setdefault(verdict.kind, []).append(nodeid)
    counts = ", ".join(f"{len(names)} {kind}" for kind, names in sorted(by_kind.items()))
    text = f"against {facts.baseline} ({facts.gate}): {counts or 'nothing to compare'}"
    lines = [Row(("",)), Row((text,))]
    mean = mean_in_words(verdicts.values())
    lines += [Row((f"  {mean}",))] if mean else []
    for kind in CHANGED:
        found = {nodeid: verdict_text(verdicts[nodeid]) for nodeid in by_kind.get(kind, ())}
        lines += [Row((f"  {kind}: {text}",), kind) for text in _named(found)]
    if MISSING in by_kind:
        lines.append(Row(("  if a missing case has a new name, add it to renamed in gate.yml",)))
    names, profiles = _names(report), facts.profiles
    for nodeid in by_kind.get(REGRESSED, ()):
        if nodeid in profiles:
            lines.append(Row((f"  {names[nodeid]}: {one_line(profiles[nodeid])}",)))
    reasons: Dict[str, List[str]] = {}
    for nodeid in by_kind.get(PASS, ()):
        reasons.setdefault(why_passed(verdicts[nodeid]), []).append(names[nodeid])
    lines += [
        Row((f"  {PASS} ({why}): {some_of(found)}",)) for why, found in reasons.items() if why
    ]
    passed = [verdicts[nodeid].extra_info for nodeid in by_kind.get(PASS, ())]
    if any(passed):
        texts = some_of(list(dict.fromkeys(text for one in passed for text in one)))
        lines.append(Row((f"  {sum(map(bool, passed))} {PASS} with other facts: {texts}",)))
    noisy = own_noise((names[nodeid], found) for nodeid, found in verdicts.items())
    lines += [Row((f"  {noisy}",))] if noisy else []
    stored = set() if run.baseline is None else set(run.baseline.stored)
    missed = stored - {*run.results.benchmarks, *run.results.outcomes, *verdicts}
    ordered = set(run.order)
    for left, why in (
        (missed - ordered, "not selected in this run"),
        (missed & ordered, "not run, because the run ended before"),
    ):
        if left:
            cases = counted(len(left), "case of the baseline was", "cases of the baseline were")
            lines.append(Row((f"  {cases} {why}",)))
    if run.policy is not None and not run.interrupted and not set(by_kind) & set(DECIDED):
        lines.append(Row(("  the gate could decide no case",)))
    return lines


def last_lines(run: Run, report: Report) -> List[Row]:
    """Return the line that names a gate's open cases, and what is unusual about the gate."""
    names = _names(report)
    verdicts = report.facts.verdicts if run.policy is not None else {}
    text = last_line({names[name]: one for name, one in verdicts.items()}, run.gate_notes)
    return [Row((text,), INCONCLUSIVE)] if text else []


def verdict_text(verdict: Verdict) -> str:
    """Return the numbers and reasons of a verdict as text, or ''."""
    change, processes = change_text(verdict), verdict.processes
    if change and processes > 1:
        change += f" in {processes} processes"
    return "; ".join(filter(None, [change, *reasons_of(verdict)]))


def _named(found: Dict[str, str]) -> List[str]:
    """Return a line per case; one line for many cases with the same reason."""
    cases: Dict[str, List[str]] = {}
    for nodeid, text in found.items():
        cases.setdefault(text, []).append(nodeid)
    lines = []
    for text, nodeids in cases.items():
        why = f": {text}" if text else ""
        if text and len(nodeids) > MOST_LINES:
            lines.append(f"{len(nodeids)} cases{why}")
        else:
            lines += [f"{nodeid}{why}" for nodeid in nodeids]
    return lines
