"""The rule that turns a comparison into a verdict. Pure functions over benchmarks.

A case is screened with the session's own process. Where that one looks slower than it should, fresh
processes decide, one after the other, until the decision is clear or the cap is reached:

- *regressed*: the estimated change is beyond what is allowed, and there is a change at the level
  that is corrected for the number of compared cases;
- *pass*: the estimate is within what is allowed, and its 95% interval excludes the change that the
  gate looks for (5%, or twice the threshold);
- *inconclusive*: neither, with as many processes as the cap allows.

Allowed is the larger of the threshold and the case's own A/A floor. docs/explanation/noise-study.md
says what else was tried, and scripts/gate_study shows what this finds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ipubench.plugins.gate.inference import Effect, corrected, decide, effect, noise_floor
from ipubench.plugins.gate.metric_verdict import MetricVerdict, build_verdict, typical
from ipubench.plugins.record.record import (
    METRICS,
    THROUGHPUT,
    differences,
    processes_of,
    record_of,
    sample_of,
    value_of,
)
from ipubench.plugins.record.statistics import quantile
from ipubench.plugins.record.verdict import INCOMPARABLE, INCONCLUSIVE, REGRESSED, UNJUDGED, Verdict

#: The fast rounds of a process are the code's, the slow ones the machine's.
ROUNDS_QUANTILE = 0.10
CANARY_QUANTILE = 0.25
#: Cases follow the canary in part; this share of its change counts (docs/explanation/gate.md).
CANARY_SHARE = 0.7
#: Standard deviation between processes of equal code that is assumed before any is measured.
ASSUMED = {THROUGHPUT: 0.02, "latency_p99": 0.1, "compile_time": 0.1, "peak_memory": 0.02}
#: The slow-down that the gate is to find, where twice the threshold is less.
DETECTABLE_CHANGE = 0.05
#: At which a change must be certain, in one look at one metric of one case, and of all cases
#: together. A case has several looks; scripts/gate_study shows what this comes to.
LEVEL, LEVEL_OF_ALL = 0.002, 0.025
LEAST_FRESH = 3
Measure = Callable[[int], Dict[str, Any]]


@dataclass(frozen=True)
class Rule:
    """What a case is judged by."""

    thresholds: Mapping[str, float]  # metric -> relative worsening that is allowed
    cases: int = 1  # compared in this run
    cap: int = 16  # fresh processes at most

    @property
    def level(self) -> float:
        """The level of one look at one metric of one case."""
        judged = [value for value in self.thresholds.values() if math.isfinite(value)]
        return min(LEVEL, corrected(LEVEL_OF_ALL, self.cases * len(judged)))


@dataclass(frozen=True)
class MetricRule:
    """How one metric of a case is judged, by log costs of processes (plugins/gate/inference.py)."""

    metric: str
    before: Sequence[float]
    threshold: float
    level: float

    def allowed(self, now: Sequence[float]) -> float:
        """Return the larger of the threshold and the case's own noise floor, as a log cost."""
        return max(math.log1p(self.threshold), noise_floor(self.before, len(now)))

    def detectable_change(self, now: Sequence[float]) -> float:
        """Return the change that must be excluded before a suspect passes, as a log cost."""
        return max(2 * math.log1p(self.threshold), math.log1p(DETECTABLE_CHANGE), self.allowed(now))

    def effect(self, now: Sequence[float]) -> Effect:
        """Return the change of the log cost."""
        return effect(self.before, now, ASSUMED[self.metric])

    def decide(self, now: Sequence[float]) -> str:
        """Return a verdict's kind, or '' where more processes are wanted."""
        return decide(self.effect(now), self.allowed(now), self.detectable_change(now), self.level)


def log_cost(sample: Dict[str, Any], metric: str, canary: bool = True) -> Optional[float]:
    """Return the log of a process's figure, of which less is better; None where it has none.

    Of throughput it is the 10% quantile of the rounds' seconds per item over the 25% quantile of
    its canaries to the power ``CANARY_SHARE``, unless ``canary`` is false or it has none.
    """
    if metric != THROUGHPUT:
        value = value_of(sample, metric)
        return None if value is None else math.log(value)
    seconds = math.log(quantile(sample["seconds"], ROUNDS_QUANTILE) / sample["items_per_round"])
    if not canary or not sample["canaries"]:
        return seconds
    return seconds - CANARY_SHARE * math.log(quantile(sample["canaries"], CANARY_QUANTILE))


def judge(
    now: Dict[str, Any], before: Dict[str, Any], rule: Rule, measure: Optional[Measure] = None
) -> Verdict:
    """Judge a benchmark against its baseline.

    ``measure(number)`` returns the benchmark of one more fresh process, numbered from 1; it is
    called only for a suspect. Without it the processes that ``now`` holds decide.
    """
    reasons = differences(record_of(now), record_of(before))
    if reasons:
        return Verdict(
            INCOMPARABLE,
            before=typical(processes_of(before), THROUGHPUT),
            now=typical(processes_of(now), THROUGHPUT),
            unit=record_of(now)["throughput"]["unit"],
            reasons=tuple(reasons),
        )
    comparison = _Comparison(now, before, rule)
    comparison.run(measure)
    return comparison.verdict()


