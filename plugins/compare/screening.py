"""Screens the cases of `--against` before the first one, and so finds those that are clearly equal.

A few pairs of processes measure all cases, briefly and with alternating rounds. A case that passes
needs no processes of its own. Every other one is measured in pairs of its own, which alone can find
a regression: another case in the same process cannot be its cause.
"""

from __future__ import annotations

import contextlib
from typing import Dict, Iterator, List, Optional, Sequence

import pytest

from ipubench.fixtures.case.errors import counted
from ipubench.fixtures.command_line import change_options, options_of
from ipubench.fixtures.instances.failures import InstanceError
from ipubench.plugins.command_line.arguments import is_worker
from ipubench.plugins.compare.policy import compared_extra_info, thresholds_of
from ipubench.plugins.elsewhere.alternating import (
    HERE,
    THERE,
    TwoProcesses,
    UnfitError,
    both_started,
    names_in_order,
    steps_of,
    why_failed,
    why_not_alternating,
)
from ipubench.plugins.elsewhere.place import HERE as THIS_PLACE
from ipubench.plugins.elsewhere.place import Place
from ipubench.plugins.elsewhere.remote_case import RemoteCase, more_tests, tests_not_found
from ipubench.plugins.gate import paired
from ipubench.plugins.gate.metric_verdict import MetricVerdict
from ipubench.plugins.gate.paired import Passed, Sides
from ipubench.plugins.record.record import THROUGHPUT
from ipubench.plugins.record.verdict import PASS, UNJUDGED
from ipubench.plugins.selection.selected import case_of
from ipubench.plugins.state import Run

#: Seconds of the rounds of a case in a pair, on both sides together.
SECONDS = 0.15
#: The later pairs measure few cases, and a pair for one case takes much longer.
MOST_PAIRS = 10
#: Fewer cases would save nothing.
LEAST_CASES = 2
#: After as many pairs that a failing process has ended, the other cases are measured on their own.
MOST_BROKEN = 3


def screen_cases(run: Run, items: Sequence[pytest.Item]) -> None:
    """Measure the selected cases, and keep those that pass."""
    if run.against is None or is_worker(run.config) or run.config.getoption("dist", "no") != "no":
        return
    if run.counting is not None and run.counting.alone:
        return
    waiting = {item.nodeid: item for item in items if _is_fit(run, item)}
    if len(waiting) < LEAST_CASES:
        return
    what = counted(len(waiting), "case")
    run.progress.line(f"screening {what} in short pairs of processes that measure all of them")
    screening = Screening(run, run.against.environment, waiting)
    with run.spent.during("compare"):
        screening.measure()
    run.screened = screening.passed
    left = len(waiting) - len(run.screened)
    rest = f"; {counted(left, 'case')} in pairs of their own" if left else ""
    run.screening = (
        f"{len(run.screened)} of {what} passed in short pairs that measured all of them{rest}"
    )


def _is_fit(run: Run, item: pytest.Item) -> bool:
    """Return whether a case can take turns, and only its throughput is judged."""
    assert run.against is not None
    return (
        case_of(item) is not None
        and not why_not_alternating(item, run.selection.device, run.against.environment)
        and set(thresholds_of(run.policy, item)) <= {THROUGHPUT}
    )


@contextlib.contextmanager
def measured_briefly(run: Run, item: pytest.Item) -> Iterator[None]:
    """Shorten this process's own measurement of a case that has passed; it does not count."""
    budget = options_of(run.config).budget
    if item.nodeid in run.screened:
        change_options(run.config, budget=min(budget, SECONDS))
    yield
    change_options(run.config, budget=budget)


