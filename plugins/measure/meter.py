"""Measures a step and writes its record: warm-up, rounds, latency, compute, memory and input.

    meter(step, items=config.batch_size, unit="images", flops=...)

All timing of steps happens in this folder.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import msgspec

from ipubench.fixtures.case.cases import effective_options
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.machine.frames import left_out
from ipubench.fixtures.runtimes.call import CallStep
from ipubench.fixtures.runtimes.declared import described, finished, returned
from ipubench.fixtures.runtimes.step import Step, ask
from ipubench.plugins.measure.base import BatchFacts, Built, CaseRun, FirstFacts, StepMeter
from ipubench.plugins.measure.disturbance import Disturbance, is_enough
from ipubench.plugins.measure.energy import EnergyWindow
from ipubench.plugins.measure.estimate import estimate_text
from ipubench.plugins.measure.inspection import save_graph
from ipubench.plugins.measure.latency_and_input import (
    describe_input,
    describe_latency,
    of_rounds,
)
from ipubench.plugins.measure.peaks import Peaks, ceilings, describe_compute, takes_long, usual_rate
from ipubench.plugins.measure.rounds import (
    CANARIES_AROUND_BACKGROUND_WORK,
    LONGEST_BATCH_SECONDS,
    LONGEST_ROUND_SHARE,
    WARM_UP_SHARE,
    Calibrated,
    Dropped,
    Limits,
    Rounds,
    calibrate,
    canary_times,
    first_calls,
    target_seconds,
    warm_up,
)
from ipubench.plugins.record import host_process, pytest_benchmark_adapter, structs
from ipubench.plugins.record.record import BEFORE_ROUNDS
from ipubench.plugins.record.statistics import throughput
from ipubench.plugins.record.structs import Canary, Facts, InputRates, Memory, Record, Throughput
from ipubench.plugins.record.verdict import known

__tracebackhide__ = left_out


@dataclass(frozen=True)
class WarmUp:
    """The calls before the rounds, which are dropped, and the canaries before those."""

    first_step_seconds: float
    dropped: Dropped
    canaries: List[float]
    reported: int  # the number of latencies that the step had reported by then
    shortened: float  # a round's share of the configured batches


class Start(NamedTuple):
    """What is known before the rounds."""

    first: FirstFacts
    effective: Facts
    built: Built


class Meter(StepMeter):
    """Measures the step of one case."""

    def __init__(self, case_run: CaseRun, peaks: Peaks) -> None:
        super().__init__(case_run)
        self.peaks = peaks
        #: The share of a batch's items that is left after it was made lighter.
        self._share = 1.0
        self._clock = self.device.clock  # for the rounds
        self._budget = float(options_of(self.config).budget)

    def work_on(self, step: Step, facts: BatchFacts) -> None:
        """Measure the step, close it and write its record."""
        self.case_run.wait_for_quiet()
        self.phase("peak", "measuring the device's peak")
        ceilings(self.peaks, step)
        memory = host_process.PeakMemory()
        built = self.build(step)
        save_graph(self, step)
        self.phase("record", "describing the step")
        start = Start(self.case_run.first_facts(), described(step), built)
        facts = replace(facts, items=self._share * facts.items)
        if self._steps() is None:
            self._budget = self.case_run.run.bounds.budget(self.case_run.run.closing)
        warm = self._warm_up(step, facts)
        rounds = self._rounds(warm, step)
        rounds.show = partial(self._show_estimate, rounds, step, facts)
        seconds = self._run(rounds, step)
        record = (
            self._describe(start, step, facts, warm, rounds, seconds, memory) if seconds else None
        )
        self.phase("close", "closing")
        self.close()
        self.phase("record", "recording")
        if record is not None:  # None with --benchmark-disable
            self._record(record, step)

    def _record(self, record: Record, step: Step) -> None:
        """Write the record of the case."""
        self.case_run.finish(record, step.release or (lambda: None))

    def _warm_up(self, step: Step, facts: BatchFacts) -> WarmUp:
        """Calibrate and warm up."""
        clock = self.device.clock
        around = CANARIES_AROUND_BACKGROUND_WORK if step.loading.prefetched else 0
        canaries = canary_times(_canary(step), clock, around)
        self.phase("warm_up", "warming up")
        given = "batches_per_step" in self.case.overrides
        if step.rounds.calibrated:  # an IPU's step has its number
            burst = step.loading.burst
            step.batches_per_step = self.case.config.batches_per_step if given else burst
        configured = step.batches_per_step
        longest = LONGEST_ROUND_SHARE * self._budget
        calls, used = first_calls(step, clock, self._lengths(step), longest)
        first, last = calls[0], calls[-1]
        length = step.batches_per_step
        shortened = self._share * length / configured
        most = self._most_warm_up()
        loaded = step.loading.burst > 1 or step.loading.prefetched > used
        if not loaded and self._was_a_round(step, facts, last):
            dropped = Dropped([], "budget")
        else:
            found = self._choose_batches(step, calibrated=step.rounds.calibrated and not given)
            used += found.batches
            earlier = last if step.batches_per_step == length else None
            dropped = warm_up(step, clock, most, found.seconds, used, earlier)
        reported = ask(step.latencies) or []
        return WarmUp(first, dropped, canaries, len(reported), shortened)

    def _was_a_round(self, step: Step, facts: BatchFacts, seconds: float) -> bool:
        """Return whether the work of the first call, not its preparations, took that long."""
        most = self._most_warm_up()
        is_long = seconds >= most and self._adapts(step)
        return is_long and takes_long(self.peaks, step, facts.flops, facts.items, most)

    def on_built(self, step: Step) -> None:
        """Make a batch lighter if, at this machine's peak, it would take too long."""
        rate = usual_rate(self.peaks, step)
        if step.lighten is not None and rate is not None and self._adapts(step):
            self._share = step.lighten(LONGEST_BATCH_SECONDS * rate)

    def _lengths(self, step: Step) -> List[int]:
        """Return the batches of each of the first calls; the last is a round's."""
        if step.lengths is None or step.rounds.calibrated or not self._adapts(step):
            return [step.batches_per_step]
        return step.lengths()

    def _adapts(self, step: Step) -> bool:
        """Return whether the meter may choose the length of a round, because no option gives it."""
        return self.case.overrides.isdisjoint(step.rounds.options)

    def _most_warm_up(self) -> float:
        """Return how many seconds dropped rounds may take; a number of steps has no budget."""
        if self._steps() is not None:
            return math.inf
        return WARM_UP_SHARE * self._budget

    def _steps(self) -> Optional[int]:
        """Return the number of rounds that the user gave, or None."""
        return self.case.config.steps if "steps" in self.case.overrides else None

    def _choose_batches(self, step: Step, calibrated: bool) -> Calibrated:
        """Calibrate the number of batches of a round, if it is not given."""
        if not calibrated:
            return Calibrated()
        longest = LONGEST_ROUND_SHARE * self._budget
        return calibrate(step, self.device.clock, target_seconds(self._budget), longest)

    def _rounds(self, warm: WarmUp, step: Step) -> Rounds:
        """Return the rounds with their limits and their canary."""
        precision = options_of(self.config).target_precision
        limits = Limits(self._timed_budget(step), precision, self._steps(), ask(step.rounds.most))
        canary = None if step.loading.prefetched else _canary(step)
        watching, energy = Disturbance.of(self.device), EnergyWindow.of(self.device)
        return Rounds(limits, self.device.clock, canary, watching, list(warm.canaries), energy)

    def _timed_budget(self, step: Step) -> float:
        """Return the seconds of the budget that are left for the timed part."""
        return self._budget * step.timed_share

    def _show_line(self, text: str) -> None:
        """Show a line that stays on the screen."""
        self.case_run.run.progress.line(f"  {text}")

    def _show_estimate(
        self, rounds: Rounds, step: Step, facts: BatchFacts, seconds: List[float]
    ) -> None:
        """Show the estimate from the rounds so far."""
        self.case_run.run.progress.estimate(
            lambda: estimate_text(
                rounds, seconds, _per_round(step, facts), facts.unit, step.timed_share
            )
        )

    def _run(self, rounds: Rounds, step: Step) -> List[float]:
        """Run the rounds; return their seconds."""
        self.phase("prepare", "preparing the rounds")
        if step.prepare_rounds is not None:
            step.prepare_rounds(self._show_line)
        self.phase("rounds", f"measuring ({self._budget:g} s at most)")
        if step.clock is not None:
            self._clock = step.clock.read
        return pytest_benchmark_adapter.run_rounds(
            self.benchmark,
            step,
            rounds.before_round,
            self._clock,
            effective_options(self.case.config, self.case.overrides),
            step.batches_per_step,
        )

    def _describe(
        self,
        start: Start,
        step: Step,
        facts: BatchFacts,
        warm: WarmUp,
        rounds: Rounds,
        seconds: List[float],
        memory: host_process.PeakMemory,
    ) -> Record:
        """Return the record; some of its parts run the step again."""
        items = facts.items * step.counted_processes
        per_round = _per_round(step, facts)
        kept = rounds.disturbance.kept(len(seconds))
        enough = is_enough(of_rounds(seconds, kept), len(seconds), rounds.limits.budget)
        if not enough:
            kept = [True] * len(seconds)
        rates = throughput(of_rounds(seconds, kept), per_round, facts.unit)
        self.phase("latency", "measuring latency")
        latency = describe_latency(
            step,
            seconds,
            kept,
            warm.reported,
            facts.latency_from_throughput,
            self._clock,
            self._timed_budget(step),
        )
        self.phase("peak", "comparing with the device's peak")
        compute, implausible = describe_compute(self.peaks, step, facts.flops, rates.median, items)
        if facts.flops and compute.peak is None and isinstance(step, CallStep):
            self.case_run.run.closing.append(
                f"{self.case.id}: {known(compute.achieved):.3g} FLOP/s, and no share of a "
                "peak, because the suite does not see in which type a callable computes"
            )
        built = start.built
        memory_used = describe_memory(step, memory)
        counters = in_items(ask(step.counters) or {}, items)
        finish = self._finished(step)
        contention = rounds.disturbance.describe(seconds, enough)
        if step.timed_share < 1:  # it is that of the untimed part as well
            contention = msgspec.structs.replace(contention, cpu_seconds=())
        return Record(
            **start.first._asdict(),
            effective=start.effective,
            build_seconds=built.build_seconds,
            compile_seconds=built.compile_seconds,
            compile=built.compile,
            compile_saved_seconds=built.saved_seconds,
            first_step_seconds=warm.first_step_seconds,
            rounds=structs.Rounds(
                count=len(seconds),
                batches_per_step=step.batches_per_step,
                stopped_by=rounds.stopped_by,
                dropped_seconds=warm.dropped.seconds,
                warm_up_ended_by=warm.dropped.ended_by,
                shortened=warm.shortened,
            ),
            canary=Canary(
                kind=self.device.canary_kind,
                seconds=rounds.canaries,
                when=BEFORE_ROUNDS if step.loading.prefetched else "before each round",
            ),
            contention=contention,
            items_per_round=per_round,
            throughput=rates,
            throughput_mean=rates.mean,
            latency=latency,
            compute=compute,
            implausible=implausible,
            memory=memory_used,
            energy=rounds.energy.describe(step, len(seconds) * per_round),
            counters=counters,
            finish=finish,
            input=self._input(step, items, rates),
            data=step.feed.describe(),
        )

    def _finished(self, step: Step) -> Facts:
        """Let the step do its untimed work after the rounds; return the record's part about it."""
        self.phase("finish", "finishing")
        found = finished(step)
        self.case_run.run.closing += [f"{self.case.id}: {line}" for line in found.lines]
        return found.facts

    def _input(self, step: Step, items: float, rates: Throughput) -> Optional[InputRates]:
        self.phase("input", "measuring what limits")
        return describe_input(step, items, rates.unit, self.device.clock, together=rates.median)


def _canary(step: Step) -> Optional[Callable[[], None]]:
    """Return a step's canary; None if it has none."""
    make = step.reference.canary
    if make is None:
        return None
    return returned(step, "reference.canary()", make(), Callable)


def _per_round(step: Step, facts: BatchFacts) -> float:
    """Return the items of a round."""
    return facts.items * step.counted_processes * step.batches_per_step


def in_items(counters: Dict[str, Any], items: float) -> Dict[str, Any]:
    """Return a step's counters with the rates of its instances in items, not batches, per second.

    ``items``: of one batch of all instances together.
    """
    if "instances" not in counters:
        return counters
    each = items / len(counters["instances"])
    instances = [
        {**one, **{key: one[key] and each * one[key] for key in ("rate", "first_rate")}}
        for one in counters["instances"]
    ]
    return {**counters, "instances": instances}


def describe_memory(step: Step, memory: host_process.PeakMemory) -> Memory:
    """Return the peak memory of the case so far, on the host and on its device."""
    elsewhere = ask(step.host_memory)
    host = memory.read() if elsewhere is None else elsewhere
    return Memory(host, memory.since, ask(step.device_memory))
