"""Judges a case against a stored baseline. Pure functions.

The session's own process can pass a case. Otherwise fresh processes decide: each look returns the
verdict or the need for another process, until the verdict is clear or the cap is reached:

- *regressed*: the estimated change exceeds the allowed one and is significant, corrected for the
  number of compared cases;
- *pass*: the estimate is within the allowed change, and its 95% interval excludes the change that
  the gate looks for (5%, or twice the threshold);
- *inconclusive*: neither, within the cap and the time, or because other programs disturbed too many
  processes.

Disturbed processes do not count, on either side, except by their CPU time
(plugins/gate/cpu_time.py). Nor does a process that ran in another machine state than the
baseline's. The allowed change is the larger of the threshold and the case's A/A noise floor.
docs/explanation/noise-study.md compares other rules; scripts/gate_study measures what this one
finds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence, Union

from msgspec.structs import replace

from ipubench.plugins.gate.countable import (
    LATER,
    LEAST_FRESH,
    SAVE_AGAIN,
    WAYS_OUT,
    comparable,
    decisive,
    disturbance_text,
    is_clean,
    same_copy,
    shown_processes,
    too_disturbed,
    usual_copy,
)
from ipubench.plugins.gate.cpu_time import CpuEvidence
from ipubench.plugins.gate.decision import Decision, Need
from ipubench.plugins.gate.inference import (
    Effect,
    corrected,
    decide,
    effect,
    least_change,
    noise_floor,
)
from ipubench.plugins.gate.metric_verdict import (
    MetricVerdict,
    build_verdict,
    left_out,
    log_cost,
    typical,
)
from ipubench.plugins.record.differences import (
    changed_extra_info,
    changed_settings,
    differences,
    same_latency,
)
from ipubench.plugins.record.record import (
    ENERGY,
    METRICS,
    REUSED,
    THROUGHPUT,
    processes_of,
)
from ipubench.plugins.record.structs import Benchmark, Process
from ipubench.plugins.record.verdict import (
    INCOMPARABLE,
    INCONCLUSIVE,
    PASS,
    REGRESSED,
    UNJUDGED,
    Verdict,
)

#: The assumed standard deviation between processes of equal code.
ASSUMED = {
    THROUGHPUT: 0.02,
    "latency_p99": 0.1,
    "compile_time": 0.1,
    "peak_memory": 0.02,
    ENERGY: 0.05,
}
#: The slow-down that the gate must find, unless twice the threshold is more.
DETECTABLE_CHANGE = 0.05
#: Significance levels: of one look at one metric of one case, and of all cases together. A case
#: has several looks; scripts/gate_study measures the resulting false alarms.
LEVEL, LEVEL_OF_ALL = 0.002, 0.025
#: A regression needs this many processes.
LEAST_OF_A_REGRESSION = 2


@dataclass(frozen=True)
class StoredRule:
    """The thresholds and limits for judging a case."""

    thresholds: Mapping[str, float]  # metric -> allowed relative worsening
    cases: int = 1  # compared in this run
    cap: int = 16  # fresh processes at most, but never below LEAST_FRESH
    extra_info: Sequence[str] = ()  # keys of extra_info that must be equal

    @property
    def most_fresh(self) -> int:
        """The most fresh processes for one case."""
        return max(self.cap, LEAST_FRESH)

    @property
    def level(self) -> float:
        """The significance level of one look at one metric of one case."""
        return min(LEVEL, corrected(LEVEL_OF_ALL, self.cases * len(self.thresholds)))


def detectable_change(threshold: float) -> float:
    """Return the change that must be excluded before a case passes, as a log cost."""
    return max(2 * math.log1p(threshold), math.log1p(DETECTABLE_CHANGE))


@dataclass(frozen=True)
class MetricRule:
    """Judges one metric of a case by the log costs of processes (plugins/gate/inference.py)."""

    metric: str
    before: Sequence[float]
    threshold: float
    level: float

    def allowed(self, now: Sequence[float]) -> float:
        """Return the larger of the threshold and the case's noise floor, as a log cost."""
        return max(math.log1p(self.threshold), noise_floor(self.before, len(now)))

    def detectable_change(self, now: Sequence[float]) -> float:
        """Return the change that must be excluded before a suspect passes, as a log cost."""
        return max(detectable_change(self.threshold), self.allowed(now))

    def effect(self, now: Sequence[float]) -> Effect:
        """Return the change of the log cost."""
        return effect(self.before, now, ASSUMED[self.metric])

    def decide(self, now: Sequence[float]) -> str:
        """Return a verdict's kind, or '' if more processes are needed."""
        return decide(self.effect(now), self.allowed(now), self.detectable_change(now), self.level)


