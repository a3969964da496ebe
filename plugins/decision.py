"""From how much the code has changed to a verdict: the rule of every comparison. Pure."""

from __future__ import annotations

from plugins.inference import Effect
from plugins.verdicts import IMPROVED, PASS, REGRESSED


def decide(found: Effect, allowed: float, looked_for: float, level: float) -> str:
    """Return a verdict, or '' where more measurements are wanted.

    ``allowed`` is the cost that code may gain, ``looked_for`` the one that must be excluded (with
    95% confidence) before it passes, both as logarithms. ``level`` is how often one look at equal
    code may find a change.
    """
    if found.change > allowed and found.bound(1 - level) > 0:
        return REGRESSED
    if found.change < -allowed and found.bound(level) < 0:
        return IMPROVED
    if found.change <= allowed and found.interval()[1] < looked_for:
        return PASS
    return ""
