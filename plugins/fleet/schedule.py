"""Which worker measures which case next: nothing here knows of connections or of time.

A free member (a worker, by name) takes the case that fewest members can take, so that a host with
16 IPUs is not busy with what any other could do; among equals the first. Members that share a
device or a machine's processors take turns.
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
from ipubench.plugins.record.record import named
from ipubench.plugins.record.structs import Benchmark
from ipubench.plugins.selection.selected import case_of


@dataclass(frozen=True)
class Task:
    """A case to be measured once, on one of these members."""

    key: str  # what the run calls it
    nodeid: str
    members: FrozenSet[str]
    able: FrozenSet[str] = frozenset()  # all that could, where ``members`` only should


class Schedule:
    """Hands tasks to members as these become free; what a lost member had goes to another."""

    def __init__(
        self,
        tasks: Sequence[Task],
        members: Iterable[str],
        turns: Optional[Mapping[str, str]] = None,
    ) -> None:
        """``turns``: member -> what it shares with another."""
        self.members: Set[str] = set(members)  # those that are there or may come back
        self.waiting: List[Task] = list(tasks)
        self.running: Dict[str, Task] = {}
        self._turns = dict(turns or {})
        self._free: Dict[str, None] = {}  # first come first
        self._losses: Dict[str, int] = collections.defaultdict(int)

    @property
    def left(self) -> int:
        """How many tasks have not ended."""
        return len(self.waiting) + len(self.running)

    def join(self, member: str) -> None:
        """A member is free, for the first time or again."""
        self._free[member] = None

    def done(self, member: str) -> Task:
        """A member has ended its task and is free."""
        self._free[member] = None
        return self.running.pop(member)

    def leave(self, member: str, most_losses: int) -> Tuple[Optional[Task], bool]:
        """A member is lost; return the task that it had, and whether that waits for another.

        A task may cost so many members; 0: it did not cost this one.
        """
        self._free.pop(member, None)
        task = self.running.pop(member, None)
        if task is None:
            return None, False
        self._losses[task.key] += bool(most_losses)
        waits = not most_losses or self._losses[task.key] < most_losses
        if waits:
            self.waiting.insert(0, task)
        return task, waits

    def assign(self) -> List[Tuple[str, Task]]:
        """Give each free member a task that it can take; return what was given to whom."""
        given = []
        for member in list(self._free):
            found = [task for task in self.waiting if member in task.members]
            turn = self._turns.get(member)
            busy = turn is not None and turn in map(self._turns.get, self.running)
            if busy or not found:
                continue
            task = min(found, key=lambda task: len(task.members))
            self.waiting.remove(task)
            self.running[member] = task
            del self._free[member]
            given.append((member, task))
        return given

    def stranded(self) -> List[Task]:
        """Take out the waiting tasks that no member can measure any more.

        One that another member should have measured, and that is gone, goes to any that can.
        """
        lost = []
        for number, task in reversed(list(enumerate(self.waiting))):
            if task.members & self.members:
                continue
            if task.able & self.members:
                self.waiting[number] = replace(task, members=task.able)
            else:
                lost.append(self.waiting.pop(number))
        return lost[::-1]


class Placing:
    """Decides which members can measure a case, and which of them should."""

    def __init__(
        self,
        nodeids: Mapping[str, Container[str]],
        devices: Mapping[str, int],
        facts: Mapping[str, HostFacts],
        entries: Sequence[Benchmark],
    ) -> None:
        """``nodeids``: what each member collected; ``devices``: how many a case may have there.

        ``entries``: of the baseline.
        """
        self._nodeids, self._devices, self._facts = nodeids, devices, facts
        self._known: Dict[str, Set[str]] = collections.defaultdict(set)
        for entry in entries:
            self._known[entry.fullname].add(key_of(entry).fingerprint)

    def able(self, item: pytest.Item) -> List[str]:
        """Return the members that collected a case and have enough devices for it."""
        case = case_of(item)
        needed = case.config.ipus * instances_of(case.config) if case is not None else 0
        return [
            name
            for name, found in self._nodeids.items()
            if item.nodeid in found and needed <= self._devices[name]
        ]

    def task(self, item: pytest.Item) -> List[Task]:
        """Return a case with its members: where the baseline has it of some machines, of these."""
        able, known = self.able(item), self._known.get(item.nodeid, set())
        same = [name for name in able if known and self._facts[name].fingerprint in known]
        return [Task(item.nodeid, item.nodeid, frozenset(same or able), frozenset(able))]

    def on_each(self, item: pytest.Item) -> List[Task]:
        """Return a case once for each member that can measure it."""
        able = self.able(item)
        return [Task(named(item.nodeid, one), item.nodeid, frozenset({one})) for one in able]


def sharing(facts: Mapping[str, HostFacts]) -> Dict[str, str]:
    """Return what each member shares with another one: a device, or a machine's processors."""
    shared: Dict[str, List[str]] = collections.defaultdict(list)
    for name, one in facts.items():
        if one.machine and one.leases:
            shared[f"{one.leases[0]} of {one.machine}"].append(name)
    return {name: what for what, names in shared.items() if len(names) > 1 for name in names}
