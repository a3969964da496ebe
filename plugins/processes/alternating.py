"""One case in two processes that take turns, round by round: here and in another environment.

Both build and compile once, then wait for orders (plugins/measure/alternating.py obeys); only one
of them works at any time. So the machine's drift of more than a fraction of a second is in both
sides' rounds alike.
"""

from __future__ import annotations

import contextlib
import random
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional, Tuple, TypeVar

import msgspec
import pytest

from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.instances.controller import Instances
from ipubench.fixtures.instances.failures import InstanceError
from ipubench.fixtures.instances.plan import alone, instances_of
from ipubench.fixtures.instances.protocol import ALTERNATING
from ipubench.fixtures.machine import scratch
from ipubench.fixtures.machine.contention import Contention
from ipubench.fixtures.machine.processor import allowed_cpus
from ipubench.fixtures.machine.state import copy_look
from ipubench.fixtures.machine.watch import Watch
from ipubench.plugins.gate.adjacent import LEAST_COMPARABLE, AdjacentRounds
from ipubench.plugins.processes import only_from
from ipubench.plugins.processes.fresh import (
    FreshError,
    cpus_key,
    folder_of,
    fresh_command,
    fresh_environment,
    known_reason,
    most_seconds,
    running_on,
)
from ipubench.plugins.processes.other_python import Environment
from ipubench.plugins.record.structs import Benchmark, Json
from ipubench.plugins.selection.order import SERVERS
from ipubench.plugins.selection.selected import case_of

#: Devices that two processes can hold at once, each ready to run.
SHARED_DEVICES = ("cpu", "fake")
HERE, THERE = "the process here", "the process there"
Processes = TypeVar("Processes", bound="TwoProcesses")


class UnfitError(Exception):
    """The step of a case cannot take turns; the text says why."""


def why_not_alternating(item: pytest.Item, device: str, elsewhere: Environment) -> str:
    """Return why a case is measured in whole processes in turns, in words; '' where it is not."""
    case = case_of(item)
    if sys.platform != "linux":
        return "what ends processes with this run needs Linux"
    if elsewhere.alternating != ALTERNATING:
        return "the other side does not know alternating rounds of this version"
    if device not in SHARED_DEVICES:
        return f"a device of the kind {device} serves one process at a time"
    if case is None or item.get_closest_marker("spec") is not None:
        return "it is a command"
    if instances_of(case.config) > 1:
        return "it has several instances"
    if set(SERVERS) & set(getattr(item, "fixturenames", ())):
        return "it has a server"
    return ""


@dataclass
class TwoProcesses(ABC):
    """Processes here and there that take turns. Use it in a ``with`` statement, which ends them."""

    device: str
    progress: Callable[[str], None]
    _sides: Dict[str, Instances] = field(default_factory=dict, init=False)

    def __enter__(self: Processes) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for side in self._sides.values():
            side.stop()

    def launch(self, here_first: bool) -> None:
        """Start both processes and return once both have introduced themselves."""
        self.progress("starting both sides")
        for name in _names(here_first):
            self._sides[name] = self._process(name)
            with self._blaming(name):
                self._sides[name].launch()
        for name in _names(here_first):
            with self._blaming(name):
                self._sides[name].meet()

    def prepare(self, here_first: bool) -> None:
        """Make both steps of a case ready; what is timed is never side by side.

        Raises UnfitError where the step cannot take turns.
        """
        order = _names(here_first)
        for name in order:
            self._order(name, "ready")
        ready = {}
        for name in order:
            self.progress(f"preparing {name}")
            ready[name] = self._order(name, "prepare")
        unfit = next((one["unfit"] for one in ready.values() if one["unfit"]), "")
        if unfit:
            raise UnfitError(unfit)
        batches = max(int(one["batches"]) for one in ready.values())
        for name in order:
            self._order(name, "warm_up", batches)

    def measure(self, budget: float, precision: float, steps: Optional[int]) -> AdjacentRounds:
        """Have both sides take turns until the rule ends it; return all rounds."""
        rounds, watched = AdjacentRounds(), Contended.of(self.device)
        while not rounds.stopped_by:
            # Two pairs of rounds, AB, BA or BA, AB. Seeded by nothing: a machine with a period of
            # its own must not meet ours twice.
            for here_first in random.sample((True, False), 2):
                self._both(here_first, rounds, watched)
            if rounds.looks(steps):
                watched.complete(rounds)
                rounds.stopped_by = rounds.stop_reason(budget, precision, steps)
        return rounds

    def _both(self, here_first: bool, rounds: AdjacentRounds, watched: Contended) -> None:
        for name in _names(here_first):
            watched.read()
            seconds = float(self._order(name, "round"))
            (rounds.here if name == HERE else rounds.there).seconds.append(seconds)
        rounds.here_first.append(here_first)

    def _order(self, name: str, order: str, argument: Any = None) -> Any:
        """Give one side an order; return its answer."""
        with self._blaming(name):
            return self._sides[name].order(order, argument, self._most_seconds())[0]

    @abstractmethod
    def _process(self, name: str) -> Instances:
        """Return the process of a side, not started yet."""

    @abstractmethod
    def _most_seconds(self) -> float:
        """Return how long one order may take."""

    @abstractmethod
    def _blaming(self, name: str) -> ContextManager[None]:
        """Return what says of an InstanceError which side it is of."""


