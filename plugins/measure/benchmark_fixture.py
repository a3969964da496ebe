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
from ipubench.plugins.command_line.words import benchmark_arguments
from ipubench.plugins.measure.alternating import AlternatingMeter
from ipubench.plugins.measure.base import Calls, CaseRun, StepMeter, measured_by_another
from ipubench.plugins.measure.disturbance import Disturbance
from ipubench.plugins.measure.fixture import meter_of
from ipubench.plugins.measure.meter import Meter
from ipubench.plugins.record import host_process
from ipubench.plugins.record.pytest_benchmark_adapter import Recorded, becoming
from ipubench.plugins.record.statistics import latency
from ipubench.plugins.run.results import run_key
from ipubench.plugins.selection.functions import asks_for

#: Who measured, in a record's ``effective``.
ITSELF = "pytest-benchmark"
UNIT = "calls"


@pytest.fixture
def benchmark(benchmark: Any, request: pytest.FixtureRequest) -> Any:
    """pytest-benchmark's own; what a test measures with it is recorded as a case."""
    item = request.node
    if case_key not in item.stash or asks_for(item, "meter") or benchmark.disabled:
        yield benchmark
        return
    names = ("ipubench_device", "ipubench_conditions")
    device, conditions = map(request.getfixturevalue, names)
    case_run = CaseRun(item, item.stash[case_key], benchmark, device, conditions)
    meter = meter_of(case_run, lambda: request.getfixturevalue("ipubench_peaks"))
    marker = item.get_closest_marker("benchmark")
    settings = set(marker.kwargs if marker else ()) - {"group"}
    told = bool(settings or benchmark_arguments(item.config))
    work = Measuring(meter, told)
    try:
        yield becoming(benchmark, work.measure, work.itself)
    finally:
        meter.close()


@dataclass
class Measuring:
    """What the fixture does with a function."""

    meter: StepMeter
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
                f"{self.meter.item.nodeid}: pytest-benchmark measures it as the test says, and "
                "nothing else can be done with it; benchmark(function) without settings can be "
                "profiled"
            )
        self.meter.case_run.wait_for_quiet()
        memory, others = host_process.PeakMemory(), Disturbance.of(self.meter.device)
        self.meter.phase("rounds", "measuring as pytest-benchmark does")
        others.read()
        result = run()
        others.read()
        self.meter.phase("record", "recording")
        stats: Any = benchmark.stats
        calls, seconds = stats.iterations, [s * stats.iterations for s in stats.stats.data]
        if min(seconds) > 0:
            described = measured_by_another(
                seconds,
                Calls(ITSELF, calls, UNIT),
                {"source": ITSELF, **latency([s / calls for s in seconds])},
                memory.read(),
                memory.since,
            )
            contention = others.describe_whole(len(seconds))
            record = {**self._start(), **described, "contention": contention}
            self.meter.case_run.finish(record, release=lambda: None)
        else:
            why = "a round took no time by its timer, so it has no rate"
            closing = self.meter.config.stash[run_key].closing
            closing.append(f"{self.meter.case.id}: not recorded: {why}")
        return result

    def _start(self) -> Dict[str, Any]:
        """Return the part of the record that is known before the rounds."""
        return {
            **self.meter.case_run.first_facts(),
            "effective": {"precision": OWN, "measured_by": ITSELF},
            "compile": "none",
            "canary": {"kind": self.meter.device.canary_kind, "seconds": [], "when": "never"},
            "counters": {},
            "data": {"mode": OWN},
        }
