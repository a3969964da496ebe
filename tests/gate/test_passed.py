"""A pass beside figures that seem to say otherwise has a reason."""

from __future__ import annotations

import math
from typing import List

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ipubench.plugins.gate.inference import decide, effect
from ipubench.plugins.gate.metric_verdict import MetricVerdict, build_verdict
from ipubench.plugins.gate.passed import why_passed
from ipubench.plugins.gate.stored import MetricRule
from ipubench.plugins.record.record import THROUGHPUT
from ipubench.plugins.record.verdict import IMPROVED, PASS, REGRESSED, Verdict

FASTER, EXCLUDED = "faster", "less than 10% slower"


@pytest.mark.parametrize(
    ("kind", "change", "low", "high", "parts"),
    [
        (PASS, 0.038, -0.07, 0.157, [EXCLUDED]),
        (PASS, 0.331, -0.02, 0.9, [FASTER]),
        (PASS, 0.331, -0.09, 0.9, [FASTER, EXCLUDED]),
        (PASS, -0.01, -0.02, 0.01, []),
        (IMPROVED, 0.331, 0.2, 0.4, []),
        (REGRESSED, -0.2, -0.3, -0.1, []),
    ],
)
def test_a_pass_beyond_the_gate_has_its_reasons(
    kind: str, change: float, low: float, high: float, parts: List[str]
) -> None:
    found = Verdict(kind, change=change, low=low, high=high, threshold=0.05, allowed=0.05)
    text = why_passed(found)
    assert [part for part in (FASTER, EXCLUDED) if part in text] == parts
    assert bool(text) == bool(parts)
    assert why_passed(Verdict(kind)) == ""


SIDES = st.lists(st.floats(-0.1, 0.1), min_size=1, max_size=6)


@given(SIDES, SIDES, st.sampled_from([0.01, 0.02, 0.05, 0.2]))
def test_the_reason_is_true_of_the_rule(
    before: List[float], now: List[float], threshold: float
) -> None:
    rule = MetricRule(THROUGHPUT, before, threshold, 0.002)
    found = effect(before, now, 0.02)
    allowed, detectable = rule.allowed(now), rule.detectable_change(now)
    assume(decide(found, allowed, detectable, rule.level) == PASS)
    metric = MetricVerdict(THROUGHPUT, PASS, found, 1.0, 1.0, threshold)
    verdict = build_verdict(metric, [], "items/s", (6, 6), math.expm1(allowed), [])
    text = why_passed(verdict)
    assert (FASTER in text) == (-found.change > allowed)
    if "less than" in text:
        share = float(text.split("less than ")[1].partition("%")[0])
        assert math.expm1(found.interval()[1]) <= share / 100 + 0.005
    else:
        assert found.interval()[1] <= math.log1p(threshold) * 1.0001
