"""Measures the call of tests with ``@pytest.mark.benchmark`` that use no measuring fixture.

Their fixtures are set up once. If a test fails on a later call, its first call is the result. A
test with ``rounds=N`` is called N times.
"""

from __future__ import annotations

import contextlib
import functools
import time
from typing import Any, Callable, Iterator, Optional

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.runtimes.call import is_coroutine
from ipubench.fixtures.runtimes.surrounded import nothing
from ipubench.plugins.measure.base import CaseRun, state_of
from ipubench.plugins.measure.by_pytest_benchmark import begin, record
from ipubench.plugins.measure.meter import Meter
from ipubench.plugins.measure.watched import Watched
from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.state import run_of


@contextlib.contextmanager
def measured_function(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Replace the test function by one that measures it, until pytest has called it."""
    if pyfuncitem.nodeid not in run_of(pyfuncitem.config).selection.calls:
        yield
        return
    function = pyfuncitem.obj
    measured = _awaited if is_coroutine(function) else _called
    pyfuncitem.obj = functools.wraps(function)(measured(pyfuncitem, function))
    yield
    pyfuncitem.obj = function


def _called(item: pytest.Function, function: Callable[..., Any]) -> Callable[..., Any]:
    measure = _measure_of(item)

    def measured(**arguments: Any) -> None:
        call = functools.partial(function, **arguments)
        first = FirstCall.of(item)
        if first is None:
            measure(call)
            return
        with first.timed():
            call()
        with first.repeated():
            measure(call)

    return measured


def _awaited(item: pytest.Function, function: Callable[..., Any]) -> Callable[..., Any]:
    measure = _measure_of(item)

    async def measured(**arguments: Any) -> None:
        call = functools.partial(function, **arguments)
        first = FirstCall.of(item)
        if first is None:
            await measure(call)
            return
        with first.timed():
            await call()
        with first.repeated():
            await measure(call)

    return measured


def _measure_of(item: pytest.Function) -> Callable[[Any], Any]:
    benchmark: Any = item.funcargs["benchmark"]
    rounds = run_of(item.config).selection.calls[item.nodeid]
    measure: Callable[[Any], Any] = benchmark
    return measure if rounds is None else functools.partial(benchmark.pedantic, rounds=rounds)


class FirstCall:
    """The first call of a test: its result if a later call fails."""

    def __init__(self, case_run: CaseRun, watched: Watched) -> None:
        self._case_run, self._watched = case_run, watched
        self._seconds = 0.0

    @classmethod
    def of(cls, item: pytest.Function) -> Optional[FirstCall]:
        """Return a test's first call; None if its rounds are given, or nothing is recorded."""
        meter, rounds = state_of(item).meter, run_of(item.config).selection.calls[item.nodeid]
        if rounds is not None or not isinstance(meter, Meter):
            return None
        return cls(meter.case_run, begin(meter.case_run))

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Time the call."""
        wait = self._case_run.device.waiting() or nothing
        wait()
        start = time.perf_counter()
        yield
        wait()
        self._seconds = time.perf_counter() - start
        self._watched.end()

    @contextlib.contextmanager
    def repeated(self) -> Iterator[None]:
        """Record the first call if a later one fails."""
        try:
            yield
        except CaseError:
            raise
        except (Exception, pytest.fail.Exception) as error:
            case_run, run = self._case_run, self._case_run.run
            pytest_benchmark_adapter.count_once(run.config, case_run.benchmark, self._seconds)
            record(case_run, self._watched)
            why = next(iter(str(error).splitlines()), "") or type(error).__name__
            line = (
                f"{case_run.case.id}: measured by its first call, because a later one fails: {why}"
            )
            run.closing.append(line)
