"""The last line of a gate: the cases that it could not decide, and how it differs itself."""

from __future__ import annotations

from typing import Dict, Mapping, Sequence

from ipubench.fixtures.case.errors import counted, some_of
from ipubench.plugins.record.verdict import OPEN, Verdict
from ipubench.plugins.results.next_step import deciding, looked, looked_text

MOST_NAMES = 3


def last_line(verdicts: Mapping[str, Verdict], notes: Sequence[str]) -> str:
    """Return the open cases and the notes on the gate itself, such as a looser one; or ''."""
    return "; ".join(filter(None, [open_line(verdicts), *notes]))


def open_line(verdicts: Mapping[str, Verdict]) -> str:
    """Return how many cases are open, what they looked like, and what would decide them; or ''.

    ``verdicts``: of all cases, by the names to show. The case that looked slowest comes first.
    """
    found = {name: one for name, one in verdicts.items() if one.kind in OPEN}
    if not found:
        return ""
    ordered = sorted(found, key=lambda name: looked(found[name]) or 0.0)
    shown: Dict[str, str] = {name: f"{name} {_words(found[name])}" for name in ordered}
    are = "is open, so it has" if len(found) == 1 else "are open, so they have"
    text = f"{len(found)} of {counted(len(verdicts), 'case')} {are} not passed: "
    text += some_of(list(shown.values()), MOST_NAMES)
    ways = dict.fromkeys(filter(None, (deciding(found[name])[0] for name in ordered)))
    return f"{text}; {' or '.join(ways)} may decide" if ways else text


def _words(verdict: Verdict) -> str:
    first = verdict.reasons[0] if verdict.reasons else "no figures"
    return looked_text(verdict) or f"({first})"
