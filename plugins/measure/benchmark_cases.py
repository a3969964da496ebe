"""Makes a case of each test that measures with pytest-benchmark's fixture ``benchmark``.

Our meter measures ``benchmark(function, ...)``: it calibrates, warms up and ends the rounds.
If the test or the command line has settings for that (``pedantic``, ``min_rounds``,
``--benchmark-warmup``), pytest-benchmark measures as usual, and the record contains its name. In
the pairs of a comparison our meter measures also those that only set how long.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Awaitable, Callable, Iterator

import pytest

from ipubench.fixtures.case.cases import Case, case_key
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.machine.frames import left_out
from ipubench.fixtures.runtimes.call import CallStep
from ipubench.plugins.command_line.arguments import benchmark_arguments
from ipubench.plugins.measure.base import CaseRun, StepMeter, state_of
from ipubench.plugins.measure.by_pytest_benchmark import AS_THE_TEST_SAYS, UNIT, begin, record
from ipubench.plugins.measure.call_meter import CallMeter
from ipubench.plugins.measure.choose import meter_of
from ipubench.plugins.measure.meter import Meter
from ipubench.plugins.record.pytest_benchmark_adapter import (
    Recorded,
    awaiting,
    count_as_used,
    make_recorded,
)
from ipubench.plugins.run.journal import start_late
from ipubench.plugins.selection.functions import asks_for, claim, make_case
from ipubench.plugins.selection.selected import case_of
from ipubench.plugins.state import run_of

__tracebackhide__ = left_out
#: Settings of pytest-benchmark for how long it measures. The pairs of a comparison decide that.
LENGTH = {"min_rounds", "min_time", "max_time", "calibration_precision"}
LENGTH |= {"warmup", "warmup_iterations"}


def become_case(item: pytest.Item) -> Case:
    """Return the case of a test; make one if the test has none."""
    found, run = case_of(item), run_of(item.config)
    if found is not None:
        return found
    claim(item, run.selection)
    made = make_case(item, run.selection)
    if run.role.measures:
        start_late(run)
        run.spent.begin_case()
        run.progress.add(item.nodeid, made.id)
    if made.error:
        raise CaseError(made.error)
    if made.lacks:
        lacking = ", ".join(sorted(made.lacks))
        raise CaseError(f"{item.nodeid} has no option {lacking}: leave it out of the command line")
    return made


def case_run_of(item: pytest.Item, case: Case, benchmark: Any, request: Any) -> CaseRun:
    """Return the run of a test's case on the session's device."""
    names = ("ipubench_device", "ipubench_conditions")
    device, conditions = map(request.getfixturevalue, names)
    return CaseRun(item, case, benchmark, device, conditions)


def measured(benchmark: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Yield the fixture for a test: pytest-benchmark's, or one that calls our meter."""
    item = request.node
    if not (benchmark.disabled or run_of(item.config).selection.own_tests):
        become_case(item)
    if case_key not in item.stash or asks_for(item, "meter") or benchmark.disabled:
        yield benchmark
        return
    try:
        case_run = case_run_of(item, item.stash[case_key], benchmark, request)
    except BaseException:  # no device; otherwise pytest-benchmark warns of an unused fixture
        count_as_used(benchmark)
        raise
    meter = meter_of(case_run, lambda: request.getfixturevalue("ipubench_peaks"))
    marker = item.get_closest_marker("benchmark")
    settings = set(marker.kwargs if marker else ()) - {"group"}
    options = benchmark_arguments(item.config)
    names = (one.partition("=")[0][len("--benchmark-") :] for one in options)
    given = settings | {name.replace("-", "_") for name in names}
    work, state = Measuring(meter, bool(given), given <= LENGTH), state_of(item)
    state.meter = meter
    wait = case_run.device.waiting()
    recorded = make_recorded(benchmark, work.measure, work.by_pytest_benchmark, wait)
    if isinstance(meter, CallMeter):
        recorded.most_calls = meter.most_calls
    try:
        yield recorded
    finally:
        meter.close()
        state.meter = None


@dataclass
class Measuring:
    """Measures the functions that a test passes to the fixture."""

    meter: StepMeter
    has_settings: bool  # the test or the command line sets how to measure
    only_length: bool  # and no more than how long, which a pair decides by itself

    def measure(self, benchmark: Recorded, function: Callable[[], Any]) -> Any:
        """Measure a function; return what its last call returned."""
        from ipubench.plugins.measure.served import ServedMeter

        ours = isinstance(self.meter, CallMeter)
        ours |= self.only_length and isinstance(self.meter, ServedMeter)
        if self.has_settings and not ours:
            in_loop = awaiting(benchmark, function)
            run = partial(benchmark.by_pytest_benchmark, in_loop or function)
            call = partial(self.by_pytest_benchmark, benchmark, run)
            return call() if in_loop is None else in_loop.run_in_thread(call)
        return self._by_meter(CallStep(function))

    def _by_meter(self, step: CallStep) -> Any:
        awaitable = self.meter(step, items=1, unit=UNIT)
        return step.result if awaitable is None else _result(awaitable, step)

    def by_pytest_benchmark(self, benchmark: Recorded, run: Callable[[], Any]) -> Any:
        """Measure and record by pytest-benchmark; return what ``run`` returns."""
        from ipubench.plugins.measure.served import ServedMeter

        if isinstance(self.meter, ServedMeter):
            if benchmark.repeatable is not None:
                return self._by_meter(benchmark.repeatable)
            self.meter.refuse(AS_THE_TEST_SAYS)
        if isinstance(self.meter, CallMeter):
            return self.meter.with_settings(benchmark, run)
        if not isinstance(self.meter, Meter):
            raise CaseError(
                f"{self.meter.item.nodeid}: {AS_THE_TEST_SAYS}, so it cannot be profiled; "
                "benchmark(function) without settings can"
            )
        watched = begin(self.meter.case_run)
        result = run()
        record(self.meter.case_run, watched)
        return result


async def _result(awaitable: Awaitable[None], step: CallStep) -> Any:
    await awaitable
    return step.result