class _Comparison:
    """One case, compared with its baseline."""

    def __init__(self, now: Dict[str, Any], before: Dict[str, Any], rule: Rule) -> None:
        self.rule = rule
        self.record = record_of(now)
        self.canary = _canary_kind(self.record) == _canary_kind(record_of(before))
        self.before = processes_of(before)
        processes = processes_of(now)
        self.own = processes[0]
        self.fresh = [sample for sample in processes if sample["fresh"]]
        self.now = _decisive(processes)
        self.kinds: Dict[str, str] = {}  # by metric; '' where there is none yet
        self.reasons: List[str] = []

    def run(self, measure: Optional[Measure]) -> None:
        """Decide on every metric that is judged."""
        metrics = [metric for metric in METRICS if self._can_judge(metric)]
        if measure is None:
            self._look(metrics)
            return
        cap = max(self.rule.cap, LEAST_FRESH)
        if len(self.fresh) < LEAST_FRESH:
            self._screen(metrics)
        else:
            self._look(metrics)
        while not all(self.kinds.values()) and len(self.fresh) < cap:
            number = len(self.fresh) + 1
            self.fresh.append(sample_of(measure(number), fresh=True))
            if number >= LEAST_FRESH:
                self.now = self.fresh
                self._look(metrics)

    def _look(self, metrics: Sequence[str]) -> None:
        """Judge by the processes that there are."""
        self.kinds = {}
        for metric in metrics:
            log_costs = self._log_costs(self.now, metric)
            if log_costs:
                self.kinds[metric] = self._metric_rule(metric).decide(log_costs)
            else:
                self._leave_out(metric)

    def _screen(self, metrics: Sequence[str]) -> None:
        """Judge by the session's own process: it clears a case, or finds it faster."""
        for metric in metrics:
            side = self._screening_side(metric)
            kind = self._metric_rule(metric, side).decide(self._log_costs([self.own], metric))
            self.kinds[metric] = "" if kind == REGRESSED else kind

    def _can_judge(self, metric: str) -> bool:
        if not math.isfinite(self.rule.thresholds.get(metric, math.inf)):
            return False
        sides = (_decisive(self.before), self._screening_side(metric), [self.own])
        there = all(self._log_costs(side, metric) for side in sides)
        if not there:
            self._leave_out(metric)
        return there

    def _leave_out(self, metric: str) -> None:
        reason = f"{metric} is not judged: some process has none that can be compared"
        if reason not in self.reasons:
            self.reasons.append(reason)

    def _log_costs(self, side: Sequence[Dict[str, Any]], metric: str) -> List[float]:
        found = (log_cost(sample, metric, self.canary) for sample in side)
        return [value for value in found if value is not None]

    def _screening_side(self, metric: str) -> List[Dict[str, Any]]:
        # A session that measured other cases before holds more memory than a fresh process, and
        # compiles with a framework that is warm.
        return self.before[:1] if metric in ("peak_memory", "compile_time") else self.before

    def _metric_rule(
        self, metric: str, side: Optional[Sequence[Dict[str, Any]]] = None
    ) -> MetricRule:
        """Return a metric's rule against ``side``, else against the processes that decide."""
        log_costs = self._log_costs(_decisive(self.before) if side is None else side, metric)
        threshold = self.rule.thresholds.get(metric, math.inf)
        return MetricRule(metric, log_costs, threshold, self.rule.level)

    def verdict(self) -> Verdict:
        """Return the verdict on what was found."""
        log_costs = self._log_costs(self.now, THROUGHPUT)
        return build_verdict(
            self._metric_verdict(THROUGHPUT),
            [self._metric_verdict(name) for name in self.kinds if name != THROUGHPUT],
            self.record["throughput"]["unit"],
            (len(_decisive(self.before)), len(self.now)),
            math.expm1(self._metric_rule(THROUGHPUT).allowed(log_costs)),
            self.reasons,
        )

    def _metric_verdict(self, metric: str) -> MetricVerdict:
        rule = self._metric_rule(metric)
        return MetricVerdict(
            metric,
            self.kinds.get(metric, UNJUDGED) or INCONCLUSIVE,
            rule.effect(self._log_costs(self.now, metric)),
            typical(_decisive(self.before), metric),
            typical(self.now, metric),
            rule.threshold,
        )


def _decisive(processes: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Return the processes that decide: the fresh ones, where there are enough of them.

    The session's own has measured other cases before, which may change its speed.
    """
    fresh = [sample for sample in processes if sample["fresh"]]
    return fresh if len(fresh) >= LEAST_FRESH else processes


def _canary_kind(record: Dict[str, Any]) -> str:
    return str(record["canary"].get("kind", "matrix product"))
