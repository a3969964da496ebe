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
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ipubench.plugins.gate.inference import Effect, corrected, decide, effect, noise_floor
from ipubench.plugins.record.process_sample import (
    METRICS,
    SCALARS,
    THROUGHPUT,
    differences,
    processes_of,
    sample_of,
    value_of,
)
from ipubench.plugins.record.record import record_of
from ipubench.plugins.record.statistics import median, quantile
from ipubench.plugins.record.verdict import (
    INCOMPARABLE,
    INCONCLUSIVE,
    PASS,
    REGRESSED,
    UNJUDGED,
    Verdict,
)

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
class Question:
    """Has one metric of a case become worse? Costs of processes, see plugins/gate/inference.py."""

    metric: str
    before: Sequence[float]
    threshold: float
    level: float

    def allowed(self, now: Sequence[float]) -> float:
        """Return the larger of the threshold and the case's own A/A floor, as a cost."""
        return max(math.log1p(self.threshold), noise_floor(self.before, len(now)))

    def detectable_change(self, now: Sequence[float]) -> float:
        """Return the change that must be excluded before a suspect passes, as a cost."""
        return max(2 * math.log1p(self.threshold), math.log1p(DETECTABLE_CHANGE), self.allowed(now))

    def effect(self, now: Sequence[float]) -> Effect:
        """Return the change of cost."""
        return effect(self.before, now, ASSUMED[self.metric])

    def answer(self, now: Sequence[float]) -> str:
        """Return a verdict, or '' where more processes are wanted."""
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
            before=_rate(processes_of(before)),
            now=_rate(processes_of(now)),
            unit=record_of(now)["throughput"]["unit"],
            reasons=tuple(reasons),
        )
    trial = _Trial(now, before, rule)
    trial.run(measure)
    return trial.verdict()