def decide_stored(now: Benchmark, before: Benchmark, rule: StoredRule) -> Decision:
    """Return the verdict on a benchmark against its baseline, or the need for more processes.

    ``now`` holds the processes that have measured it so far, the session's own first.
    """
    found = _comparison(now, before, rule)
    if isinstance(found, Verdict):
        return found
    found.look()
    return Need(processes=1) if found.needs_more else found.verdict()


def conclude_stored(
    now: Benchmark, before: Benchmark, rule: StoredRule, reasons: Sequence[str] = ()
) -> Verdict:
    """Return the verdict if no more processes can be measured, for these ``reasons``."""
    found = _comparison(now, before, rule)
    if isinstance(found, Verdict):
        return found
    found.look()
    return found.verdict(reasons)


def judge(now: Benchmark, before: Benchmark, rule: StoredRule) -> Verdict:
    """Judge two stored benchmarks: the processes that they hold decide."""
    found = _comparison(now, before, rule)
    if isinstance(found, Verdict):
        return found
    found.look_at_all()
    return found.verdict()


def _comparison(now: Benchmark, before: Benchmark, rule: StoredRule) -> Union[_Comparison, Verdict]:
    """Return the comparison of two benchmarks, or the verdict if they cannot be compared."""
    reasons = differences(now.record, before.record) + changed_settings(now, before)
    reasons += changed_extra_info(now, before, rule.extra_info)
    if reasons:
        return _unjudged(INCOMPARABLE, now, before, reasons)
    stored = processes_of(before)
    if not any(map(is_clean, stored)):
        why = f"in the baseline {disturbance_text(stored)}; {SAVE_AGAIN}"
        return _unjudged(INCONCLUSIVE, now, before, [why])
    return _Comparison(now, before, rule)


def least_slowdown(before: Benchmark, rule: StoredRule) -> Optional[float]:
    """Return the slow-down that most comparisons with a baseline find, as a fraction.

    It depends on how much the baseline's processes differ and on the cap. None if throughput is not
    judged, or the baseline has no usable process.
    """
    threshold = rule.thresholds.get(THROUGHPUT)
    stored = decisive(comparable(processes_of(before)))
    costs = _log_costs(stored, THROUGHPUT)
    if not costs or threshold is None:
        return None
    metric = MetricRule(THROUGHPUT, costs, threshold, rule.level)
    most = rule.most_fresh
    allowed = metric.allowed([0.0] * most)
    return math.expm1(least_change(costs, most, ASSUMED[THROUGHPUT], allowed, rule.level))


def _unjudged(kind: str, now: Benchmark, before: Benchmark, reasons: Sequence[str]) -> Verdict:
    """Return the verdict on a case that cannot be judged; rates only if the units agree."""
    unit = now.record.throughput.unit
    alike = before.record.throughput.unit == unit
    here, there = shown_processes(now), shown_processes(before)
    return Verdict(
        kind,
        before=typical(there, THROUGHPUT) if alike else None,
        now=typical(here, THROUGHPUT),
        unit=unit,
        processes=len(here),
        processes_before=len(there),
        reasons=tuple(reasons),
        extra_info=tuple(changed_extra_info(now, before)),
    )


