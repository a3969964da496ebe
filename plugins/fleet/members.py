"""The members of a fleet: started together, lost one by one, and started once more."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from ipubench.fixtures.case.untrusted import printable
from ipubench.plugins.fleet.connection import Connection, Event, Place, Project
from ipubench.plugins.fleet.facts import HostFacts
from ipubench.plugins.fleet.hosts import FleetError, HostSpec
from ipubench.plugins.fleet.member import GONE

#: From the start of a process to what it has collected; the first imports of a host may be slow.
START_SECONDS = 300.0
#: Members hear so often that the controller is there.
PULSE_SECONDS = 10.0
#: Of all connections, to end.
CLOSE_SECONDS = 20.0
#: Hosts that are reached, or left, at a time.
AT_ONCE = 32
#: What members say while they start.
HELLO, COLLECTED, ENDED = "hello", "collected", "ended"
#: What is said of one that could not be started again.
LOST = "lost"


class Members:
    """The processes of all hosts, by name."""

    def __init__(self, hosts: Sequence[HostSpec], project: Project) -> None:
        self.places = {p.name: p for h in hosts for p in (Place(h, n) for n in range(h.devices))}
        self.facts: Dict[str, HostFacts] = {}
        self.nodeids: Dict[str, List[str]] = {}
        #: Those that are there or on their way back.
        self.there: Set[str] = set()
        #: Those that were lost and have not collected again, and since when.
        self._starting: Dict[str, float] = {}
        self._project = project
        self._events: queue.Queue[Event] = queue.Queue()
        self._connections: Dict[str, Connection] = {}
        self._at_once = threading.Semaphore(AT_ONCE)
        self._closed = threading.Event()

    def open(self) -> None:
        """Start all members, hosts side by side, until each has said what its host is.

        Raises FleetError, with all hosts that cannot be reached.
        """
        hosts: Dict[str, List[Place]] = {}
        for place in self.places.values():
            hosts.setdefault(place.host.name, []).append(place)
        threading.Thread(target=self._pulse, daemon=True).start()
        opening = {
            name: self._beside(partial(self._open, places)) for name, places in hosts.items()
        }
        wait(opening.values(), timeout=START_SECONDS)
        problems = []
        for name, one in opening.items():
            error = one.exception() if one.done() else _too_slow(name)
            problems += [str(error)] if error else []
        if problems:
            raise FleetError("; ".join(problems))
        self._start_until(self.facts)

    def _beside(self, work: Callable[[], None]) -> Future[None]:
        """Run something in a thread that the end of this process does not wait for."""
        future: Future[None] = Future()

        def run() -> None:
            with self._at_once:
                try:
                    work()
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(None)

        threading.Thread(target=run, daemon=True).start()
        return future

    def _pulse(self) -> None:
        """Tell all members now and then that we are there, whatever the main thread does."""
        while not self._closed.wait(PULSE_SECONDS):
            for connection in list(self._connections.values()):
                connection.send("there")

    def _open(self, places: Sequence[Place]) -> None:
        """Start the members of a host; the project is brought there once."""
        for number, place in enumerate(places):
            connection = Connection(place, self._project, self._events)
            self._connections[place.name] = connection
            connection.open(bring=number == 0)
            self.there.add(place.name)

    def wait_for_cases(self) -> None:
        """Wait until each member has collected; raises FleetError."""
        self._start_until(self.nodeids)

    def _start_until(self, said: Dict[str, Any]) -> None:
        until = time.monotonic() + START_SECONDS
        later = []
        while set(said) != set(self.places):
            event = self._next()
            if event is None:
                if time.monotonic() < until:
                    continue
                raise _too_slow(min(set(self.places) - set(said)))
            connection, name, values = event
            if connection.name in said:
                # It is ahead of others, and may have failed in what they have yet to begin.
                later.append(event)
                continue
            if name == ENDED:
                why = printable(values["why"] or "its session has ended")
                raise FleetError(f"{connection.name}: {why}")
            if name == GONE:
                raise FleetError(f"{connection.name}: {connection.why_gone()}")
            self._note(connection.name, name, values)
        for event in later:
            self._events.put(event)

    def _next(self) -> Optional[Event]:
        """Return what is said next, or None after a while."""
        try:
            return self._events.get(timeout=PULSE_SECONDS)
        except queue.Empty:
            return None

    def _note(self, name: str, what: str, values: Dict[str, Any]) -> None:
        if what == HELLO:
            self.facts[name] = HostFacts(**values["facts"])
        elif what == COLLECTED:
            self.nodeids[name] = values["nodeids"]
            self._starting.pop(name, None)

    def each_event(self) -> Iterator[Tuple[str, str, Dict[str, Any]]]:
        """Yield what members say, without what a process of one says after its loss."""
        while True:
            event = self._next()
            for name in self._too_late():
                yield name, LOST, {"why": str(_too_slow(name))}
            if event is None:
                continue
            connection, name, values = event
            current = self._connections[connection.name] is connection
            if not current or connection.name not in self.there:
                continue
            self._note(connection.name, name, values)
            if name == GONE:
                values = {"why": connection.why_gone()}
            yield connection.name, name, values

    def _too_late(self) -> List[str]:
        """Return the members that should have come back by now."""
        now = time.monotonic()
        return [name for name, at in self._starting.items() if now - at > START_SECONDS]

    def send(self, name: str, what: str, **values: Any) -> None:
        """Tell a member something."""
        self._connections[name].send(what, **values)

    def forget(self, name: str) -> None:
        """Leave a member that is lost for good."""
        self.there.discard(name)
        self._starting.pop(name, None)
        self._beside(self._connections[name].close)

    def open_again(self, name: str) -> None:
        """Try to start a lost member once more; it says hello and collects, or LOST is said."""
        before = self._connections[name]
        connection = Connection(self.places[name], self._project, self._events)
        self._connections[name] = connection
        self._starting[name] = time.monotonic()

        def start() -> None:
            try:
                before.close()
                connection.open(bring=True)
            except Exception as error:
                self._events.put((connection, LOST, {"why": str(error)}))

        self._beside(start)

    def finish(self, seconds: float) -> List[Tuple[str, Dict[str, Any]]]:
        """Have all members end; return what each says last, of those that do within the time."""
        waiting = self.there - set(self._starting)
        for name in waiting:
            self.send(name, "end")
        said = []
        until = time.monotonic() + seconds
        while waiting and time.monotonic() < until:
            with contextlib.suppress(queue.Empty):
                connection, name, values = self._events.get(timeout=1.0)
                if name in (ENDED, GONE, LOST):
                    waiting.discard(connection.name)
                else:
                    said.append((name, values))
        return said

    def close(self) -> None:
        """End all connections, and with them the processes; those that are on their way too."""
        self._closed.set()
        closing = [self._beside(one.close) for one in list(self._connections.values())]
        wait(closing, timeout=CLOSE_SECONDS)


def _too_slow(name: str) -> FleetError:
    return FleetError(f"{name}: its process has not started within {START_SECONDS:.0f} s")
