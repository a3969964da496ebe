"""The one loop of all comparisons: obtains what cases need, until each has a verdict.

Each turn asks all open cases. A case has a verdict, or it needs measurements
(plugins/gate/decision.py). A runner obtains them, for as many cases as possible at once, and adds
them to the results; then the cases are asked again. The time limit is here, and nowhere else: if it
is too short for all verdicts, as many cases as it allows are measured first.
"""

from __future__ import annotations

import time
from typing import Dict, List, Mapping, Optional, Protocol, Sequence, Tuple, TypeVar

from ipubench.plugins.gate.decision import TIME_OVER, Decision, Need
from ipubench.plugins.run.gate_time import GateTime


class Case(Protocol):
    """A case that waits for its verdict."""

    @property
    def is_open(self) -> bool:
        """Whether it waits for a verdict."""

    @property
    def can_share(self) -> bool:
        """Whether other cases may run in the processes that measure it."""

    def decide(self) -> Optional[Decision]:
        """Keep and return the verdict, or return what it needs; None if nothing is compared."""

    def conclude(self, reasons: Sequence[str]) -> None:
        """Keep the verdict if nothing more can be measured, for these ``reasons``."""


AnyCase = TypeVar("AnyCase", bound=Case)


class Runner(Protocol[AnyCase]):
    """Measures cases, and adds the measurements to the results."""

    def seconds(self, cases: Sequence[AnyCase], need: Need) -> float:
        """Return about how long it takes to measure what these cases need next."""

    def seconds_left(self, cases: Sequence[AnyCase], need: Need) -> float:
        """Return about how long it takes until these cases are decided."""

    def obtain(self, cases: Sequence[AnyCase], need: Need) -> None:
        """Measure the cases once more."""

    def show(self, cases: Sequence[AnyCase], waiting: Mapping[AnyCase, Need], left: float) -> None:
        """Print how far the loop is, with ``left`` seconds of its time."""

    def stop(self, cases: Sequence[AnyCase], need: Need, left: float) -> None:
        """Print what these cases need, for which ``left`` seconds are too few."""


def settle(gate_time: GateTime, cases: Sequence[AnyCase], runner: Runner[AnyCase]) -> None:
    """Obtain measurements until each case has a verdict, has failed, or is out of time."""
    left = gate_time.share(len(cases))
    waiting = _needs(cases)
    while waiting:
        alike, need = _batch(waiting)
        batch = _in_time(alike, need, runner, left)
        if not batch:
            runner.stop(alike, need, left)
            for case in waiting:
                case.conclude([TIME_OVER])
            return
        started = time.monotonic()
        with gate_time.spending():
            runner.obtain(batch, need)
        left -= time.monotonic() - started
        waiting = _needs(list(waiting))
        runner.show(cases, waiting, left)


def _needs(cases: Sequence[AnyCase]) -> Dict[AnyCase, Need]:
    """Ask the open cases; return what they need."""
    asked = {case: case.decide() for case in cases if case.is_open}
    return {case: need for case, need in asked.items() if isinstance(need, Need)}


def _batch(waiting: Mapping[AnyCase, Need]) -> Tuple[List[AnyCase], Need]:
    """Return the cases to measure next, all with the same need.

    One that looks slower is confirmed first. Then come those that can share their processes.
    """
    suspect = next(((case, need) for case, need in waiting.items() if need.alone), None)
    if suspect is not None:
        return [suspect[0]], suspect[1]
    shared = {case: need for case, need in waiting.items() if case.can_share and not need.processes}
    first, need = next(iter((shared or waiting).items()))
    alike = [case for case, one in shared.items() if bool(one.counts) == bool(need.counts)]
    return alike or [first], need


def _in_time(
    cases: List[AnyCase], need: Need, runner: Runner[AnyCase], left: float
) -> List[AnyCase]:
    """Return as many of the cases as ``left`` seconds decide, or measure once more if they decide
    none. Those that are nearest to a verdict come first.
    """
    if runner.seconds_left(cases, need) <= left:
        return cases
    nearest = sorted(cases, key=lambda case: runner.seconds_left([case], need))
    for seconds in (runner.seconds_left, runner.seconds):
        low, high = 0, len(nearest)
        while low < high:
            middle = (low + high + 1) // 2
            fits = seconds(nearest[:middle], need) <= left
            low, high = (middle, high) if fits else (low, middle - 1)
        if low:
            return nearest[:low]
    return []
