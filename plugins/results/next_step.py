"""The next step after a case's verdict, for a reader and for a program."""

from __future__ import annotations

import re
from typing import Optional, Sequence, Tuple

from ipubench.plugins.gate.decision import TIME_OVER
from ipubench.plugins.record.record import INSTRUCTIONS
from ipubench.plugins.record.structs import Part
from ipubench.plugins.record.text import percent
from ipubench.plugins.record.verdict import (
    INCOMPARABLE,
    INCONCLUSIVE,
    MISSING,
    OPEN,
    REGRESSED,
    Verdict,
)
from ipubench.plugins.results.case_row import CaseRow
from ipubench.plugins.results.run_facts import FAILED, NOT_RUN

#: An option in a reason: the reason itself names what helps.
OPTION = re.compile(r"--[a-z][a-z-]+(?:=[\w.:%]+)?")


class NextStep(Part, frozen=True, omit_defaults=False):
    """What to do about a case: a sentence, '' if nothing, and options for the same command."""

    text: str = ""
    options: Sequence[str] = ()


def next_step(row: CaseRow) -> NextStep:
    """Return what to do about a case."""
    kind, verdict = row.kind, row.verdict
    if verdict.kind in OPEN:
        what, options = deciding(verdict)
        return NextStep(f"{what} may decide" if what else "", options)
    if kind == REGRESSED and row.profile is None:
        option = "--profile-on-regression"
        return NextStep(f"{option} shows which operations take longer", [option])
    if kind == NOT_RUN:
        return NextStep("--resume continues the run", ["--resume"])
    texts = {
        REGRESSED: "compare its operations in the profile",
        FAILED: "mend its test",
        MISSING: "name its new name under renamed in gate.yml, or take it out of the baseline",
    }
    return NextStep(texts.get(kind, ""))


def deciding(verdict: Verdict) -> Tuple[str, Sequence[str]]:
    """Return what may decide an open case, '' if nothing is known, and the options to add."""
    if TIME_OVER in verdict.reasons:
        return "a longer --gate-time", []
    named = OPTION.search(" ".join(verdict.reasons))
    if named is not None:
        return named.group(), [named.group()] if "=" in named.group() else []
    if verdict.kind == INCOMPARABLE:
        return "", []
    if verdict.metric == INSTRUCTIONS or not verdict.processes:
        return "another run", []
    option = f"--gate-cap={2 * verdict.processes}"
    return option, [option]


def looked(verdict: Verdict) -> Optional[float]:
    """Return the change that a case seems to have, + is faster; None without figures."""
    if verdict.change is not None:
        return verdict.change
    if verdict.before and verdict.now:
        return verdict.now / verdict.before - 1
    return None


def looked_text(verdict: Verdict) -> str:
    """Return what an open case looked like, or ''."""
    change = looked(verdict)
    if change is None:
        return ""
    size, word = percent(abs(change), 0), "faster" if change > 0 else "slower"
    seemed = "equal" if size == percent(0.0, 0) else f"{size} {word}"
    return f"looked {seemed}" + (" in its pairs" if verdict.in_turns else "")


def notes_on_open(row: CaseRow) -> Sequence[str]:
    """Return how an inconclusive case looked, and what may decide it, if its row lacks that."""
    verdict = row.verdict
    if verdict.kind != INCONCLUSIVE:
        return []
    seemed = looked_text(verdict) if verdict.change is None else ""
    step = next_step(row)
    # The reasons may name it already.
    known = any(option in " ".join(verdict.reasons) for option in step.options)
    following = f"next: {step.text}" if step.text and not known else ""
    return list(filter(None, [seemed, following]))
