"""pytest-benchmark's fixture ``benchmark``, whose measurements become cases of the run.

``benchmark(function, ...)`` is measured by our meter: it calibrates, warms up and ends the rounds.
Where the test or the command line says how (``pedantic``, ``min_rounds``, ``--benchmark-warmup``),
pytest-benchmark measures as it always does, and the record says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Dict

import pytest

from ipubench.fixtures.case.cases import case_key
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.runtimes.call import OWN, CallStep
from ipubench.plugins.measure.alternating import AlternatingMeter
from ipubench.plugins.measure.base import StepMeter, finish
from ipubench.plugins.measure.disturbance import Disturbance
from ipubench.plugins.measure.fixture import meter_of
from ipubench.plugins.measure.meter import Meter
from ipubench.plugins.record import host_process
from ipubench.plugins.record.pytest_benchmark_adapter import Recorded, becoming, words_of
from ipubench.plugins.record.record import describe_case, describe_throughput
from ipubench.plugins.record.statistics import latency
from ipubench.plugins.run.conditions import describe_conditions
from ipubench.plugins.run.results import run_key
from ipubench.plugins.selection.expand import framework_of

#: Who measured, in a record's ``effective``.
ITSELF = "pytest-benchmark"
UNIT = "calls"


@pytest.fixture
def benchmark(benchmark: Any, request: pytest.FixtureRequest) -> Any:
    """pytest-benchmark's own; what a test measures with it is recorded as a case."""
    item = request.node
    if case_key not in item.stash or "meter" in item.fixturenames or benchmark.disabled:
        yield benchmark
        return
    case, device = item.stash[case_key], request.getfixturevalue("device")
    conditions = request.getfixturevalue("conditions")
    meter = meter_of(
        item, case, benchmark, device, conditions, lambda: request.getfixturevalue("peaks")
    )
    marker = item.get_closest_marker("benchmark")
    told = bool(words_of(item.config)) or bool(set(marker.kwargs if marker else ()) - {"group"})
    work = Measuring(item, meter, conditions, told)
    try:
        yield becoming(benchmark, work.measure, work.itself)
    finally:
        meter.close()


@dataclass
class Measuring:
    """What the fixture does with a function."""

    item: pytest.Item
    meter: StepMeter
    conditions: Dict[str, Any]
    told: bool  # how to measure, by the test or the command line

    def measure(self, benchmark: Recorded, function: Callable[[], Any]) -> Any:
        """Measure a function; return what its last call returned."""
        if self.told:
            return self.itself(benchmark, partial(benchmark.by_itself, function))
        step = CallStep(function)
        self.meter(step, items=1, unit=UNIT)
        return step.result

    def itself(self, benchmark: Recorded, run: Callable[[], Any]) -> Any:
        """Have pytest-benchmark measure, and record what it found; return what ``run`` returns."""
        if isinstance(self.meter, AlternatingMeter):
            self.meter.refuse("pytest-benchmark measures it as the test says")
        if not isinstance(self.meter, Meter):
            raise CaseError(
                f"{self.item.nodeid}: pytest-benchmark measures it as the test says, and nothing "
                "else can be done with it; benchmark(function) without settings can be profiled"
            )
        device, config = self.meter.device, self.item.config
        memory, others = host_process.PeakMemory(), Disturbance.of(device)
        self.meter.phase("rounds", "measuring as pytest-benchmark does")
        others.read()
        result = run()
        others.read()
        self.meter.phase("record", "recording")
        stats: Any = benchmark.stats
        seconds, batches = [s * stats.iterations for s in stats.stats.data], stats.iterations
        if min(seconds) <= 0:
            why = "a round took no time by its timer, so it has no rate"
            config.stash[run_key].closing.append(f"{self.meter.case.id}: not recorded: {why}")
            return result
        throughput = describe_throughput(seconds, float(batches), UNIT)
        record = {
            "format": 1,
            **describe_case(self.meter.case),
            "framework": framework_of(self.item),
            **describe_conditions(config, device, self.conditions),
            "effective": {"precision": OWN, "measured_by": ITSELF},
            "build_seconds": 0.0,
            "compile_seconds": 0.0,
            "compile": "none",
            "first_step_seconds": seconds[0],
            "rounds": {
                "count": len(seconds),
                "batches_per_step": batches,
                "stopped_by": ITSELF,
                "dropped_seconds": [],
            },
            "canary": {"kind": device.canary_kind, "seconds": [], "when": "never"},
            "contention": others.describe_whole(len(seconds)),
            "items_per_round": float(batches),
            "throughput": throughput,
            "throughput_mean": throughput["mean"],
            "latency": {"source": ITSELF, **latency([s / batches for s in seconds])},
            "compute": None,
            "implausible": False,
            "memory": {
                "host_peak_rss_bytes": memory.read(),
                "since": memory.since,
                "device_peak_bytes": None,
            },
            "counters": {},
            "input": None,
            "data": {"mode": OWN},
        }
        finish(self.item, benchmark, record, release=lambda: None)
        return result
