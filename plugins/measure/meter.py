"""The `meter` fixture: measure a step, record it at once, let the gate judge it.

    meter(step, items=config.batch_size, unit="images", flops=...)

Work is timed in this module and in plugins/measure/rounds.py, and nowhere else.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import pytest

from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.devices.base import Device
from ipubench.fixtures.runtimes.step import Step
from ipubench.plugins.compare.baseline_plugin import conclude
from ipubench.plugins.measure import looking_inside
from ipubench.plugins.measure.latency_and_input import describe_input, describe_latency
from ipubench.plugins.measure.peaks import Peaks
from ipubench.plugins.measure.rounds import (
    CANARIES_AROUND_BACKGROUND_WORK,
    Limits,
    Rounds,
    calibrate,
    canary_times,
    timed,
    warm_up,
)
from ipubench.plugins.processes.turns import turns_of
from ipubench.plugins.record import host_process, pytest_benchmark_adapter
from ipubench.plugins.record.record import NAMESPACE, Compute, describe_case, describe_throughput
from ipubench.plugins.run.conditions import describe_conditions
from ipubench.plugins.run.progress import Progress, progress_key
from ipubench.plugins.run.results import run_key
from ipubench.plugins.selection.expand import framework_of


class Meter:
    """Measures the step of one case."""

    def __init__(
        self,
        item: pytest.Item,
        case: Case,
        benchmark: Any,
        device: Device,
        conditions: Dict[str, Any],
        peaks: Peaks,
    ) -> None:
        self.item = item
        self.config = item.config
        self.case = case
        self.benchmark = benchmark
        self.device = device
        self.conditions = conditions
        self.peaks = peaks
        self.progress: Progress = item.config.stash[progress_key]
        self.turns = turns_of(item.config)
        self._step: Optional[Step] = None

    def close(self) -> None:
        """Close the step, once."""
        if self._step is not None:
            step, self._step = self._step, None
            step.close()

    def __call__(
        self,
        step: Step,
        *,
        items: float,
        unit: str,
        flops: Optional[float] = None,
        latency_from_throughput: bool = False,
    ) -> None:
        """Measure ``step``, which processes ``items`` of ``unit`` (a plural noun) per batch.

        ``flops``: floating-point operations per item, counted by the runtime where it is None.
        ``latency_from_throughput``: a batch's latency is items / throughput, as some of the
        original programs' tables have it, and is not measured by itself.
        """
        self._step = step
        items *= step.counted_processes
        option = self.config.option
        if option.profile is not None:
            self._profile(step)
            return
        if getattr(self.case.config, "compile_only", False):
            self._compile_only(step)
            return
        self.progress.phase("measuring the device's peak")
        self._ceilings(step, step.describe()["precision"])
        memory = host_process.PeakMemory()
        record = self._build(step)
        with self.turns.timing(stop=True):
            record.update(self._warm_up(step))
            seconds = self._rounds(step, record)
            if not seconds:  # --benchmark-disable: the step ran, nothing is to be recorded
                self.close()
                return
            per_round = items * step.batches_per_step
            record["items_per_round"] = per_round
            record["throughput"] = describe_throughput(seconds, per_round, unit)
            record["throughput_mean"] = record["throughput"]["mean"]
            record["latency"] = describe_latency(
                step,
                seconds,
                record.pop("warmed_up"),
                latency_from_throughput,
                self.device.clock,
                option.budget,
            )
            record["compute"], record["implausible"] = self._compute(
                step, flops, record["throughput"]["median"]
            )
            elsewhere = step.host_memory()
            record["memory"] = {
                "host_peak_rss_bytes": memory.read() if elsewhere is None else elsewhere,
                "since": memory.since,
                "device_peak_bytes": step.device_memory(),
            }
            record["counters"] = step.counters()
            self.progress.phase("finishing")
            facts = step.finish()
            if facts:
                record["finish"] = facts
                lines = [f"{self.case.id}: {line}" for line in step.summary(facts)]
                self.config.stash[run_key].closing += lines
            self.progress.phase("measuring what limits")
            record["input"] = describe_input(step, items, unit, self.device.clock)
            record["data"] = step.feed.describe()
            self.close()
        self._finish(record, step)

    def _profile(self, step: Step) -> None:
        """Leave a profile of one call, after one that warms up; time and record nothing."""
        root = self.config.option.profile
        folder = looking_inside.folder_of("--profile", root, self.case)
        with looking_inside.device_reports(self.device, folder):
            self.progress.phase("building")
            step.build()
            step.compile()
            self._save_graph(step)
            if step.calibrated:
                given = "batches_per_step" in self.case.overrides
                step.batches_per_step = self.case.config.batches_per_step if given else 1
            step()
            self.progress.phase("profiling")
            with self.turns.timing():
                step.profile(folder)
            self.close()
        pytest_benchmark_adapter.leave_out(self.benchmark)
        lines = self.config.stash[run_key].closing
        line = f"profiled and not timed; the reports are below {root}"
        if line not in lines:
            lines.append(line)

    def _compile_only(self, step: Step) -> None:
        """Build and compile; neither run nor record."""
        clock = self.device.clock
        self.progress.phase("building")
        build = timed(step.build, clock)
        self.progress.phase("compiling")
        seconds = timed(step.compile, clock)
        kept = self._kept(step, seconds)
        self._save_graph(step)
        self.close()
        pytest_benchmark_adapter.leave_out(self.benchmark)
        saved = kept.get("compile_saved_seconds")
        more = "" if saved is None else f" ({saved:.1f} s less than without its cache)"
        self.config.stash[run_key].closing.append(
            f"{self.case.id}: built in {build:.1f} s, compiled in {seconds:.1f} s{more}, not run"
        )

    def _kept(self, step: Step, seconds: float) -> Dict[str, Any]:
        """Return what a folder of compiled models did for this compilation."""
        cache = step.model_cache
        if cache is None:
            return {}
        saved = cache.note(seconds)
        return {"compile": "cached", "compile_saved_seconds": saved} if cache.hit else {}

    def _save_graph(self, step: Step) -> None:
        root = self.config.option.save_graph
        if root is not None:
            self.progress.phase("saving the graph")
            step.save_graph(looking_inside.folder_of("--save-graph", root, self.case))

    def _steps(self) -> Optional[int]:
        """Return the number of rounds where the user gave one."""
        return self.case.config.steps if "steps" in self.case.overrides else None

    def _build(self, step: Step) -> Dict[str, Any]:
        """Build and compile; return the first part of the record."""
        clock = self.device.clock
        self.progress.phase("building")
        build = timed(step.build, clock)
        self.progress.phase("compiling")
        with self.turns.stoppable(step.compiles_alone) as stood_still:
            start = clock()
            compiled = step.compile()
            compile_seconds = clock() - start - stood_still()
        kept = self._kept(step, compile_seconds)
        self._save_graph(step)
        return {
            "format": 1,
            **describe_case(self.case),
            "framework": framework_of(self.item),
            **describe_conditions(self.config, self.device, self.conditions),
            "effective": step.describe(),
            "build_seconds": build,
            "compile_seconds": compile_seconds,
            "compile": "fresh" if compiled else "reused",
            **kept,
        }

    def _warm_up(self, step: Step) -> Dict[str, Any]:
        """Calibrate and warm up; return what was timed and dropped, and the canaries so far."""
        clock = self.device.clock
        around = CANARIES_AROUND_BACKGROUND_WORK if step.prefetched_batches else 0
        canaries = canary_times(step.canary(), clock, around)
        self.progress.phase("warming up")
        given = "batches_per_step" in self.case.overrides
        calibrated = step.calibrated and not given
        if step.calibrated:  # an IPU's step knows its own
            step.batches_per_step = self.case.config.batches_per_step if given else step.burst
        first = timed(step, clock)
        if calibrated:
            calibrate(step, clock)
        return {
            "first_step_seconds": first,
            "dropped_seconds": warm_up(step, clock),
            "canaries": canaries,
        }

    def _rounds(self, step: Step, record: Dict[str, Any]) -> List[float]:
        """Return the seconds of the rounds; put how they came to be into the record."""
        option = self.config.option
        limits = Limits(option.budget, option.target_precision, self._steps(), step.most_rounds)
        rounds = Rounds(
            limits, self.device.clock, None if step.prefetched_batches else step.canary()
        )
        rounds.canaries += record.pop("canaries")
        record["warmed_up"] = len(step.latencies() or ())
        self.progress.phase(f"measuring ({limits.budget:g} s at most)")
        seconds = pytest_benchmark_adapter.run_rounds(
            self.benchmark,
            step,
            rounds.before_round,
            step.round_clock() or self.device.clock,
            dict(record["effective_options"]),
            step.batches_per_step,
        )
        record["rounds"] = {
            "count": len(seconds),
            "batches_per_step": step.batches_per_step,
            "stopped_by": rounds.stopped_by,
            "dropped_seconds": record.pop("dropped_seconds"),
        }
        record["canary"] = {
            "kind": self.device.canary_kind,
            "seconds": rounds.canaries,
            "when": "before the rounds" if step.prefetched_batches else "before each round",
        }
        return seconds

    def _ceilings(self, step: Step, precision: str) -> Dict[str, Optional[float]]:
        return {
            "flops": self.peaks.get(f"matmul {precision}", step.peak_work),
            "copy_bytes": self.peaks.get("copy", step.copy_work),
        }

    def _compute(self, step: Step, flops: Any, rate: float) -> Any:
        """Return (the compute part of the record, whether it is implausible)."""
        if flops is None:
            flops = step.flops_per_item()
        precision = step.describe()["precision"]
        ceilings = self._ceilings(step, precision)
        copy = ceilings["copy_bytes"]
        if flops is None:
            return {"copy_peak_bytes_per_s": copy}, False
        compute = Compute(flops, flops * rate, ceilings["flops"])
        if step.exact_flops and not compute.credible:
            name = f"matmul {precision}"
            compute.peak = self.peaks.get(name, step.peak_work, again=True)
        implausible = step.exact_flops and not compute.credible
        return {**compute.as_dict(), "copy_peak_bytes_per_s": copy}, implausible

    def _finish(self, record: Dict[str, Any], step: Step) -> None:
        """Write the record, then let plausibility and the gate judge it."""
        self.benchmark.extra_info[NAMESPACE] = record
        benchmark = pytest_benchmark_adapter.as_dict(self.benchmark)
        run = self.config.stash[run_key]
        run.add({"type": "case", "benchmark": benchmark})
        if record["implausible"]:
            compute = record["compute"]
            pytest.fail(
                f"{self.case.id} is implausible: {compute['achieved']:.3g} FLOP/s is "
                f"{compute['share']:.2f} times what a matrix product reaches on this device at "
                f"{record['effective']['precision']} ({compute['peak']:.3g} FLOP/s), so part of "
                f"the work was left out; the record is in {run.journal.path}",
                pytrace=False,
            )
        conclude(self.item, benchmark, step.release, self.progress.phase)
