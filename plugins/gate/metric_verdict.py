"""The verdict on each metric of a case, and the verdict on the case."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Optional, Sequence, Tuple

from ipubench.plugins.gate.inference import Effect, Trimmed
from ipubench.plugins.record.record import ENERGY, SCALARS, THROUGHPUT, value_of
from ipubench.plugins.record.statistics import quantile
from ipubench.plugins.record.structs import Process
from ipubench.plugins.record.verdict import (
    INCONCLUSIVE,
    PASS,
    REGRESSED,
    UNJUDGED,
    JudgedMetric,
    Verdict,
)

#: The table shows the median of a process's clean rounds.
ROUNDS_QUANTILE = 0.50
CANARY_QUANTILE = 0.25
#: A case follows the canary only in part, so this share of its change counts
#: (docs/explanation/gate.md).
CANARY_SHARE = 0.7


@dataclass(frozen=True)
class MetricVerdict:
    """Whether one metric became worse; ``kind`` is UNJUDGED without a threshold.

    ``before`` and ``now`` are as :func:`typical` returns them.
    """

    metric: str
    kind: str
    effect: Effect  # on the log cost
    before: float
    now: float
    threshold: Optional[float]

    def judged(self) -> JudgedMetric:
        """Return this as a verdict stores it, for a metric other than throughput."""
        low, high = self.effect.interval()
        return JudgedMetric(
            metric=self.metric,
            kind=self.kind,
            unit=SCALARS[self.metric].unit,
            before=self.before,
            now=self.now,
            change=math.expm1(self.effect.change),
            low=math.expm1(low),
            high=math.expm1(high),
            threshold=self.threshold,
        )


def log_cost(sample: Process, metric: str, canary: bool = True) -> Optional[float]:
    """Return the logarithm of a lower-is-better metric of one process; None if it is unknown.

    For throughput, this is the median seconds per item, divided by the 25% quantile of the
    canaries to the power ``CANARY_SHARE``, unless ``canary`` is false or there are no canaries.
    """
    if metric != THROUGHPUT:
        value = value_of(sample, metric)
        return None if value is None else math.log(value)
    return log_seconds(quantile(sample.seconds, ROUNDS_QUANTILE), sample, canary)


def log_seconds(round_seconds: float, sample: Process, canary: bool) -> float:
    """Return the log of the seconds per item; ``canary`` corrects for the machine's speed."""
    seconds = math.log(round_seconds / sample.items_per_round)
    if not canary or not sample.canaries:
        return seconds
    return seconds - CANARY_SHARE * math.log(quantile(sample.canaries, CANARY_QUANTILE))


def typical(processes: Sequence[Process], metric: str) -> float:
    """Return a metric's trimmed geometric mean over processes; throughput in items per second.

    The gate compares the same mean, but with the correction for the machine's speed.
    """
    costs = [log_cost(process, metric, canary=False) for process in processes]
    mean = Trimmed.of([cost for cost in costs if cost is not None]).mean
    return math.exp(-mean if metric == THROUGHPUT else mean)


def left_out(metric: str) -> str:
    """Return why a metric with a threshold has no verdict."""
    advice = "; --energy measures it" if metric == ENERGY else ""
    return f"{metric} is not judged: a process has no comparable value{advice}"


def build_verdict(
    throughput: MetricVerdict,
    others: Sequence[MetricVerdict],
    unit: str,
    processes: Tuple[int, int],
    allowed: Optional[float],
    reasons: Sequence[str],
    in_turns: bool = False,
    by_cpu_time: bool = False,
) -> Verdict:
    """Return the verdict on a case, with the numbers of its throughput.

    ``processes``: their numbers before and now. ``allowed``: the throughput's allowed loss.
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
        threshold=throughput.threshold,
        allowed=allowed,
        processes=now,
        processes_before=before,
        in_turns=in_turns,
        by_cpu_time=by_cpu_time,
        metric=metric,
        also=tuple(other.judged() for other in others),
        reasons=tuple(reasons),
    )


def _decided(throughput: MetricVerdict, others: Sequence[MetricVerdict]) -> Tuple[str, str]:
    """Return the worst kind and the first metric that has it; throughput's if none is bad."""
    for kind in (REGRESSED, INCONCLUSIVE):
        for one in (throughput, *others):
            if one.kind == kind:
                return kind, one.metric
    passed = throughput.kind == UNJUDGED and others
    return PASS if passed else throughput.kind, THROUGHPUT
