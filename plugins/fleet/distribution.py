"""pytest-xdist's scheduler of a run: one case at a time for each worker, here or on a host.

A worker that is lost costs at most the case that it ran, which another may measure; it is started
again at the same place.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence

import pytest

from ipubench.fixtures.case.untrusted import printable
from ipubench.fixtures.command_line import options_of
from ipubench.plugins.command_line.words import PART
from ipubench.plugins.fleet.schedule import Placing, Schedule
from ipubench.plugins.state import run_of

if TYPE_CHECKING:
    from ipubench.plugins.fleet.controller import Controller, Crew


def member_of(node: Any) -> str:
    """Return the name of the place that a worker of pytest-xdist has."""
    return str(node.gateway.spec.member)


class Distribution:
    """Decides who measures what, and what follows from a lost worker."""

    def __init__(self, config: pytest.Config, crew: Crew, intake: Controller) -> None:
        self._config, self._crew, self._intake = config, crew, intake
        self.items: Sequence[pytest.Item] = ()  # what is to run
        self._nodes: Dict[str, Any] = {}
        #: Worker -> what it collected: node id -> its number there.
        self._positions: Dict[str, Mapping[str, int]] = {}
        self._schedule: Optional[Schedule] = None
        self.away: Dict[str, str] = {}  # workers that were lost for good, and why
        self._fruitless: Dict[str, int] = {}  # losses of a worker since it has ended a case
        self._restarts = int(config.option.maxworkerrestart or -1)

    # What pytest-xdist asks of a scheduler.

    @property
    def nodes(self) -> List[Any]:
        """Return the workers that are there."""
        return list(self._nodes.values())

    @property
    def collection_is_completed(self) -> bool:
        """Tell whether all workers have collected once."""
        return self._schedule is not None

    has_pending = False  # for one line of pytest-xdist

    @property
    def tests_finished(self) -> bool:
        """Tell whether every case has ended."""
        return self._schedule is not None and self._schedule.left == 0

    def add_node(self, node: Any) -> None:
        """Take a worker that has started."""
        self._nodes[member_of(node)] = node

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """Take what a worker has collected; once all have, decide who may measure what."""
        name = member_of(node)
        self._positions[name] = {nodeid: number for number, nodeid in enumerate(collection)}
        if self._schedule is not None:
            self._schedule.join(name)
        elif len(self._positions) == len(self._crew.names):
            self._plan()

    def schedule(self) -> None:
        """Give each free worker a case."""
        assert self._schedule is not None
        for name, task in self._schedule.assign():
            self._intake.begun(task.key)
            with contextlib.suppress(OSError):  # its loss is an event of its own
                self._nodes[name].send_runtest_some([self._positions[name][task.nodeid]])

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0.0) -> None:
        """Give a worker that is done the next case."""
        assert self._schedule is not None
        self._schedule.done(member_of(node))
        self._fruitless[member_of(node)] = 0
        self.schedule()

    # What follows from a lost worker.

    def _plan(self) -> None:
        baseline, crew = run_of(self._config).baseline, self._crew
        # Workers of this machine have the same fingerprint.
        entries = baseline.entries if baseline is not None and crew.facts else ()
        placing = Placing(self._positions, crew.devices, crew.facts, entries)
        each = placing.on_each if options_of(self._config).each_host else placing.task
        tasks = [task for item in self.items for task in each(item)]
        self._schedule = Schedule(tasks, crew.names, crew.turns)
        self._intake.planned(tasks)
        for name in crew.names:
            self._schedule.join(name)
        self._give_up("no host of the fleet has what it needs")

    def lost(self, node: Any, why: str, output: Optional[Dict[str, Any]]) -> bool:
        """Give a lost worker's case to another; return whether it is to be started again."""
        name, why = member_of(node), printable(why)
        said = (output or {}).get(PART, {}).get("exit")
        if self._schedule is None:
            if said is not None:
                pytest.exit(said["message"], said["code"])
            raise pytest.UsageError(f"the worker {name} could not start: {why}")
        self._nodes.pop(name, None)
        task, waits = self._schedule.leave(name, self._crew.most_losses if said is None else 0)
        progress = run_of(self._config).progress
        if task is not None and self._intake.has_ended(task.key):
            if waits:
                self._schedule.waiting.remove(task)
        elif task is not None and waits:
            progress.line(f"  {task.key}: {name} was lost ({why}); it is measured again")
            progress.forget(task.key)
        elif task is not None:
            self._intake.failed(
                task.key, f"worker {name!r} crashed while running {task.key!r}: {why}"
            )
        fruitless = task is None or waits
        self._fruitless[name] = self._fruitless.get(name, 0) + 1 if fruitless else 0
        if said is not None:  # it would say it again
            self._gone(name, said["message"], said["code"])
        elif self._fruitless[name] > 1 or self._restarts == 0:
            self._gone(name, why)
        else:
            self._restarts -= 1
        self.schedule()
        # One that crashed in the last case has nothing to come back for.
        return name in self._schedule.members and self._schedule.left > 0

    def failed_to_start(self, node: Any, why: str) -> None:
        """Go on without a worker that could not be started again."""
        self._gone(member_of(node), printable(why))
        self.schedule()

    def _gone(self, name: str, why: str, code: int = 0) -> None:
        """Go on without a worker; the last one's reason, with its exit code, is that of the run."""
        assert self._schedule is not None
        self.away[name] = why
        self._schedule.members.discard(name)
        run_of(self._config).progress.line(f"  {name} is lost: {why}")
        if not self._schedule.members and code:
            pytest.exit(why, returncode=code)
        away = ", ".join(sorted(set(self._crew.names) - self._schedule.members))
        self._give_up(f"no other host can measure it, and these were lost: {away}")

    def _give_up(self, why: str) -> None:
        """Fail the waiting cases that no worker can measure which is there or may come back."""
        assert self._schedule is not None
        for task in self._schedule.stranded():
            self._intake.failed(task.key, why)
