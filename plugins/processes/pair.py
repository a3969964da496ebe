"""Measures a case in two processes in turns, round by round: here and in another environment.

Both build and compile once, then wait for commands (plugins/measure/served.py executes them).
Only one of them works at a time. So a slow drift of the machine affects both equally.
"""

from __future__ import annotations

import contextlib
import math
import random
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, TypeVar

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.instances.controller import Instances
from ipubench.fixtures.instances.failures import InstanceError
from ipubench.fixtures.instances.plan import instances_of
from ipubench.fixtures.instances.protocol import ALTERNATING
from ipubench.fixtures.machine import scratch
from ipubench.fixtures.machine.contention import Contention
from ipubench.fixtures.machine.processor import allowed_cpus, running_on
from ipubench.fixtures.machine.state import copy_timer
from ipubench.fixtures.machine.watch import Watch
from ipubench.plugins.gate.rounds import LEAST_COMPARABLE, AdjacentRounds
from ipubench.plugins.processes import guarded_pytest
from ipubench.plugins.processes.place import Place
from ipubench.plugins.processes.remote_case import (
    RemoteCase,
    known_reason,
)
from ipubench.plugins.record.structs import Benchmark
from ipubench.plugins.selection.order import SERVERS
from ipubench.plugins.selection.selected import case_of

HERE, THERE = "the process here", "the process there"
#: Other threads may use this share of a call's CPU time, and it still computes in one thread.
MOST_OF_OTHERS = 0.05
#: A side that is more times faster shows it in short rounds too; with long ones the other side's
#: would take minutes.
MOST_TIMES = 4
OTHER_CHECKOUT = "modules of another checkout were imported"
Processes = TypeVar("Processes", bound="TwoProcesses")


class UnfitError(Exception):
    """The step of a case cannot take turns; the text is the reason."""


def why_not_alternating(item: pytest.Item, device: str, elsewhere: Place) -> str:
    """Return why a case cannot alternate round by round; '' if it can."""
    case = case_of(item)
    if elsewhere.alternating != ALTERNATING:
        return "the other environment has another version of alternating rounds"
    if not devices.of(device).in_process:
        return f"a device of the kind {device} serves one process at a time"
    if case is None or item.get_closest_marker("spec") is not None:
        return "it is a command"
    if instances_of(case.config) > 1:
        return "it has several instances"
    if set(SERVERS) & set(getattr(item, "fixturenames", ())):
        return "it has a server"
    return ""


@dataclass
class TwoProcesses:
    """A process here and one there, in turns. Methods raise InstanceError if one fails."""

    device: str
    progress: Callable[[str], None]
    processes: Mapping[str, Instances]
    #: The time limit of a command.
    most_seconds: float
    #: The share of a round that is timed: setup and teardown of a call are not.
    timed: float = 1.0
    #: The CPU of both processes for the case that is measured; None: all that they may use.
    cpu: Optional[int] = None
    #: The CPU seconds of the rounds.
    used: float = 0.0
    #: Those of threads other than the calling ones, and of processes that calls have started.
    by_others: float = 0.0

    def __enter__(self: Processes) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        """End both processes."""
        for process in self.processes.values():
            process.stop()

    def launch(self, here_first: bool) -> None:
        """Start both processes; return when both have connected."""
        self.progress("starting both processes")
        for name in names_in_order(here_first):
            self.processes[name].launch()
        for name in names_in_order(here_first):
            self.processes[name].wait_until_connected()

    def prepare(self, here_first: bool, is_long: bool = False) -> None:
        """Prepare the steps of both processes, one after the other.

        ``is_long``: a call is known to take longer than the budget, so none is wasted. Raises
        UnfitError if the step cannot take turns.
        """
        order = names_in_order(here_first)
        ready = {}
        for name in order:
            self.progress(f"preparing {name}")
            ready[name] = self.order(name, "prepare", is_long)
        unfit = next((one["unfit"] for one in ready.values() if one["unfit"]), "")
        if unfit:
            raise UnfitError(unfit)
        wanted = [int(one["batches"]) for one in ready.values()]
        batches = max(wanted) if max(wanted) <= MOST_TIMES * min(wanted) else min(wanted)
        self.timed = min(float(one.get("timed", 1)) for one in ready.values())
        self.cpu = self._one_cpu(all(one.get("alone") for one in ready.values()))
        for name in order:
            self.order(name, "warm_up", [batches, self.cpu])

    def _one_cpu(self, alone: bool) -> Optional[int]:
        """Return a CPU on which both take turns if both compute in one thread (``alone``).

        On a shared host each CPU has its own speed from moment to moment. Several threads would
        wait for each other on it, and hide that a change lets them.
        """
        if not alone or not devices.of(self.device).on_cpu:
            return None
        return random.choice(sorted(allowed_cpus()))  # noqa: S311 - no secret

    def measure(
        self,
        budget: float,
        precision: float,
        steps: Optional[int],
        first: bool = True,
        most: float = math.inf,
    ) -> AdjacentRounds:
        """Run rounds in turns until the stop rule is met; return all rounds.

        ``budget`` includes the untimed part of the rounds. ``first``: whether the process here runs
        the first round. A pair of rounds that takes ``most`` seconds is not repeated, and two that
        take the budget are all.
        """
        self.by_others = self.used = 0.0
        with running_on(None if self.cpu is None else {self.cpu}):
            return self._measure(budget * self.timed, precision, steps, first, most)

    @property
    def unfit(self) -> str:
        """Why the rounds cannot be compared, or ''."""
        several = self.cpu is not None and not computes_alone(self.by_others, self.used)
        return "its first calls compute in one thread, and later ones in several" if several else ""

    def _measure(
        self, budget: float, precision: float, steps: Optional[int], first: bool, most: float
    ) -> AdjacentRounds:
        rounds, watched = AdjacentRounds(), Contended.of(self.device)
        for here_first, limit in ((first, most), (not first, budget)):
            self._both(here_first, rounds, watched)
            if steps is None and rounds.seconds >= limit:
                watched.complete(rounds)
                rounds.stopped_by = "budget"
                return rounds
        while not rounds.stopped_by:
            # Two pairs of rounds, AB, BA or BA, AB, in random order: a periodic disturbance must
            # not always hit the same process.
            for here_first in random.sample((True, False), 2):
                self._both(here_first, rounds, watched)
            if rounds.looks(steps):
                watched.complete(rounds)
                rounds.stopped_by = rounds.stop_reason(budget, precision, steps)
        return rounds

    def _both(self, here_first: bool, rounds: AdjacentRounds, watched: Contended) -> None:
        for name in names_in_order(here_first):
            watched.read()
            seconds, used, waited, by_others = self.order(name, "round")
            self.used += used
            self.by_others += by_others
            side = rounds.here if name == HERE else rounds.there
            side.seconds.append(float(seconds))
            # With an untimed part of a round, they are those of both parts.
            side.cpu_seconds.append(used if self.timed == 1 else None)
            side.waited.append(waited if self.timed == 1 else None)
        rounds.here_first.append(here_first)

    def benchmarks(self, rounds: AdjacentRounds, here_first: bool) -> List[Benchmark]:
        """End the case; return the benchmarks of the process here and of the one there.

        Recording measures more, such as latency, so the processes record in the pair's order.
        """
        self.progress("recording")
        records: Dict[str, Benchmark] = {}
        for name in names_in_order(here_first):
            plain = self.order(name, "record", rounds.stopped_by)
            try:
                records[name] = Benchmark.of(plain)
            except ValueError as error:
                why = f"its record cannot be read: {error}"
                raise InstanceError(why, why, name) from None
            self.order(name, "close")
        found = [records[HERE], records[THERE]]
        rounds.items_here, rounds.items_there = (one.record.items_per_round for one in found)
        return found

    def end(self) -> None:
        """Let both processes end: only then it is known what they imported, and who failed."""
        for name, process in self.processes.items():
            if process.close() == guarded_pytest.USAGE_ERROR:
                raise InstanceError(OTHER_CHECKOUT, OTHER_CHECKOUT, name)

    def order(self, name: str, order: str, argument: Any = None) -> Any:
        """Send a command to one process; return its reply."""
        return self.processes[name].command(order, argument, self.most_seconds)[0]


