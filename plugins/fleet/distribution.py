"""The scheduler for pytest-xdist: each worker gets one case at a time.

A lost worker starts again on the same host. At most the case that it ran is lost; usually another
worker measures it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence

import pytest

from ipubench.fixtures.case.untrusted import printable
from ipubench.plugins.command_line.arguments import XDIST_KEY
from ipubench.plugins.fleet.schedule import Placing, Schedule
from ipubench.plugins.state import run_of

if TYPE_CHECKING:
    from ipubench.plugins.fleet.controller import Controller, Crew


def worker_of(node: Any) -> str:
    """Return our name for a worker of pytest-xdist."""
    return str(node.gateway.spec.worker)


class Distribution:
    """Gives cases to workers, and handles the loss of a worker."""

    def __init__(self, config: pytest.Config, crew: Crew, controller: Controller) -> None:
        self._config, self._crew, self._controller = config, crew, controller
        self.items: Sequence[pytest.Item] = ()  # the tests to run
        self._nodes: Dict[str, Any] = {}
        #: Worker -> node id of each test that it collected -> its index there.
        self._positions: Dict[str, Mapping[str, int]] = {}
        self._schedule: Optional[Schedule] = None
        self.lost_workers: Dict[str, str] = {}  # those that do not come back, and why
        self._fruitless: Dict[str, int] = {}  # a worker's losses since it last finished a case
        self._restarts = int(config.option.maxworkerrestart or -1)

    # The methods that pytest-xdist calls.

    @property
    def nodes(self) -> List[Any]:
        """Return the running workers."""
        return list(self._nodes.values())

    @property
    def collection_is_completed(self) -> bool:
        """Return whether all workers have collected."""
        return self._schedule is not None

    has_pending = False  # pytest-xdist reads it

    @property
    def tests_finished(self) -> bool:
        """Return whether every case has ended."""
        return self._schedule is not None and self._schedule.left == 0

    def add_node(self, node: Any) -> None:
        """Add a worker that has started."""
        self._nodes[worker_of(node)] = node

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """Note what a worker has collected; plan the run after the last one."""
        name = worker_of(node)
        before = self._positions.get(name, {})
        self._positions[name] = {nodeid: number for number, nodeid in enumerate(collection)}
        if before.keys() - self._positions[name].keys():
            self._drop(name, "it no longer has all cases that it had")
        elif self._schedule is not None:
            self._schedule.join(name)
        elif len(self._positions) == len(self._crew.names):
            self._plan()

    def schedule(self) -> None:
        """Give each free worker a case."""
        assert self._schedule is not None
        for name, task in self._schedule.assign():
            self._controller.begun(task.nodeid)
            with contextlib.suppress(OSError):  # pytest-xdist reports a lost worker separately
                self._nodes[name].send_runtest_some([self._positions[name][task.nodeid]])

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0.0) -> None:
        """Give a worker that has finished a case the next one."""
        assert self._schedule is not None
        self._schedule.done(worker_of(node))
        self._fruitless[worker_of(node)] = 0
        self.schedule()

    # Planning, and the loss of a worker.

    def _plan(self) -> None:
        baseline, crew = run_of(self._config).baseline, self._crew
        # Local workers all have the same fingerprint.
        entries = baseline.entries if baseline is not None and crew.facts else ()
        placing = Placing(self._positions, crew.devices, crew.facts, entries)
        self._schedule = Schedule(list(map(placing.task, self.items)), crew.names, crew.turns)
        for name in crew.names:
            self._schedule.join(name)
        self._fail_stranded("no host of the fleet has what it needs")

    def lost(self, node: Any, why: str, output: Optional[Dict[str, Any]]) -> bool:
        """Give a lost worker's case to another; return whether to start the worker again."""
        name, why = worker_of(node), printable(why, 1000)
        exited = (output or {}).get(XDIST_KEY, {}).get("exit")
        if self._schedule is None:
            if exited is not None:
                pytest.exit(exited["message"], exited["code"])
            raise pytest.UsageError(f"the worker {name} could not start: {why}")
        self._nodes.pop(name, None)
        task, waits = self._schedule.leave(name, self._crew.most_losses if exited is None else 0)
        progress = run_of(self._config).progress
        if task is not None and self._controller.has_ended(task.nodeid):
            if waits:
                self._schedule.waiting.remove(task)
        elif task is not None and waits:
            progress.line(f"  {task.nodeid}: {name} was lost ({why}); it is measured again")
            progress.forget(task.nodeid)
        elif task is not None:
            self._controller.failed(
                task.nodeid, f"worker {name!r} crashed while running {task.nodeid!r}: {why}"
            )
        fruitless = task is None or waits
        self._fruitless[name] = self._fruitless.get(name, 0) + 1 if fruitless else 0
        if exited is not None:  # it would end for the same reason
            self._drop(name, exited["message"], exited["code"])
        elif self._fruitless[name] > 1 or self._restarts == 0:
            self._drop(name, why)
        else:
            self._restarts -= 1
        self.schedule()
        # After the last case there is no work for it.
        return name in self._schedule.workers and self._schedule.left > 0

    def failed_to_start(self, node: Any, why: str) -> None:
        """Continue without a worker that could not be started again."""
        self._drop(worker_of(node), printable(why, 1000))
        self.schedule()

    def _drop(self, name: str, why: str, code: int = 0) -> None:
        """Continue without a worker; if it was the last one, end the run with its exit code."""
        assert self._schedule is not None
        self.lost_workers[name] = why
        self._schedule.workers.discard(name)
        run_of(self._config).progress.line(f"  {name} is lost: {why}")
        if not self._schedule.workers and code:
            pytest.exit(why, returncode=code)
        lost = ", ".join(sorted(set(self._crew.names) - self._schedule.workers))
        self._fail_stranded(f"no other host can measure it, and these were lost: {lost}")

    def _fail_stranded(self, why: str) -> None:
        """Fail the waiting cases that no remaining worker can measure."""
        assert self._schedule is not None
        for task in self._schedule.stranded():
            self._controller.failed(task.nodeid, why)
