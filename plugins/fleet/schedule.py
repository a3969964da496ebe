"""Which host measures which case next: nothing here knows of connections or of time.

A case may be measured on some of the members (processes of hosts that take a device each). A free
member takes the case that fewest members can take, so that a host with 16 IPUs is not busy with
what any other could do; among equals the first. Members of one machine that share its processors
take turns.
"""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import Deque, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

#: Members that a case may cost before it is no longer handed out: it may be what ends them.
MOST_LOSSES = 2


@dataclass(frozen=True)
class Task:
    """A case to be measured once, on one of these members."""

    key: str
    members: FrozenSet[str]
    able: FrozenSet[str] = frozenset()  # all that could, where ``members`` only should


@dataclass
class _Bucket:
    """The waiting tasks that the same members can take."""

    members: FrozenSet[str]
    live: int
    tasks: Deque[Tuple[int, Task]]


class Schedule:
    """Hands tasks to members as these become free; what a lost member had goes to another."""

    def __init__(self, tasks: Sequence[Task], turns: Optional[Mapping[str, str]] = None) -> None:
        """``turns``: member -> machine, of members that share a machine's processors."""
        self._turns = dict(turns or {})
        self._there: Set[str] = set()
        self._busy: Set[str] = set()  # machines of which a member measures
        self._idle: Dict[str, None] = {}  # members that are there and do nothing, first come first
        self._running: Dict[str, Task] = {}
        self._waiting_for: Dict[str, Dict[str, None]] = collections.defaultdict(dict)
        self._position = {task.key: number for number, task in enumerate(tasks)}
        self._losses: Dict[str, int] = collections.defaultdict(int)
        self._buckets: Dict[FrozenSet[str], _Bucket] = {}
        self._of: Dict[str, List[_Bucket]] = collections.defaultdict(list)
        self.left = len(tasks)
        for number, task in enumerate(tasks):
            self._bucket(task.members).tasks.append((number, task))

    def _bucket(self, members: FrozenSet[str]) -> _Bucket:
        if members not in self._buckets:
            bucket = self._buckets[members] = _Bucket(members, 0, collections.deque())
            bucket.live = len(members & self._there)
            for member in members:
                self._of[member].append(bucket)
        return self._buckets[members]

    def join(self, member: str) -> None:
        """A member is there, for the first time or again."""
        self._there.add(member)
        self._idle[member] = None
        for bucket in self._of.get(member, ()):
            bucket.live += 1

    def leave(self, member: str, begun: bool = True) -> Tuple[Optional[Task], bool]:
        """A member is lost; return the task that it had, and whether that waits for another.

        A task that has cost MOST_LOSSES members waits for none; ``begun``: whether this one had
        begun with it.
        """
        if member not in self._there:
            return None, False
        self._there.remove(member)
        for bucket in self._of.get(member, ()):
            bucket.live -= 1
        self._idle.pop(member, None)
        task = self._running.pop(member, None)
        if task is None:
            return None, False
        self._give_way(member)
        self._losses[task.key] += int(begun)
        if self._losses[task.key] >= MOST_LOSSES:
            self.left -= 1
            return task, False
        entry = (self._position[task.key], task)
        self._buckets[task.members].tasks.appendleft(entry)
        self._wake(task.members)
        return task, True

    def done(self, member: str) -> Task:
        """A member has ended its task and is free."""
        task = self._running.pop(member)
        self.left -= 1
        self._give_way(member)
        self._idle[member] = None
        return task

    def assign(self) -> List[Tuple[str, Task]]:
        """Give each free member a task that it can take; return what was given to whom."""
        given = []
        for member in list(self._idle):
            machine = self._turns.get(member)
            del self._idle[member]
            if machine in self._busy:
                self._waiting_for[str(machine)][member] = None
                continue
            task = self._take(member)
            if task is None:
                continue  # until a task that it could take comes back
            self._running[member] = task
            if machine is not None:
                self._busy.add(machine)
            given.append((member, task))
        return given

    def _take(self, member: str) -> Optional[Task]:
        best: Optional[_Bucket] = None
        for bucket in self._of.get(member, ()):
            if not bucket.tasks:
                continue
            rank = (len(bucket.members), bucket.tasks[0][0])
            if best is None or rank < (len(best.members), best.tasks[0][0]):
                best = bucket
        return best.tasks.popleft()[1] if best is not None else None

    def _give_way(self, member: str) -> None:
        """Let the others of a machine have their turn."""
        machine = self._turns.get(member)
        if machine is not None:
            self._busy.discard(machine)
            self._wake(self._waiting_for.pop(machine, {}))

    def _wake(self, members: Iterable[str]) -> None:
        """Have members that found nothing, or waited for their turn, look again."""
        for member in members:
            if member in self._there and member not in self._running:
                self._idle[member] = None

    def stranded(self) -> List[Task]:
        """Return the waiting tasks that no member which is there can take."""
        return [
            task
            for bucket in self._buckets.values()
            if bucket.tasks and bucket.live == 0
            for _, task in bucket.tasks
        ]

    def widen(self, task: Task) -> None:
        """Let all members take a waiting task that could."""
        self.give_up(task)
        wider = Task(task.key, task.able, task.able)
        self._bucket(wider.members).tasks.append((self._position[task.key], wider))
        self._wake(wider.members)
        self.left += 1

    def give_up(self, task: Task) -> None:
        """Forget a waiting task."""
        bucket = self._buckets[task.members]
        bucket.tasks = collections.deque(entry for entry in bucket.tasks if entry[1] != task)
        self.left -= 1
