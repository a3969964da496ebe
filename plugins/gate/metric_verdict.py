"""What the processes say of each metric of a case, and the verdict that they come to together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, Optional, Sequence, Tuple

from ipubench.plugins.gate.inference import Effect
from ipubench.plugins.record.record import SCALARS, THROUGHPUT, value_of
from ipubench.plugins.record.statistics import median
from ipubench.plugins.record.verdict import INCONCLUSIVE, PASS, REGRESSED, UNJUDGED, Verdict


@dataclass(frozen=True)
class MetricVerdict:
    """Whether one metric has become worse: ``kind`` is a verdict's, UNJUDGED without a threshold.

    ``before`` and ``now`` are as :func:`typical` returns them.
    """

    metric: str
    kind: str
    effect: Effect  # on the log cost
    before: float
    now: float
    threshold: Optional[float]

    def as_dict(self) -> Dict[str, Any]:
        """Return what a verdict holds of another metric than throughput; + is more, so worse."""
        low, high = self.effect.interval()
        return {
            "metric": self.metric,
            "kind": self.kind,
            "unit": SCALARS[self.metric].unit,
            "before": self.before,
            "now": self.now,
            "change": math.expm1(self.effect.change),
            "low": math.expm1(low),
            "high": math.expm1(high),
            "threshold": self.threshold,
        }


def typical(processes: Sequence[Dict[str, Any]], metric: str) -> float:
    """Return the median of a metric over the samples that have it; throughput in items per second.

    Of throughput it is the median of each process's median.
    """
    if metric == THROUGHPUT:
        return median([one["items_per_round"] / median(one["seconds"]) for one in processes])
    values = (value_of(one, metric) for one in processes)
    return math.exp(median([math.log(value) for value in values if value is not None]))


def build_verdict(
    throughput: MetricVerdict,
    others: Sequence[MetricVerdict],
    unit: str,
    processes: Tuple[int, int],
    allowed: float,
    reasons: Sequence[str],
    in_turns: bool = False,
) -> Verdict:
    """Return the verdict on a case; its numbers are those of the throughput.

    ``processes``: how many measured it before and now. ``allowed``: what the throughput may lose.
    """
    kind, metric = _decided(throughput, others)
    low, high = throughput.effect.interval()
    before, now = processes
    return Verdict(
        kind,
        before=throughput.before,
        now=throughput.now,
        unit=unit,
        change=math.expm1(-throughput.effect.change),
        low=math.expm1(-high),
        high=math.expm1(-low),
        threshold=math.nan if throughput.threshold is None else throughput.threshold,
        allowed=allowed,
        processes=now,
        processes_before=before,
        in_turns=in_turns,
        metric=metric,
        also=tuple(other.as_dict() for other in others),
        reasons=tuple(reasons),
    )


def _decided(throughput: MetricVerdict, others: Sequence[MetricVerdict]) -> Tuple[str, str]:
    """Return the worst kind, and the first metric that has it: where none is bad, throughput's."""
    for kind in (REGRESSED, INCONCLUSIVE):
        for one in (throughput, *others):
            if one.kind == kind:
                return kind, one.metric
    passed = throughput.kind == UNJUDGED and others
    return PASS if passed else throughput.kind, THROUGHPUT
