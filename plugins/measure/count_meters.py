"""The meters of `--count=instructions`.

One counts the instructions of a call, in a child of the process that counts
(plugins/count/process.py). The other makes one call without timing it, in a run that judges only
counts.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Callable

from msgspec.structs import replace

from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.runtimes.call import OWN, CallStep
from ipubench.fixtures.runtimes.step import Step, ask
from ipubench.fixtures.runtimes.surrounded import SurroundedCoroutine
from ipubench.plugins.count import launch
from ipubench.plugins.count.calls import (
    WARM_UP_CALLS,
    Counted,
    EachCall,
    Uncountable,
    count_calls,
    uses_a_gpu,
)
from ipubench.plugins.count.process import FOLDER_VARIABLE
from ipubench.plugins.count.ways import make
from ipubench.plugins.measure.base import (
    BatchFacts,
    Built,
    Calls,
    CaseRun,
    timed_by_another,
)
from ipubench.plugins.measure.by_pytest_benchmark import UNIT
from ipubench.plugins.measure.call_meter import CallMeter
from ipubench.plugins.measure.rounds import timed_call
from ipubench.plugins.record import host_process, pytest_benchmark_adapter
from ipubench.plugins.record.record import BY_COUNTS, ITSELF
from ipubench.plugins.record.statistics import latency, throughput
from ipubench.plugins.record.structs import Contention, CountedCase, Facts, Memory
from ipubench.plugins.results.lines import CountLine


class CountMeter(CallMeter):
    """Counts the instructions of a call; records nothing else."""

    most_calls = WARM_UP_CALLS + 1

    def __init__(self, case_run: CaseRun) -> None:
        super().__init__(case_run)
        run, way = case_run.run, options_of(self.config).counting
        if run.counter is None:
            assert way is not None
            run.counter = make(way, os.environ[FOLDER_VARIABLE])
        self._counter = run.counter

    def call(self, step: Step, facts: BatchFacts, built: Built) -> None:
        """Count the calls of a step."""

        def run(calls: int) -> None:
            if step.rounds.calibrated:
                step.batches_per_step = calls
                step()
                return
            for _ in range(calls):
                step()

        def count() -> Counted:
            if step.host_memory is not None:
                raise Uncountable("other processes do its work")
            if step.loading.prefetched:
                raise Uncountable("its input is loaded in the background")
            surrounded = step.surrounded if isinstance(step, CallStep) else None
            if surrounded is None:
                return count_calls(self._counter, run, self.case_run.run.child)
            if isinstance(surrounded, SurroundedCoroutine):
                raise Uncountable("it is a coroutine with a setup or a teardown")
            each = EachCall(self._counter, self.most_calls, self.case_run.run.child)
            surrounded.call_by(each)
            for _ in range(self.most_calls):
                step()
            return each.counted()

        self.phase("rounds", "counting")
        self._note(count)
        ask(step.finish)
        self.close()
        pytest_benchmark_adapter.leave_out(self.benchmark)

    def with_settings(self, benchmark: Any, run: Callable[[], Any]) -> Any:
        """Count the calls that pytest-benchmark makes."""
        benchmark.each = each = EachCall(self._counter, benchmark.calls, self.case_run.run.child)
        result = None

        def count() -> Counted:
            nonlocal result
            result = run()
            return each.counted()

        self._note(count)
        return result

    def _note(self, count: Callable[[], Counted]) -> None:
        """Write a count, or the reason why there is none, into the journal."""
        try:
            with pytest_benchmark_adapter.garbage_collection_as_set(self.benchmark) as without_gc:
                counted = count()
            if uses_a_gpu():
                raise Uncountable("it uses a GPU, whose instructions cannot be counted")
            found = CountedCase(
                counted.per_call,
                counted.calls,
                functions=counted.functions,
                multiplexed=self._counter.multiplexed(),
            )
        except Uncountable as error:
            found = CountedCase(uncountable=str(error))
        run = self.case_run.run
        how = {
            **self._counter.describe(),
            "addresses": os.environ.get(launch.VARIABLE, launch.RANDOM),
            "hash_seed": os.environ.get("PYTHONHASHSEED"),
            "threads": self.device.threads,
            "gc": "off" if without_gc else "on, what lived before is left out",
            "python": sys.version.split()[0],
        }
        run.add(CountLine(self.case_run.fullname, replace(found, how=how)))


class OnceMeter(CallMeter):
    """Makes one call, so that the test can check what it returns; its time does not count."""

    most_calls = 1

    def call(self, step: Step, facts: BatchFacts, built: Built) -> None:
        """Call the step once and write its record."""
        self.phase("rounds", "calling once")
        if step.rounds.calibrated:
            step.batches_per_step = 1
        seconds = timed_call(step, self.device.clock)
        ask(step.finish)
        effective, data = step.describe(), step.feed.describe()
        self.close()
        self._record(seconds, facts, effective, data, built)

    def with_settings(self, benchmark: Any, run: Callable[[], Any]) -> Any:
        """Let pytest-benchmark make one call."""
        seconds = 0.0

        def once(function: Callable[[], Any]) -> Any:
            nonlocal seconds
            start = self.device.clock()
            try:
                return function()
            finally:
                seconds = self.device.clock() - start

        benchmark.each = once
        result = run()
        own = {"precision": OWN, "measured_by": ITSELF}
        facts = BatchFacts(1.0, UNIT, None, False)
        self._record(seconds, facts, own, {"mode": OWN}, Built(0.0, 0.0, "none"))
        return result

    def _record(
        self, seconds: float, facts: BatchFacts, effective: Facts, data: Facts, built: Built
    ) -> None:
        """Record one call."""
        memory, seconds = host_process.PeakMemory(), max(seconds, 1e-9)
        pytest_benchmark_adapter.count_once(self.config, self.benchmark, seconds)
        found = timed_by_another(
            self.case_run.first_facts(),
            Calls(BY_COUNTS, 1, facts.unit),
            [seconds],
            latency([seconds], BY_COUNTS),
            Memory(memory.read(), memory.since, None),
            Contention(),
            effective=effective,
            compile=built.compile,
            canary_kind=self.device.canary_kind,
            data=data,
        )
        rates = throughput([seconds], facts.items, facts.unit)
        record = replace(
            found,
            build_seconds=built.build_seconds,
            compile_seconds=built.compile_seconds,
            items_per_round=facts.items,
            throughput=rates,
            throughput_mean=rates.mean,
        )
        self.case_run.finish(record, release=lambda: None)
