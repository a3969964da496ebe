"""`--against=PYTHON`: is this environment slower than another one?

Each case is measured in turns here and with the other interpreter, always in a fresh process, in
pairs AB, BA, AB, ... until the answer is clear or ``--gate-cap`` pairs are measured (see
plugins/gate/paired.py). The other environment is what was before, this one is now.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Tuple

import pytest

from ipubench.plugins.command_line.words import only_lists
from ipubench.plugins.compare.policy import marker_thresholds, policy_of
from ipubench.plugins.gate import paired
from ipubench.plugins.gate.inference import Effect, decide
from ipubench.plugins.gate.paired import Pair
from ipubench.plugins.gate.rule import DETECTABLE_CHANGE, log_cost
from ipubench.plugins.processes.fresh import FreshError, measure_again
from ipubench.plugins.processes.other_python import Environment, find
from ipubench.plugins.record import host_process
from ipubench.plugins.record.process_sample import SCALARS, THROUGHPUT, differences, sample_of
from ipubench.plugins.record.record import record_of
from ipubench.plugins.record.statistics import median
from ipubench.plugins.record.verdict import (
    IMPROVED,
    INCOMPARABLE,
    INCONCLUSIVE,
    PASS,
    REGRESSED,
    UNJUDGED,
    Verdict,
)
from ipubench.plugins.run.results import run_key, selected
from ipubench.plugins.run.resume import depends_on
from ipubench.plugins.selection.expand import case_of

WORST_FIRST = (REGRESSED, INCONCLUSIVE, PASS, IMPROVED, UNJUDGED)
Benchmark = Dict[str, Any]
Sides = Tuple[Benchmark, Benchmark]  # here, there


@dataclass
class Against:
    """The other environment, and how a case is compared with it."""

    config: pytest.Config
    environment: Environment
    cpus: FrozenSet[int]  # of this process before the device pins it
    #: What the markers of the cases that are to run allow, by node id.
    markers: Dict[str, Dict[str, float]] = field(default_factory=dict)

    @classmethod
    def start(cls, config: pytest.Config) -> Against:
        """Look at the other environment; UsageError where it cannot measure."""
        environment = find(config.option.against, config.rootpath)
        depends_on(config, "the other environment", json.dumps(environment.versions))
        return cls(config, environment, frozenset(os.sched_getaffinity(0)))

    def judge(self, nodeid: str, now: Benchmark, progress: Callable[[str], None]) -> Verdict:
        """Measure a case in pairs and compare them.

        ``now``, of this process, is not compared: it has measured other cases before. A case that
        cannot run there is incomparable; one that no longer runs here raises FreshError.
        """
        policy = policy_of(self.config)
        limits = policy.limits(nodeid, self.markers.get(nodeid, {})) if policy else None
        thresholds = limits.thresholds if limits else {}
        cap = max(self.config.option.gate_cap, paired.LEAST_PAIRS)
        tests = len(selected(self.config)) * max(1, len(thresholds))
        level = paired.level_of_a_look(cap, tests)
        measured: List[Sides] = []
        for number in range(1, cap + 1):
            try:
                measured.append(self._pair(nodeid, number, cap, progress))
            except FreshError as error:
                if not error.elsewhere:
                    raise
                return Verdict(INCOMPARABLE, reasons=(f"it does not run there: {error.why}",))
            reasons = incomparable(*measured[-1])
            if reasons:
                return Verdict(INCOMPARABLE, reasons=tuple(reasons))
            if number in paired.looks(cap) and all(
                answer.clear for answer in answers(measured, thresholds, level)
            ):
                break
        return verdict(measured, answers(measured, thresholds, level))

    def _pair(self, nodeid: str, number: int, cap: int, progress: Callable[[str], None]) -> Sides:
        found: Dict[bool, Benchmark] = {}
        for here in (True, False) if number % 2 else (False, True):
            where = "here" if here else "there"
            progress(f"pair {number} of {cap} at most, measuring {where}")
            elsewhere = None if here else self.environment
            found[here] = measure_again(self.config, nodeid, self.cpus, elsewhere)
        line = {"type": "pair", "case": nodeid, "here": found[True], "there": found[False]}
        self.config.stash[run_key].add(line)
        return found[True], found[False]


def incomparable(here: Benchmark, there: Benchmark) -> List[str]:
    """Return why the two sides did not measure the same thing, in words.

    Another precision or engine is no reason: that one environment has no better one is part of the
    answer, and is said with it.
    """
    ours, theirs = record_of(here), record_of(there)
    found = []
    if ours["config_hash"] != theirs["config_hash"]:
        found.append("another configuration there")
    if ours["device"]["fingerprint"] != theirs["device"]["fingerprint"]:
        found.append(f"another device there ({theirs['device']['fingerprint']})")
    if ours["throughput"]["unit"] != theirs["throughput"]["unit"]:
        found.append(f"another unit there ({theirs['throughput']['unit']})")
    return found


@dataclass(frozen=True)
class Answer:
    """What the pairs say of one metric; ``kind`` is a verdict's."""

    metric: str
    threshold: Optional[float]
    effect: Effect
    kind: str
    clear: bool  # no more pairs are wanted