def _names(here_first: bool) -> Tuple[str, str]:
    return (HERE, THERE) if here_first else (THERE, HERE)


@dataclass
class AlternatingProcesses(TwoProcesses):
    """The two processes of a pair of one case."""

    config: pytest.Config
    nodeid: str
    elsewhere: Environment
    _folder: Path = field(default=Path(), init=False)  # while it is used

    def __enter__(self) -> AlternatingProcesses:
        self._folder = scratch.make("pair")
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        scratch.remove(self._folder)

    def start(self, here_first: bool) -> None:
        """Start both processes and make their steps ready.

        Raises FreshError where one does not start, UnfitError where the step cannot take turns.
        """
        with running_on(self.config.stash[cpus_key]):
            self.launch(here_first)
        self.prepare(here_first)

    def benchmarks(self, rounds: AdjacentRounds, here_first: bool) -> List[Benchmark]:
        """End both processes; return the benchmark of the one here and of the one there.

        A record has figures that are measured for it, so the sides come in the pair's order.
        """
        self.progress("recording")
        records: Dict[str, Benchmark] = {}
        for name in _names(here_first):
            plain = self._order(name, "record", rounds.stopped_by)
            records[name] = self._benchmark(name, plain)
            self._order(name, "close")
            # What it has imported, and whether its test passed, is known at its end.
            with self._blaming(name):
                code = self._sides[name].close()
            if code == only_from.USAGE_ERROR:
                raise self._error(name, "modules of another checkout were imported", "")
        found = [records[HERE], records[THERE]]
        rounds.items_here, rounds.items_there = (float(one.record.items_per_round) for one in found)
        return found

    def _process(self, name: str) -> Instances:
        elsewhere = None if name == HERE else self.elsewhere
        results = str(self._folder / "results")
        side = name.split()[-1]
        cache = self._folder / f"cache-{side}"
        command = fresh_command(self.config, self.nodeid, results, cache, elsewhere)
        plan = alone(name, folder_of(self.config, elsewhere), fresh_environment(elsewhere))

        def program(address: str) -> List[str]:
            # Nothing is captured: all output belongs into the log.
            return [*command, "-s", f"--instance={address}"]

        return Instances(plan, program, self._folder / side)

    def _benchmark(self, name: str, plain: Json) -> Benchmark:
        try:
            return Benchmark.of(plain)
        except msgspec.ValidationError as error:
            raise self._error(name, f"its record cannot be read: {error}", "") from None

    def _most_seconds(self) -> float:
        return most_seconds(self.config, self.nodeid)

    @contextlib.contextmanager
    def _blaming(self, name: str) -> Iterator[None]:
        try:
            yield
        except InstanceError as error:
            raise self._error(name, error.why, str(error)) from None

    def _error(self, name: str, why: str, text: str) -> FreshError:
        """Return the error of a side, by what it said itself or else by the end of its log."""
        told = why.partition("): ")[2].partition("\n")[0]  # after its name and number
        said = known_reason([line.strip() for line in text.splitlines()[1:]])
        return FreshError(
            f"{self.nodeid} could not be measured in turns: {text or why}",
            told or said or why,
            name == THERE,
        )


class Contended(Watch):
    """What other programs took from each round, in the order in which they were run.

    This process reads it, of which both sides are descendants: neither is the other's neighbour. It
    also looks at the state of the machine, where the device is the CPU.
    """

    @classmethod
    def of(cls, device: str) -> Contended:
        """Watch this machine for a kind of device."""
        # Both sides are pinned as this process is; what starts and ends them is not.
        contention = Contention(cpus=frozenset(allowed_cpus()))
        # A fake device's time is not the machine's.
        counted = device != "fake" and contention.available
        return cls(contention if counted else None, copy_look() if device == "cpu" else None)

    def complete(self, rounds: AdjacentRounds) -> None:
        """Give all rounds so far the shares that others took of them."""
        self.read()  # after the latest round; what follows it begins with a reading of its own
        taken, used, copies = self.taken(), self.cpu_seconds(), self.around()
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
                side.waited = [taken[k].waited for k in mine]
                side.cpu_seconds = [used[k] for k in mine]
            else:
                side.lost = side.by_others = side.waited = side.cpu_seconds = [None] * len(mine)


def steps_of(item: pytest.Item) -> Optional[int]:
    """Return the rounds that were asked for on the command line, or None.

    They are at least as many as can say anything, half of them in each order.
    """
    case: Optional[Case] = case_of(item)
    if case is None or "steps" not in case.overrides:
        return None
    return max(LEAST_COMPARABLE, int(case.config.steps))
