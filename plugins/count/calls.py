"""How many instructions a call of a case takes: the difference of N and of 2 N calls.

What counting itself costs is in both and cancels out. Every number here follows from counts, never
from a clock, so that two processes of equal code make the same calls.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Sequence

from ipubench.plugins.count.allocator import Room
from ipubench.plugins.count.counter import Counter, Functions

#: N calls have at least TARGET instructions, unless that takes more than MOST_CALLS.
TARGET = 5_000_000
MOST_CALLS = 10_000
#: Calls before the counts, which let Python's interpreter specialise the code; fewer if they would
#: have more instructions than this.
WARM_UP_CALLS = 20
WARM_UP_INSTRUCTIONS = 100_000_000
#: A case is not counted if its counts would take more CPU time.
MOST_SECONDS = 60.0
#: Calls in all: the first, a dropped one, N and 2 N, and one before each.
LEAST_RUNS = 7
#: Work of other threads or programs below this share does not matter.
LEAST_ELSEWHERE = 0.05
LEAST_ELSEWHERE_SECONDS = 0.01
#: The functions with the most instructions are kept.
MOST_FUNCTIONS = 60
TASKS = Path("/proc/self/task")


class Uncountable(Exception):
    """A case has no count; the message is the reason."""


@dataclass(frozen=True)
class Counted:
    """What one process counted: instructions a call."""

    per_call: float
    calls: int  # N
    functions: Functions = field(default_factory=dict)


def count_calls(
    counter: Counter,
    run: Callable[[int], Any],
    clock: Callable[[], float] = time.process_time,
    most_seconds: float = MOST_SECONDS,
) -> Counted:
    """Count the calls that ``run(N)`` makes. Raises Uncountable."""
    start = clock()
    run(1)  # what the first call prepares is not counted
    freeze_garbage()
    room = Room()
    with working_alone():
        counter.start()
        try:
            began = clock()
            first = counter.total(_count(counter, room, lambda: run(1)))
            _check_time(clock() - began, clock() - start, most_seconds)
            calls = max(1, min(MOST_CALLS, math.ceil(TARGET / max(1.0, first))))
            again = max(1, min(WARM_UP_CALLS, int(WARM_UP_INSTRUCTIONS / max(1.0, first))))
            run(max(calls, again))
            # Read afterwards: what reading leaves in memory would change the next count.
            once = _count(counter, room, lambda: run(calls), lambda: run(1))
            twice = _count(counter, room, lambda: run(2 * calls), lambda: run(1))
        finally:
            counter.stop()
    found = (counter.total(twice) - counter.total(once)) / calls
    functions = difference(counter.functions(once), counter.functions(twice), calls)
    return _checked(Counted(found, calls, functions))


def _count(
    counter: Counter,
    room: Room,
    run: Callable[[], Any],
    before: Callable[[], Any] = list,
) -> int:
    """Count a run that begins with no garbage and with room in the allocators.

    A collection then comes at the same call each time. What a call leaves to the next one, such as
    its result, lies in new pools after the call ``before`` it.
    """
    gc.collect()
    room.fill_holes()
    before()
    room.fill_holes()
    return counter.count(run)


class EachCall:
    """Counts calls one by one, which each have a set-up and a tear-down that are left out.

    Of those that are ``expected`` the last two are counted.
    """

    def __init__(self, counter: Counter, expected: int) -> None:
        self._counter = counter
        self._dropped = expected - 2
        self._found: List[float] = []
        self._functions: Functions = {}

    def __call__(self, function: Callable[[], Any]) -> Any:
        """Call a function, counting only the last calls; return its result."""
        if self._dropped > 0:
            self._dropped -= 1
            return function()
        result: List[Any] = []
        counter = self._counter
        freeze_garbage()
        room = Room()
        with working_alone():
            counter.start()
            try:
                empty, whole = (
                    _count(counter, room, run) for run in (list, lambda: result.append(function()))
                )
            finally:
                counter.stop()
        self._found.append(counter.total(whole) - counter.total(empty))
        self._functions = difference({}, counter.functions(whole), 1)
        return result[0]

    def counted(self) -> Counted:
        """Return the latest count. Raises Uncountable."""
        if not self._found:
            raise Uncountable("the test made no call")
        return _checked(Counted(self._found[-1], 1, self._functions))


def _checked(counted: Counted) -> Counted:
    if counted.per_call <= 0:
        raise Uncountable("a call takes no instructions of this process that can be told apart")
    return counted


def _check_time(first: float, spent: float, most: float) -> None:
    """Raise Uncountable if the counts would take too long."""
    expected = spent + LEAST_RUNS * first
    if expected > most:
        raise Uncountable(
            f"a call takes {first:.0f} s while it is counted, so a count would take "
            f"{expected:.0f} s, more than {most:.0f}"
        )


def freeze_garbage() -> None:
    """Collect garbage, and exclude all living objects from later collections.

    A collection during a call then looks only at what the calls have made, not at all of pytest.
    """
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def working_alone() -> Iterator[None]:
    """Raise Uncountable if several threads, or programs that this process starts, share the work.

    One other thread may do all of it, such as the only one of TensorFlow's pool.
    """
    threads, own, others = _seconds_of_threads(), time.process_time(), _seconds_of_children()
    yield
    own, others = time.process_time() - own, _seconds_of_children() - others
    now = _seconds_of_threads()
    worked = {name: now[name] - threads.get(name, 0.0) for name in now}
    reason = why_not_alone(own, others, list(worked.values()))
    if reason:
        raise Uncountable(reason)


def why_not_alone(own: float, children: float, threads: Sequence[float]) -> str:
    """Return why a count would miss part of the work, or ''.

    ``own``, ``children``, ``threads``: seconds of CPU time of this process, of the programs that it
    ran, and of each of its threads.
    """
    total = own + children
    if children > max(LEAST_ELSEWHERE * total, LEAST_ELSEWHERE_SECONDS):
        return "programs that it starts do a part of its work"
    beside = own - max(threads, default=own)
    if beside > max(LEAST_ELSEWHERE * own, LEAST_ELSEWHERE_SECONDS):
        return "several threads do its work, which they share differently each time"
    return ""


def _seconds_of_threads() -> Dict[str, float]:
    found = {}
    for path in TASKS.glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            found[path.parent.name] = int(path.read_text().split()[0]) / 1e9
    return found


def _seconds_of_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def difference(once: Functions, twice: Functions, calls: int) -> Functions:
    """Return the instructions a call of the functions that have the most of them."""
    found = {name: (value - once.get(name, 0.0)) / calls for name, value in twice.items()}
    largest = sorted(found.items(), key=lambda one: (-one[1], one[0]))[:MOST_FUNCTIONS]
    return {name: value for name, value in largest if value > 0}


def uses_a_gpu() -> bool:
    """Whether PyTorch has started a GPU in this process."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    return bool(cuda is not None and cuda.is_initialized())
