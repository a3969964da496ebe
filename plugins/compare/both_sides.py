"""Compares which cases both sides of `--against` have, before anything is measured."""

from __future__ import annotations

from typing import Dict, List, Sequence

import pytest

from ipubench.fixtures.case.errors import CaseError, counted, some_of
from ipubench.fixtures.command_line import options_of
from ipubench.plugins.baseline.renamed import name_now
from ipubench.plugins.command_line.arguments import passed_arguments
from ipubench.plugins.processes.collecting import collect
from ipubench.plugins.record.verdict import INCOMPARABLE, Verdict
from ipubench.plugins.results.lines import VerdictLine
from ipubench.plugins.selection.selected import case_of
from ipubench.plugins.state import Run

SKIPPED = "skipped here, or failed as expected"
#: If the user gives this option, and not the settings, all other cases are left out on purpose.
LAST_FAILED = {"--lf", "--last-failed"}
DESELECTED = "it is deselected here, and not there"


def compare_cases(run: Run, items: Sequence[pytest.Item]) -> None:
    """Find the cases of the other side that this one lacks.

    Raises UsageError if the other side cannot start.
    """
    against, config = run.against, run.config
    if against is None or not run.role.keeps_results:
        return
    given = f"--against={options_of(config).against}"
    try:
        found = collect(run, against.environment)
    except CaseError as error:
        raise pytest.UsageError(f"{given}: {error}") from None
    if found.names is None:
        last = "\n".join(found.lines)
        remedy = f"\n{against.environment.remedy}" if "No module named" in last else ""
        raise pytest.UsageError(
            f"{given}: pytest cannot start there; its last lines:\n{last}{remedy}"
        )
    against.cases = found.names
    renamed = run.policy.renamed if run.policy is not None else {}
    here = {item.nodeid for item in items if case_of(item) is not None}
    here |= set(run.results.resumed)
    plain = {item.nodeid for item in items} - here  # it no longer measures
    for name in sorted(found.names):
        now = name_now(name, renamed)
        if now in here and now != name:
            if now in found.names:  # it has a case of its own there
                against.missing.append(name)
            else:
                against.unmeasured[name] = f"its name is {now} here: cases of two names differ"
            continue
        if now in here:
            continue
        if now in plain:
            against.missing.append(now)
        elif now in run.selection.nodeids:
            if LAST_FAILED.isdisjoint(passed_arguments(config)):
                against.unmeasured[now] = DESELECTED
        elif now.startswith(tuple(f"{one}::" for one in run.selection.skipped if one)):
            against.unmeasured[now] = SKIPPED
        else:
            against.missing.append(now)
    if against.missing and run.policy is not None and not any(map(case_of, items)):
        cases = counted(len(against.missing), "case")
        names = some_of(against.missing)
        pytest.exit(f"{given}: {cases} no longer exist here: {names}", pytest.ExitCode.TESTS_FAILED)


def add_open_verdicts(run: Run) -> None:
    """Give each case that was skipped here, and that the other side has, an open verdict."""
    for name, why in unmeasured(run).items():
        if name not in run.results.verdicts:
            run.add(VerdictLine(name, Verdict(INCOMPARABLE, reasons=(why,))))


def unmeasured(run: Run) -> Dict[str, str]:
    """Return case -> why nothing of it could be compared with what the other side has."""
    before: List[str] = []
    found: Dict[str, str] = {}
    if run.against is not None:
        before, found = sorted(run.against.cases), dict(run.against.unmeasured)
    elif run.baseline is not None:
        before = sorted(run.baseline.tests.values())
    outcomes, order = run.results.outcomes, set(run.order)
    skipped = [name for name in before if name in order and outcomes.get(name) == "skipped"]
    return {**found, **dict.fromkeys(skipped, SKIPPED)}
