"""Chooses which worker measures which case next, without connections or clocks.

A free worker takes the case that the fewest workers can measure, so that a host with 16 IPUs is not
busy with a case that any host can measure. Workers that share a device or a machine's processors
take turns.
"""

from __future__ import annotations

import collections
from dataclasses import dataclass, replace
from typing import (
    Container,
    Dict,
    FrozenSet,
    Iterable,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
)

import pytest

from ipubench.fixtures.instances.plan import instances_of
from ipubench.plugins.baseline.entries import key_of
from ipubench.plugins.fleet.facts import HostFacts
from ipubench.plugins.record.structs import Benchmark
from ipubench.plugins.selection.selected import case_of


@dataclass(frozen=True)
class Task:
    """A case to be measured once, by one of these workers."""

    nodeid: str
    workers: FrozenSet[str]
    able: FrozenSet[str] = frozenset()  # all that can; ``workers`` are preferred


class Schedule:
    """Gives tasks to free workers; the task of a lost worker goes to another."""

    def __init__(
        self,
        tasks: Sequence[Task],
        workers: Iterable[str],
        turns: Optional[Mapping[str, str]] = None,
    ) -> None:
        """``turns``: worker -> the resource that it shares with others."""
        self.workers: Set[str] = set(workers)  # those that are running or may come back
        self.waiting: List[Task] = list(tasks)
        self.running: Dict[str, Task] = {}
        self._turns = dict(turns or {})
        self._free: Dict[str, None] = {}  # first come first
        self._losses: Dict[str, int] = collections.defaultdict(int)

    @property
    def left(self) -> int:
        """The number of tasks that have not ended."""
        return len(self.waiting) + len(self.running)

    def join(self, worker: str) -> None:
        """Add a worker that has started, and is free."""
        self._free[worker] = None

    def done(self, worker: str) -> Task:
        """Free a worker that has ended its task; return the task."""
        self._free[worker] = None
        return self.running.pop(worker)

    def leave(self, worker: str, most_losses: int) -> Tuple[Optional[Task], bool]:
        """Remove a lost worker; return its task, and whether another worker will take that.

        ``most_losses``: a task that has cost this many workers is not repeated; 0: the task is not
        the cause.
        """
        self._free.pop(worker, None)
        task = self.running.pop(worker, None)
        if task is None:
            return None, False
        self._losses[task.nodeid] += bool(most_losses)
        waits = not most_losses or self._losses[task.nodeid] < most_losses
        if waits:
            self.waiting.insert(0, task)
        return task, waits

    def assign(self) -> List[Tuple[str, Task]]:
        """Give each free worker a task that it can measure; return the pairs."""
        given = []
        for worker in list(self._free):
            found = [task for task in self.waiting if worker in task.workers]
            turn = self._turns.get(worker)
            busy = turn is not None and turn in map(self._turns.get, self.running)
            if busy or not found:
                continue
            task = min(found, key=lambda task: len(task.workers))
            self.waiting.remove(task)
            self.running[worker] = task
            del self._free[worker]
            given.append((worker, task))
        return given

    def stranded(self) -> List[Task]:
        """Remove and return the waiting tasks that no remaining worker can measure.

        If only the preferred workers are lost, the task goes to any that can measure it.
        """
        lost = []
        for number, task in reversed(list(enumerate(self.waiting))):
            if task.workers & self.workers:
                continue
            if task.able & self.workers:
                self.waiting[number] = replace(task, workers=task.able)
            else:
                lost.append(self.waiting.pop(number))
        return lost[::-1]


class Placing:
    """Decides which workers can measure a case, and which of them are preferred."""

    def __init__(
        self,
        nodeids: Mapping[str, Container[str]],
        devices: Mapping[str, int],
        facts: Mapping[str, HostFacts],
        entries: Sequence[Benchmark],
    ) -> None:
        """``nodeids``: the tests that each worker collected. ``devices``: its number of devices.

        ``entries``: of the baseline.
        """
        self._nodeids, self._devices, self._facts = nodeids, devices, facts
        self._known: Dict[str, Set[str]] = collections.defaultdict(set)
        for entry in entries:
            self._known[entry.fullname].add(key_of(entry).fingerprint)

    def able(self, item: pytest.Item) -> List[str]:
        """Return the workers that collected a case and have enough devices for it."""
        case = case_of(item)
        needed = case.config.ipus * instances_of(case.config) if case is not None else 0
        return [
            name
            for name, found in self._nodeids.items()
            if item.nodeid in found and needed <= self._devices[name]
        ]

    def task(self, item: pytest.Item) -> Task:
        """Return the task of a case; workers on machines with a baseline entry are preferred."""
        able, known = self.able(item), self._known.get(item.nodeid, set())
        same = [name for name in able if known and self._facts[name].fingerprint in known]
        return Task(item.nodeid, frozenset(same or able), frozenset(able))


def sharing(facts: Mapping[str, HostFacts]) -> Dict[str, str]:
    """Return worker -> the device, or the machine's processors, that it shares with others."""
    shared: Dict[str, List[str]] = collections.defaultdict(list)
    for name, one in facts.items():
        if one.machine and one.leases:
            shared[f"{one.leases[0]} of {one.machine}"].append(name)
    return {name: what for what, names in shared.items() if len(names) > 1 for name in names}