def answers(measured: List[Sides], thresholds: Mapping[str, float], level: float) -> List[Answer]:
    """Return the answers for the throughput, and for every metric that has a threshold."""
    found = []
    for metric in (THROUGHPUT, *(name for name in SCALARS if name in thresholds)):
        pairs = pairs_of(measured, metric)
        if pairs:
            found.append(_answer(metric, pairs, thresholds.get(metric), level))
    return found


def _answer(metric: str, pairs: List[Pair], threshold: Optional[float], level: float) -> Answer:
    effect = paired.paired_effect(pairs)
    if threshold is None:
        return Answer(metric, None, effect, UNJUDGED, paired.precise(effect))
    allowed = math.log1p(threshold)
    detectable_change = max(2 * allowed, math.log1p(DETECTABLE_CHANGE))
    kind = decide(effect, allowed, detectable_change, level)
    return Answer(metric, threshold, effect, kind or INCONCLUSIVE, bool(kind))


def pairs_of(measured: List[Sides], metric: str) -> List[Pair]:
    """Return the pairs of a metric; empty where a side has no such figure.

    They are not divided by the canary, as processes of a stored baseline are: a pair is measured at
    one time, and another NumPy may run the canary at another speed.
    """
    pairs = []
    for number, sides in enumerate(measured):
        here, there = (log_cost(sample_of(one, fresh=True), metric, canary=False) for one in sides)
        if here is None or there is None:
            return []
        pairs.append(Pair(here - there, here_first=number % 2 == 0))
    return pairs


def verdict(measured: List[Sides], found: List[Answer]) -> Verdict:
    """Return the verdict on a case: the worst of its metrics that have a threshold."""
    judged = [answer for answer in found if answer.threshold is not None] or found[:1]
    worst = min(judged, key=lambda answer: WORST_FIRST.index(answer.kind))
    throughput = found[0]
    low, high = throughput.effect.interval()
    here, there = map(record_of, measured[-1])
    threshold = math.nan if throughput.threshold is None else throughput.threshold
    return Verdict(
        worst.kind,
        now=_rate(measured, 0),
        before=_rate(measured, 1),
        unit=here["throughput"]["unit"],
        change=math.expm1(-throughput.effect.change),
        low=math.expm1(-high),
        high=math.expm1(-low),
        threshold=threshold,
        allowed=threshold,
        in_turns=True,
        processes=len(measured),
        processes_before=len(measured),
        metric=worst.metric,
        also=tuple(_scalar(measured, answer) for answer in found[1:]),
        reasons=tuple(differences(here, there)),
    )


def _rate(measured: List[Sides], side: int) -> float:
    return median([record_of(sides[side])["throughput"]["median"] for sides in measured])


def _scalar(measured: List[Sides], answer: Answer) -> Dict[str, Any]:
    """Return what a verdict holds of another metric than throughput, as the gate has it."""
    costs = [
        [log_cost(sample_of(sides[side], fresh=True), answer.metric) or 0.0 for sides in measured]
        for side in (0, 1)
    ]
    low, high = answer.effect.interval()
    return {
        "metric": answer.metric,
        "kind": answer.kind,
        "unit": SCALARS[answer.metric].unit,
        "before": math.exp(median(costs[1])),
        "now": math.exp(median(costs[0])),
        "change": math.expm1(answer.effect.change),
        "low": math.expm1(low),
        "high": math.expm1(high),
        "threshold": answer.threshold,
    }


against_key = pytest.StashKey[Against]()


def pytest_configure(config: pytest.Config) -> None:
    """Look at the other environment before anything runs."""
    option = config.option
    if option.against is None:
        return
    for name in ("baseline", "profile", "instance"):
        if getattr(option, name) is not None:
            raise pytest.UsageError(
                f"--against measures what a case is compared with: leave out --{name}"
            )
    if not only_lists(config):
        config.stash[against_key] = Against.start(config)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note the cases that are compared; plugins/compare/policy.py has refused markers of no use."""
    against = session.config.stash.get(against_key, None)
    if against is not None:
        cases = [item for item in session.items if case_of(item) is not None]
        against.markers = {item.nodeid: marker_thresholds(item) for item in cases}


def pytest_report_collectionfinish(config: pytest.Config) -> List[str]:
    """Say what is compared with what."""
    against = config.stash.get(against_key, None)
    if against is None:
        return []
    environment = against.environment
    return [f"against {environment.python}: {environment.changes(host_process.versions())}"]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Say once more, below the verdicts, what they compare."""
    run = session.config.stash.get(run_key, None)
    against = session.config.stash.get(against_key, None)
    if run is not None and against is not None:
        changes = against.environment.changes(host_process.versions())
        run.closing.append(f"versions there and here: {changes}")
