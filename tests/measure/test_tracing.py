"""Tracers of a test, such as coverage, are not measured with it."""

from __future__ import annotations

import cProfile
import sys
from types import SimpleNamespace
from typing import Any, List

import pytest

from ipubench.fixtures.runtimes.step import Step
from ipubench.plugins.measure.base import BatchFacts, StepMeter

#: A device that works during the call.
DEVICE = SimpleNamespace(waiting=lambda: None)


class CallingMeter(StepMeter):
    def work_on(self, step: Step, facts: BatchFacts) -> None:
        step.build()
        step()
        self.close()


@pytest.mark.parametrize("awaited", [False, True])
def test_a_tracer_sees_one_call_that_is_not_measured(awaited: bool) -> None:
    item = SimpleNamespace(config=None)
    case_run: Any = SimpleNamespace(item=item, case=None, benchmark=None, device=DEVICE)
    tracers: List[Any] = []

    def note() -> None:
        tracers.append(sys.gettrace())

    async def note_later() -> None:
        note()

    def tracer(*_: Any) -> None:
        pass

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        CallingMeter(case_run)(note_later if awaited else note)
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)
    assert tracers == [None, tracer]
    tracers.clear()
    sys.settrace(None)
    try:
        CallingMeter(case_run)(note)
    finally:
        sys.settrace(before)
    assert tracers == [None]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="cProfile is none of sys.getprofile there")
def test_a_profiler_of_the_whole_test_continues_after_the_measurement() -> None:
    """Like pytest-profiling's."""
    case_run: Any = SimpleNamespace(
        item=SimpleNamespace(config=None), case=None, benchmark=None, device=DEVICE
    )
    seen: List[Any] = []
    profiler, before = cProfile.Profile(), sys.getprofile()
    profiler.enable()
    try:
        CallingMeter(case_run)(lambda: seen.append(sys.getprofile()))
        after: Any = sys.getprofile()
        assert seen == [None, profiler] == [None, after]
    finally:
        profiler.disable()
        sys.setprofile(before)
