"""The last line of a gate: the cases that it could not decide, and what would decide them."""

from __future__ import annotations

import re
from typing import Dict, Mapping, Optional

from ipubench.fixtures.case.errors import counted, some_of
from ipubench.plugins.gate.decision import TIME_OVER
from ipubench.plugins.record.record import INSTRUCTIONS
from ipubench.plugins.record.text import percent
from ipubench.plugins.record.verdict import INCONCLUSIVE, OPEN, Verdict

MOST_NAMES = 3
#: An option in a reason: the reason itself names what helps.
OPTION = re.compile(r"--[a-z][a-z-]+(?:=[\w.:%]+)?")


def open_line(verdicts: Mapping[str, Verdict]) -> str:
    """Return how many cases are open, what they looked like, and what would decide them; or ''.

    ``verdicts``: of all cases, by the names to show. The case that looked slowest comes first.
    """
    found = {name: one for name, one in verdicts.items() if one.kind in OPEN}
    if not found:
        return ""
    ordered = sorted(found, key=lambda name: _looked(found[name]) or 0.0)
    shown: Dict[str, str] = {name: f"{name} {_words(found[name])}" for name in ordered}
    are = "is open, so it has" if len(found) == 1 else "are open, so they have"
    text = f"{len(found)} of {counted(len(verdicts), 'case')} {are} not passed: "
    text += some_of(list(shown.values()), MOST_NAMES)
    option = next(filter(None, (_option(found[name]) for name in ordered)), "")
    return f"{text}; {option} may decide" if option else text


def _looked(verdict: Verdict) -> Optional[float]:
    """Return the change that a case seems to have, + is faster; None without figures."""
    if verdict.change is not None:
        return verdict.change
    if verdict.before and verdict.now:
        return verdict.now / verdict.before - 1
    return None


def _words(verdict: Verdict) -> str:
    change = _looked(verdict)
    if change is None:
        return f"({verdict.reasons[0]})" if verdict.reasons else "(no figures)"
    size, word = percent(abs(change), 0), "faster" if change > 0 else "slower"
    looked = "equal" if size == percent(0.0, 0) else f"{size} {word}"
    return f"looked {looked}" + (" in its pairs" if verdict.in_turns else "")


def _option(verdict: Verdict) -> str:
    """Return the option that may decide a case, or ''."""
    if TIME_OVER in verdict.reasons:
        return "a longer --gate-time"
    named = OPTION.search(" ".join(verdict.reasons))
    if named is not None:
        return named.group()
    if verdict.kind != INCONCLUSIVE or verdict.metric == INSTRUCTIONS or not verdict.processes:
        return ""
    return f"--gate-cap={2 * verdict.processes}"