class _Comparison:
    """Compares one case with its baseline."""

    def __init__(self, now: Benchmark, before: Benchmark, rule: StoredRule) -> None:
        self.rule = rule
        self.benchmarks = now, before
        self.record = now.record
        self.canary = self.record.canary.kind == before.record.canary.kind
        self.same_latency = same_latency(self.record, before.record)
        self.stored = processes_of(before)
        self.before = comparable(self.stored)
        self.copy = usual_copy(self.before)
        processes = processes_of(now)
        self.own = processes[0]
        self.fresh = [sample for sample in processes if sample.fresh]
        self.now = decisive(list(filter(self._counts, processes)))
        self.reasons: List[str] = []
        self.metrics = [metric for metric in METRICS if self._can_judge(metric)]
        self.kinds: Dict[str, str] = {}  # by metric; '' if undecided
        #: The change of the CPU time per item, if that decided.
        self.cpu_time: Optional[Effect] = None

    @property
    def decided(self) -> bool:
        """Whether every metric has a verdict."""
        return all(self.kinds.values())

    def look(self) -> None:
        """Judge by the fresh processes if enough count, else by the session's own."""
        if not self.rule.thresholds:  # the change is shown but not judged
            self.look_at_all()
            return
        clean = list(filter(self._counts, self.fresh))
        if len(clean) >= LEAST_FRESH:
            self.now = clean
            self._look()
        else:
            self._screen()
        if not self.decided and self._is_disturbed:
            self._look_at_cpu_time()

    def look_at_all(self) -> None:
        """Judge by all processes that count."""
        if self.now:
            self._look()

    @property
    def needs_more(self) -> bool:
        """Whether another process may help."""
        if self.decided or len(self.fresh) >= self.rule.most_fresh:
            return False
        return not self._is_disturbed or self._cpu_evidence.counts

    @property
    def _is_disturbed(self) -> bool:
        return too_disturbed(list(map(self._counts, self.fresh)))

    def _counts(self, sample: Process) -> bool:
        """Return whether a process can be compared with the baseline's."""
        return is_clean(sample) and same_copy(sample, self.copy)

    def _why_not_more(self) -> List[str]:
        """Return the reasons why processes do not count."""
        everyone = [self.own, *self.fresh]
        reasons = []
        if not all(map(is_clean, everyone)):
            reasons.append(f"{disturbance_text(everyone)}; {WAYS_OUT}")
        others = [one for one in everyone if is_clean(one) and not self._counts(one)]
        if others:
            reasons.append(
                f"{len(others)} of {len(everyone)} processes found the machine in another state: a "
                f"memory copy took {usual_copy(others):.2f} ms, but {self.copy:.2f} ms in the "
                f"baseline, perhaps because of other virtual machines on this host: {LATER}; if it "
                "stays like this, save the baseline again"
            )
        return reasons

    def _look_at_few(self) -> None:
        """Judge by the few clean processes: the effect's interval is wide enough for them."""
        few = list(filter(self._counts, [self.own, *self.fresh]))
        clean = sum(map(self._counts, self.fresh))
        if clean >= LEAST_FRESH or len(few) < LEAST_OF_A_REGRESSION:
            return
        self.now = few
        self._look()
        slower = self.kinds.get(THROUGHPUT) == REGRESSED
        if slower and not self._all_slower_than_before():
            self.kinds[THROUGHPUT] = ""

    @property
    def _cpu_evidence(self) -> CpuEvidence:
        fresh = [one for one in self.fresh if same_copy(one, self.copy)]
        return CpuEvidence(self.stored, fresh, ASSUMED[THROUGHPUT], self.canary)

    def _look_at_cpu_time(self) -> None:
        """Judge the throughput of disturbed processes by their CPU time."""
        evidence, rule = self._cpu_evidence, self._metric_rule(THROUGHPUT)
        if self.kinds.get(THROUGHPUT) != "" or not evidence.counts:
            return
        limits = rule.allowed(rule.before), rule.detectable_change(rule.before), rule.level
        for found, kind in (
            (evidence.acquits(*limits), PASS),
            (evidence.convicts(*limits), REGRESSED),
        ):
            if found is not None:
                self.cpu_time, self.now = found, evidence.now
                self.kinds[THROUGHPUT] = kind
                self.reasons.append(f"judged by its CPU time: {disturbance_text(self.fresh)}")

    def _all_slower_than_before(self) -> bool:
        """Return whether each process is slower than all of the baseline's.

        With few processes, a mere difference of means may be chance.
        """
        before, now = (self._log_costs(side, THROUGHPUT) for side in (self.before, self.now))
        return min(now) > max(before)

    def _look(self) -> None:
        """Judge by the processes in ``now``."""
        self.kinds = {}
        for metric in self.metrics:
            log_costs = self._log_costs(self.now, metric)
            if log_costs:
                self.kinds[metric] = self._metric_rule(metric).decide(log_costs)
            else:
                self._leave_out(metric)

    def _screen(self) -> None:
        """Pass metrics by the session's own process, if it is clean. It cannot fail them.

        Never the compile time: after compiling other cases, the framework is warm.
        """
        clean = self._counts(self.own)
        for metric in self.metrics:
            rule = self._metric_rule(metric, self._screening_side(metric))
            clears = clean and metric != "compile_time"
            passes = clears and rule.decide(self._log_costs([self.own], metric)) == PASS
            self.kinds[metric] = PASS if passes else ""
        if self.kinds and all(self.kinds.values()):
            self.now = [self.own]

    def _can_judge(self, metric: str) -> bool:
        if metric not in self.rule.thresholds:
            return False
        sides = [decisive(self.before)]
        # A fresh process compiles even what this session reused from an earlier case.
        if metric != "compile_time" or self.own.compile != REUSED:
            sides.append([self.own])
        there = all(self._log_costs(side, metric) for side in sides)
        there = there and (metric != "latency_p99" or self.same_latency)
        if not there:
            self._leave_out(metric)
        return there

    def _leave_out(self, metric: str) -> None:
        reason = left_out(metric)
        if reason not in self.reasons:
            self.reasons.append(reason)

    def _log_costs(self, side: Sequence[Process], metric: str) -> List[float]:
        return _log_costs(side, metric, self.canary)

    def _screening_side(self, metric: str) -> Sequence[Process]:
        # A session holds more memory after other cases. The baseline's own session may have
        # measured more cases than this one, and would hide a growth.
        return decisive(self.before) if metric == "peak_memory" else self.before

    def _metric_rule(self, metric: str, side: Optional[Sequence[Process]] = None) -> MetricRule:
        """Return a metric's rule against ``side``; by default the decisive processes."""
        log_costs = self._log_costs(decisive(self.before) if side is None else side, metric)
        threshold = self.rule.thresholds.get(metric, math.inf)
        return MetricRule(metric, log_costs, threshold, self.rule.level)

    def verdict(self, reasons: Sequence[str] = ()) -> Verdict:
        """Return the verdict on the case. ``reasons``: why nothing more is measured."""
        self.reasons += reasons
        if self.fresh and not self.decided:
            self._look_at_few()
        if not self.decided and not all(map(is_clean, self.fresh)):
            self._look_at_cpu_time()
        if self.now:
            for metric in [name for name in self.kinds if not self._log_costs(self.now, name)]:
                del self.kinds[metric]
                self._leave_out(metric)
        if not (self.now and self.decided):
            self.reasons += self._why_not_more()
        if not self.now:
            return _unjudged(INCONCLUSIVE, *self.benchmarks, self.reasons)
        log_costs = self._log_costs(self.now, THROUGHPUT)
        verdict = build_verdict(
            self._metric_verdict(THROUGHPUT),
            [self._metric_verdict(name) for name in self.kinds if name != THROUGHPUT],
            self.record.throughput.unit,
            (len(decisive(self.before)), len(self.now)),
            math.expm1(self._metric_rule(THROUGHPUT).allowed(log_costs)),
            self.reasons,
            by_cpu_time=self.cpu_time is not None,
        )
        return replace(verdict, extra_info=tuple(changed_extra_info(*self.benchmarks)))

    def _metric_verdict(self, metric: str) -> MetricVerdict:
        rule = self._metric_rule(metric)
        by_cpu_time = self.cpu_time if metric == THROUGHPUT else None
        return MetricVerdict(
            metric,
            self.kinds.get(metric, UNJUDGED) or INCONCLUSIVE,
            by_cpu_time or rule.effect(self._log_costs(self.now, metric)),
            typical(decisive(self.before), metric),
            typical(self.now, metric),
            rule.threshold,
        )


def _log_costs(side: Sequence[Process], metric: str, canary: bool = True) -> List[float]:
    found = (log_cost(sample, metric, canary) for sample in side)
    return [value for value in found if value is not None]
