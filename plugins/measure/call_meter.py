"""What the meters have in common that time nothing."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Callable

from ipubench.fixtures.runtimes.step import Step
from ipubench.plugins.measure.base import BatchFacts, Built, StepMeter


class CallMeter(StepMeter):
    """Makes calls without timing them, whatever pytest-benchmark's settings are."""

    #: The most calls for a test with its own settings for the number of calls.
    most_calls: int

    def work_on(self, step: Step, facts: BatchFacts) -> None:
        """Build and compile the step, call it, and close it."""
        self.phase("build", "building")
        self.call(step, facts, self.build(step))

    @abstractmethod
    def call(self, step: Step, facts: BatchFacts, built: Built) -> None:
        """Call the step, close it and write the result."""

    @abstractmethod
    def with_settings(self, benchmark: Any, run: Callable[[], Any]) -> Any:
        """Let pytest-benchmark call a function with its settings; return what ``run`` returns.

        ``benchmark.each`` makes each of the calls.
        """
