"""Why a case passes although its figures seem to say otherwise. Pure functions."""

from __future__ import annotations

import math

from ipubench.plugins.gate.stored import DETECTABLE_CHANGE
from ipubench.plugins.record.record import THROUGHPUT
from ipubench.plugins.record.text import percent
from ipubench.plugins.record.verdict import PASS, Verdict


def why_passed(verdict: Verdict) -> str:
    """Return why a case passes whose interval goes beyond the gate, or ''.

    It passes if the estimate is allowed and a slow-down of twice the threshold is excluded; it has
    improved only if that is significant.
    """
    change, low, threshold = verdict.change, verdict.low, verdict.threshold
    if verdict.kind != PASS or verdict.metric != THROUGHPUT:
        return ""
    if change is None or low is None or threshold is None:
        return ""
    allowed = math.log1p(max(threshold, verdict.allowed or 0.0))
    found = ["looks faster"] if math.log1p(change) > allowed else []
    if low > -1 and -math.log1p(low) > math.log1p(threshold):
        excluded = max(2 * math.log1p(threshold), math.log1p(DETECTABLE_CHANGE), allowed)
        found.append(f"certainly less than {percent(math.expm1(excluded), 0)} slower")
    return ", and ".join(found)
