"""Measures cases in pairs of processes, one here and one there, whose rounds alternate if they can.

One pair of processes measures as many cases as possible. If a case ends a process, the next pair
measures the others.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Dict, Iterator, List, Optional, Sequence

from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.instances.failures import InstanceError
from ipubench.fixtures.instances.protocol import LEFT_OUT
from ipubench.plugins.compare.open_case import OpenCase
from ipubench.plugins.gate.pairs import pairs_left
from ipubench.plugins.gate.sides import Sides, here_is_next, pairs_of, seconds_wanted
from ipubench.plugins.processes.pair import (
    HERE,
    OTHER_CHECKOUT,
    THERE,
    TwoProcesses,
    UnfitError,
    both_started,
    names_in_order,
    steps_of,
    why_failed,
)
from ipubench.plugins.processes.place import THIS_PLACE, Place
from ipubench.plugins.processes.remote_case import (
    NO_SUCH_CASE,
    FreshError,
    RemoteCase,
    more_tests,
    tests_not_found,
)
from ipubench.plugins.record.record import THROUGHPUT
from ipubench.plugins.record.text import percent, rate_text
from ipubench.plugins.results.lines import CaseLine, PairLine
from ipubench.plugins.state import Run

#: Seconds of the rounds of a case in a pair, on both sides, until its variances are known.
FIRST_SECONDS, LEAST_SECONDS = 0.15, 0.1
#: A process chooses the length of its rounds as for a budget of this many seconds: short rounds are
#: many, so that a disturbed one hardly matters.
ROUNDS_FOR = 0.05
#: A command of a process may take as long as --gate-time leaves, but at least this long.
LEAST_LIMIT = 60.0
#: What starting two processes, and a case besides its rounds, take before the first pair.
START_SECONDS, CASE_SECONDS = 3.0, 1.0


class PairRunner:
    """Measures pairs, and adds them to the results of the run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._number = 0
        #: The seconds that a pair took to start, and those of a case in it.
        self._start, self._each = START_SECONDS, CASE_SECONDS
        #: Whether that pair had several cases.
        self._common = False

    @property
    def _there(self) -> Place:
        assert self._run.against is not None
        return self._run.against.environment

    def seconds(self, cases: Sequence[OpenCase]) -> float:
        """Return about how long the next pair of these cases takes."""
        return self._start + math.fsum(self._each + self._budget(case) for case in cases)

    def seconds_left(self, cases: Sequence[OpenCase]) -> float:
        """Return about how long it takes until these cases are decided."""
        left = {case: pairs_left(case.pairs, case.pair_rule) for case in cases}
        each = math.fsum((self._each + self._budget(case)) * left[case] for case in cases)
        return each + self._start * max(left.values(), default=0)

    def measure(self, cases: Sequence[OpenCase]) -> None:
        """Measure one pair of each case."""
        self._number += 1
        started = time.monotonic()
        firsts = [one.here_first for case in cases for one in case.pairs]
        usable = [one.here_first for case in cases for one in case.pairs if one.usable]
        here_first = here_is_next(usable, firsts)
        if cases[0].unfit:
            self._in_turns(cases[0], here_first)
        else:
            self._alternating(cases, here_first)
        seconds = time.monotonic() - started
        if len(cases) == 1:
            self._report(cases[0], seconds)
        if len(cases) > 1 or not self._common:
            # A pair of one case takes longer for it than one of many.
            rounds = math.fsum(self._budget(case) for case in cases)
            self._each = max(0.0, seconds - self._start - rounds) / len(cases)
            self._common = len(cases) > 1

    def _budget(self, case: OpenCase) -> float:
        """Return the seconds of rounds of a case in its next pair."""
        most = options_of(self._run.config).budget
        wanted = seconds_wanted(case.pairs, self._each)
        if case.unfit or not case.can_share:
            return most
        return min(most, FIRST_SECONDS if wanted is None else max(LEAST_SECONDS, wanted))

    # ----- one process after the other

    def _in_turns(self, case: OpenCase, here_first: bool) -> None:
        """Measure a case in a process here and in one there, one after the other."""
        found = {}
        for here in (here_first, not here_first):
            self._run.progress.phase(f"pair {len(case.pairs) + 1}, {'here' if here else 'there'}")
            process = RemoteCase(self._run, case.item.nodeid, THIS_PLACE if here else self._there)
            try:
                found[here] = process.measured(case.name)[case.name]
            except FreshError as error:
                case.fails(error)
                return
        self._add(case, Sides(found[True], found[False], here_first))

    # ----- round by round

    def _alternating(self, cases: Sequence[OpenCase], here_first: bool) -> None:
        """Measure cases in two processes whose rounds alternate."""
        todo = [case.name for case in cases]
        waiting = {case.name: case for case in cases}
        here, there = (self._process(place, cases) for place in (THIS_PLACE, self._there))
        device, phase = self._run.selection.device, self._run.progress.phase
        started = time.monotonic()
        found: Dict[str, Optional[Sides]] = {}
        try:
            with both_started(here, there, here_first, device, phase) as processes:
                # A call that hangs must not take longer than all cases may.
                left = max(LEAST_LIMIT, self._run.gate_time.left)
                processes.most_seconds = min(processes.most_seconds, left)
                for name in self._reached_by_both(processes, todo, here_first):
                    if not found:
                        self._start = time.monotonic() - started
                    found[name] = None
                    found[name] = self._measure(processes, waiting[name], here_first)
                processes.end()
                self._note_unmeasured(processes, cases, list(found))
        except InstanceError as error:
            self._failed(error, waiting, todo, found)
        finally:
            for name, sides in found.items():
                if sides is not None:
                    self._add(waiting[name], sides._replace(alone=len(cases) == 1))

    def _process(self, place: Place, cases: Sequence[OpenCase]) -> RemoteCase:
        """Return a process that measures cases on one side."""
        first, *others = [case.item.nodeid for case in cases]
        words = more_tests(self._run, place, others)
        together = all(case.can_share for case in cases)
        seconds = ROUNDS_FOR if together else options_of(self._run.config).budget
        return RemoteCase(self._run, first, place, [*words, f"{place.prefix}budget={seconds:g}s"])

    def _reached_by_both(
        self, processes: TwoProcesses, todo: List[str], here_first: bool
    ) -> Iterator[str]:
        """Yield the cases that both processes reach; drop from ``todo`` what they have passed.

        A process skips a case that the other one does not reach.
        """
        order = {name: number for number, name in enumerate(todo)}
        reached: Dict[str, str] = {}
        while todo:
            for side in names_in_order(here_first):
                if side not in reached:
                    try:
                        reached[side] = str(processes.order(side, "ready"))
                    except InstanceError as error:
                        if error.code != 0:
                            raise
                        return  # it skips or lacks the rest
            name = reached[HERE]
            if name == reached[THERE] and name in todo:
                del todo[: todo.index(name) + 1]
                yield name
                reached.clear()
                continue
            earlier = min(reached, key=lambda side: order.get(reached[side], -1))
            for side in list(reached) if name == reached[THERE] else [earlier]:
                processes.order(side, "close")
                del reached[side]

    def _measure(
        self, processes: TwoProcesses, case: OpenCase, here_first: bool
    ) -> Optional[Sides]:
        """Measure a case for which both processes are ready; None if it cannot alternate."""
        option = options_of(self._run.config)
        progress, shown = self._run.progress, case.shown
        progress.phase(f"pair {self._number}: {shown}")
        for process in processes.processes.values():
            process.waiting = partial(progress.waits, f"pair {self._number}: {shown}")
        try:
            known = [one.rounds for one in case.pairs if one.rounds is not None]
            processes.prepare(here_first, any(rounds.is_long for rounds in known))
        except UnfitError as error:
            case.unfit = str(error)
            for side in (HERE, THERE):
                processes.order(side, "close")
            return None
        budget, steps = self._budget(case), steps_of(case.item)
        precision, most = option.target_precision, option.budget
        rounds = processes.measure(budget, precision, steps, here_first, most)
        here, there = processes.benchmarks(rounds, here_first)
        case.unfit = processes.unfit
        return None if case.unfit else Sides(here, there, here_first, rounds)

    def _add(self, case: OpenCase, sides: Sides) -> None:
        """Add a pair to the results; the first one here is the record of the case."""
        if case.name not in self._run.results.benchmarks:
            self._run.add(CaseLine(sides.here))
        rounds = None if sides.rounds is None else sides.rounds.decided()
        self._run.add(
            PairLine(case.name, sides.here, sides.there, sides.here_first, rounds, sides.alone)
        )

    def _note_unmeasured(
        self, processes: TwoProcesses, cases: Sequence[OpenCase], measured: Sequence[str]
    ) -> None:
        """Note why a pair without an error has not measured some cases.

        One that is skipped here, or measures under other names, is left to its test.
        """
        here, there = (processes.processes[name].skipped for name in (HERE, THERE))
        for case in cases:
            why, ours = there.get(case.name, LEFT_OUT), here.get(case.name, LEFT_OUT)
            if case.name in measured:
                continue
            if LEFT_OUT in ours and LEFT_OUT not in why:
                case.fails(FreshError(why, f"its test is skipped: {why}", True))
            else:
                case.left = True

    def _failed(
        self,
        error: InstanceError,
        cases: Dict[str, OpenCase],
        todo: Sequence[str],
        found: Dict[str, Optional[Sides]],
    ) -> None:
        """Note which case has ended a process, or which cases the other side lacks.

        If a process has imported another checkout, its measurements are of no use, and any of its
        cases may be the cause: each is then measured alone.
        """
        elsewhere, why = error.name == THERE, why_failed(error)
        missing = tests_not_found(self._run, self._there, list(cases), error.lines)
        for name in missing:
            cases[name].fails(FreshError(str(error), NO_SUCH_CASE, elsewhere))
        if missing:
            return
        if why == OTHER_CHECKOUT:
            found.clear()
            if len(cases) > 1:
                for case in cases.values():
                    case.apart = True
                return
        latest = [name for name in cases if name not in todo][-1:] or list(cases)[:1]
        for name in [error.case] if error.case in cases else [*todo[:1], *latest][:1]:
            cases[name].fails(
                FreshError(f"{name} could not be measured in turns: {error}", why, elsewhere)
            )

    def _report(self, case: OpenCase, seconds: float) -> None:
        """Print a line on a pair of one case."""
        if not case.pairs:
            return
        sides = case.pairs[-1]
        here, there = sides.here.record.throughput, sides.there.record.throughput
        text = f"  {case.shown}: pair {len(case.pairs)}: "
        before, unit = rate_text(there.median), here.unit
        if sides.usable:
            # The change comes from adjacent rounds, so the medians may differ from it.
            (pair,) = pairs_of([sides], THROUGHPUT)
            change = percent(math.expm1(-pair.difference), sign=True)
            text += f"{before} {unit} there, {change} here"
        else:
            text += f"{before} -> {rate_text(here.median)} {unit}, disturbed"
        self._run.progress.line(f"{text} ({seconds:.0f} s)")