class _Trial:
    """One case before the gate."""

    def __init__(self, now: Dict[str, Any], before: Dict[str, Any], rule: Rule) -> None:
        self.rule = rule
        self.record = record_of(now)
        self.canary = _canary_kind(self.record) == _canary_kind(record_of(before))
        self.before = processes_of(before)
        processes = processes_of(now)
        self.own = processes[0]
        self.fresh = [sample for sample in processes if sample["fresh"]]
        self.now = _decisive(processes)
        self.answers: Dict[str, str] = {}
        self.reasons: List[str] = []

    def run(self, measure: Optional[Measure]) -> None:
        """Find an answer for every metric that is judged; '' where there is none yet."""
        metrics = [metric for metric in METRICS if self._can_judge(metric)]
        if measure is None:
            self._look(metrics)
            return
        cap = max(self.rule.cap, LEAST_FRESH)
        if len(self.fresh) < LEAST_FRESH:
            self._screen(metrics)
        else:
            self._look(metrics)
        while not all(self.answers.values()) and len(self.fresh) < cap:
            number = len(self.fresh) + 1
            self.fresh.append(sample_of(measure(number), fresh=True))
            if number >= LEAST_FRESH:
                self.now = self.fresh
                self._look(metrics)

    def _look(self, metrics: Sequence[str]) -> None:
        """Ask the processes that there are."""
        self.answers = {}
        for metric in metrics:
            costs = self._costs(metric)
            if costs:
                self.answers[metric] = self._question(metric).answer(costs)
            else:
                self._leave_out(metric)

    def _screen(self, metrics: Sequence[str]) -> None:
        """Ask the session's own process: it clears a case, or finds it faster."""
        for metric in metrics:
            own = self._cost(self.own, metric)
            assert own is not None
            answer = self._screening(metric).answer([own])
            self.answers[metric] = "" if answer == REGRESSED else answer

    def _can_judge(self, metric: str) -> bool:
        if not math.isfinite(self.rule.thresholds.get(metric, math.inf)):
            return False
        sides = (_decisive(self.before), self._screening_side(metric), [self.own])
        there = all(
            any(self._cost(sample, metric) is not None for sample in side) for side in sides
        )
        if not there:
            self._leave_out(metric)
        return there

    def _leave_out(self, metric: str) -> None:
        reason = f"{metric} is not judged: some process has none that can be compared"
        if reason not in self.reasons:
            self.reasons.append(reason)

    def _cost(self, sample: Dict[str, Any], metric: str) -> Optional[float]:
        return log_cost(sample, metric, self.canary)

    def _costs(self, metric: str) -> List[float]:
        found = (self._cost(sample, metric) for sample in self.now)
        return [value for value in found if value is not None]

    def _question(self, metric: str) -> Question:
        return self._ask(metric, _decisive(self.before))

    def _screening(self, metric: str) -> Question:
        return self._ask(metric, self._screening_side(metric))

    def _screening_side(self, metric: str) -> List[Dict[str, Any]]:
        # A session that measured other cases before holds more memory than a fresh process, and
        # compiles with a framework that is warm.
        return self.before[:1] if metric in ("peak_memory", "compile_time") else self.before

    def _ask(self, metric: str, side: Sequence[Dict[str, Any]]) -> Question:
        found = (self._cost(sample, metric) for sample in side)
        costs = [value for value in found if value is not None]
        threshold = self.rule.thresholds.get(metric, math.inf)
        return Question(metric, costs, threshold, self.rule.level)

    def verdict(self) -> Verdict:
        """Return the verdict on what was found."""
        question = self._question(THROUGHPUT)
        costs = self._costs(THROUGHPUT)
        found = question.effect(costs)
        low, high = found.interval()
        kind, metric = self._decided()
        return Verdict(
            kind,
            before=_rate(_decisive(self.before)),
            now=_rate(self.now),
            unit=self.record["throughput"]["unit"],
            change=math.expm1(-found.change),
            low=math.expm1(-high),
            high=math.expm1(-low),
            threshold=question.threshold,
            allowed=math.expm1(question.allowed(costs)),
            processes=len(self.now),
            processes_before=len(_decisive(self.before)),
            metric=metric,
            also=tuple(self._scalar(name) for name in self.answers if name != THROUGHPUT),
            reasons=tuple(self.reasons),
        )

    def _decided(self) -> Tuple[str, str]:
        """Return the worst answer and the first metric that gave it."""
        answers = {name: answer or INCONCLUSIVE for name, answer in self.answers.items()}
        for kind in (REGRESSED, INCONCLUSIVE):
            for name, answer in answers.items():
                if answer == kind:
                    return kind, name
        return answers.get(THROUGHPUT, PASS if answers else UNJUDGED), THROUGHPUT

    def _scalar(self, metric: str) -> Dict[str, Any]:
        question = self._question(metric)
        costs = self._costs(metric)
        found = question.effect(costs)
        low, high = found.interval()
        return {
            "metric": metric,
            "kind": self.answers[metric] or INCONCLUSIVE,
            "unit": SCALARS[metric].unit,
            "before": math.exp(median(question.before)),
            "now": math.exp(median(costs)),
            "change": math.expm1(found.change),  # + is more, and so worse
            "low": math.expm1(low),
            "high": math.expm1(high),
            "threshold": question.threshold,
        }


def _decisive(processes: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Return the processes that decide: the fresh ones, where there are enough of them.

    The session's own has measured other cases before, which may change its speed.
    """
    fresh = [sample for sample in processes if sample["fresh"]]
    return fresh if len(fresh) >= LEAST_FRESH else processes


def _rate(processes: Sequence[Dict[str, Any]]) -> float:
    """Return the median over processes of their median throughput, items per second."""
    rates = [sample["items_per_round"] / median(sample["seconds"]) for sample in processes]
    return median(rates)


def _canary_kind(record: Dict[str, Any]) -> str:
    return str(record["canary"].get("kind", "matrix product"))