class Screening:
    """Measures cases in pairs of processes; each pair measures all that are not decided."""

    def __init__(self, run: Run, there: Place, waiting: Dict[str, pytest.Item]) -> None:
        self._run, self._there = run, there
        self._order = {name: number for number, name in enumerate(waiting)}
        #: The cases that need more pairs.
        self._waiting = dict(waiting)
        self._measured: Dict[str, List[Sides]] = {name: [] for name in waiting}
        self.passed: Dict[str, Passed] = {}

    def measure(self) -> None:
        """Measure pairs until each case has passed, or needs pairs of its own."""
        broken, time = 0, self._run.gate_time
        for number in range(MOST_PAIRS):
            if not self._waiting or broken == MOST_BROKEN or time.is_over:
                return
            with time.spending():
                broken += not self._pair(here_first=number % 2 == 0)
            for name in list(self._waiting):
                self._decide(name)
            self._run.progress.line(
                f"  pair {number + 1}: {len(self.passed)} of {len(self._order)} have passed "
                f"({time.latest:.0f} s)"
            )

    def _decide(self, name: str) -> None:
        """Look at the pairs of a case after the numbers of pairs at which the gate looks."""
        run, item = self._run, self._waiting[name]
        usable = [sides for sides in self._measured[name] if sides.usable]
        if len(usable) not in paired.looks(MOST_PAIRS):
            return
        if not paired.can_compare([sides.here_first for sides in usable]):
            return
        level = paired.level_of_a_look(MOST_PAIRS, len(self._order))
        found = paired.compare(usable, thresholds_of(run.policy, item), level)
        if all(map(has_passed, found)):
            self.passed[name] = Passed(usable, found)
        if all(map(paired.is_clear, found)):
            del self._waiting[name]

    def _pair(self, here_first: bool) -> bool:
        """Measure one pair of processes; return whether both ended well."""
        todo = list(self._waiting)
        measured: Dict[str, Sides] = {}
        here, there = (self._process(place, todo) for place in (THIS_PLACE, self._there))
        device, phase = self._run.selection.device, self._run.progress.phase
        try:
            with both_started(here, there, here_first, device, phase) as processes:
                for name in self._taken_together(processes, todo, here_first):
                    sides = self._sides(processes, name, here_first)
                    if sides is not None:
                        measured[name] = sides
                processes.end()
        except InstanceError as error:
            self._run.progress.line(f"  {error.name or 'a process'} failed: {why_failed(error)}")
            self._leave_out_failed(error, todo, measured)
            return False
        finally:
            for name, sides in measured.items():
                if name in self._waiting:
                    self._measured[name].append(sides)
        return True

    def _process(self, place: Place, names: Sequence[str]) -> RemoteCase:
        """Return a process that measures cases on one side."""
        first, *others = names
        words = more_tests(self._run, place, others)
        seconds = min(SECONDS, options_of(self._run.config).budget)
        return RemoteCase(self._run, first, place, [*words, f"{place.prefix}budget={seconds}s"])

    def _taken_together(
        self, processes: TwoProcesses, todo: List[str], here_first: bool
    ) -> Iterator[str]:
        """Yield the cases that both processes come to; drop from ``todo`` what they have passed.

        A process skips a case that the other one does not have.
        """
        reached: Dict[str, str] = {}
        while todo:
            for side in names_in_order(here_first):
                if side not in reached:
                    reached[side] = str(processes.order(side, "ready"))
            name = reached[HERE]
            if name == reached[THERE] and name in todo:
                del todo[: todo.index(name) + 1]
                yield name
                reached.clear()
                continue
            earlier = min(reached, key=lambda side: self._order.get(reached[side], -1))
            for side in list(reached) if name == reached[THERE] else [earlier]:
                processes.order(side, "close")
                del reached[side]

    def _sides(self, processes: TwoProcesses, name: str, here_first: bool) -> Optional[Sides]:
        """Measure a case for which both processes are ready; None if it cannot be compared."""
        option, item = options_of(self._run.config), self._waiting[name]
        try:
            processes.prepare(here_first)
        except UnfitError:
            for side in (HERE, THERE):
                processes.order(side, "close")
            del self._waiting[name]
            return None
        self._run.progress.phase(f"screening {name}")
        budget = min(SECONDS, option.budget)
        rounds = processes.measure(budget, option.target_precision, steps_of(item))
        here, there = processes.benchmarks(rounds, here_first)
        if paired.incomparable(here, there, compared_extra_info(self._run.policy)):
            del self._waiting[name]
            return None
        return Sides(here, there, here_first, rounds)

    def _leave_out_failed(
        self, error: InstanceError, todo: Sequence[str], measured: Dict[str, Sides]
    ) -> None:
        """Leave out the cases that may have ended a process: the latest, and the next one.

        If nothing was measured because the other side lacks some tests, these are left out.
        """
        unknown = tests_not_found(self._run, self._there, todo, error.lines)
        for name in unknown or [*list(measured)[-1:], *todo[:1]]:
            self._waiting.pop(name, None)


def has_passed(found: MetricVerdict) -> bool:
    """Return whether a case needs no pairs of its own.

    Without a threshold: it changed by less than the precision that is shown.
    """
    if found.kind != UNJUDGED:
        return found.kind == PASS
    return paired.precise(found.effect) and abs(found.effect.change) <= paired.SHOWN_PRECISION