def computes_alone(by_others: float, used: float) -> bool:
    """Return whether a thread computes alone: others take at most a small share of its CPU time."""
    return by_others <= MOST_OF_OTHERS * used


def why_failed(error: InstanceError) -> str:
    """Return why a process failed, in one line."""
    return error.said or known_reason(error.lines) or error.why


def names_in_order(here_first: bool) -> Tuple[str, str]:
    """Return the names of both processes; the first comes first."""
    return (HERE, THERE) if here_first else (THERE, HERE)


@contextlib.contextmanager
def both_started(
    here: RemoteCase,
    there: RemoteCase,
    here_first: bool,
    device: str,
    progress: Callable[[str], None],
) -> Iterator[TwoProcesses]:
    """Yield the processes of a pair; end both, with all that they started.

    Raises InstanceError if one fails.
    """
    with scratch.folder("pair") as folder:
        pair = {HERE: here.directed(HERE, folder), THERE: there.directed(THERE, folder)}
        with TwoProcesses(device, progress, pair, here.most_seconds) as processes:
            with running_on(here.ours.cpus):
                processes.launch(here_first)
            yield processes


class Contended(Watch):
    """The time that other programs took from each round, in the order of the rounds.

    This process reads it. It is the parent of both, so neither counts as another program. On a CPU
    it also watches the state of the machine.
    """

    @classmethod
    def of(cls, device: str) -> Contended:
        """Watch this machine for a kind of device."""
        # Both processes are pinned to these CPUs; those that start and end them are not.
        contention = Contention(cpus=frozenset(allowed_cpus()))
        kind = devices.of(device)
        counted = kind.real_time and contention.available
        return cls(contention if counted else None, copy_timer() if kind.on_cpu else None)

    def complete(self, rounds: AdjacentRounds) -> None:
        """Set, for all rounds so far, the share of time that others took."""
        self.read()  # after the latest round; the next round begins with another reading
        taken, copies = self.taken(), self.around()
        del self.copies[-1:]
        if self.contention is not None:
            del self.contention.readings[-1]
        for number, side in enumerate((rounds.here, rounds.there)):
            mine = [
                2 * k + (number if first else 1 - number)
                for k, first in enumerate(rounds.here_first)
            ]
            side.copies_ms = [round(copies[k], 4) for k in mine] if copies else []
            if taken:
                side.lost = [taken[k].lost for k in mine]
                side.by_others = [taken[k].by_others for k in mine]
            else:
                side.lost = side.by_others = side.cpu_seconds = side.waited = [None] * len(mine)


def steps_of(item: pytest.Item) -> Optional[int]:
    """Return the number of rounds from the command line, or None.

    It is at least the number that allows a comparison.
    """
    case: Optional[Case] = case_of(item)
    if case is None or "steps" not in case.overrides:
        return None
    return max(LEAST_COMPARABLE, int(case.config.steps))
