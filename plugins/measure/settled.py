"""The meter of a case whose verdict is known before its test runs.

Pairs of processes have measured it. This process only calls its function once, untimed, so that the
test gets what the function returns.
"""

from __future__ import annotations

from typing import Any, Callable

from ipubench.fixtures.runtimes.call import CallStep
from ipubench.fixtures.runtimes.step import Step
from ipubench.plugins.measure.base import BatchFacts, Built, Measured, state_of
from ipubench.plugins.measure.call_meter import CallMeter
from ipubench.plugins.record import pytest_benchmark_adapter


class SettledMeter(CallMeter):
    """Calls a function once; builds no step of a framework."""

    most_calls = 1

    def work_on(self, step: Step, facts: BatchFacts) -> None:
        """Call a function; a step of a framework returns nothing that a test could check."""
        if isinstance(step, CallStep):
            self.phase("rounds", "calling once")
            step.call_once()
        self.close()
        self._note()

    def call(self, step: Step, facts: BatchFacts, built: Built) -> None:
        """Do nothing: ``work_on`` does all."""

    def with_settings(self, benchmark: Any, run: Callable[[], Any]) -> Any:
        """Let pytest-benchmark make one call."""
        benchmark.each = lambda function: function()
        result = run()
        self._note()
        return result

    def _note(self) -> None:
        """Add the measurement to the test's state and to pytest-benchmark's session."""
        case_run = self.case_run
        pytest_benchmark_adapter.forget(self.config, self.benchmark)
        run, state = case_run.run, state_of(case_run.item)
        found = run.results.benchmarks.get(case_run.fullname)
        if found is not None:
            pytest_benchmark_adapter.adopt(run.config, found)
            state.measured.append(Measured(found, lambda: None))
            state.recorded.append(case_run)
