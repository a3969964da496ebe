"""How many instructions a call of a case takes: the least of several counts of N calls.

The counts differ in what else is alive (plugins/count/litter.py). What counting itself costs is
counted too, and is left out.
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
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

from ipubench.plugins.count.counter import Counter, Functions
from ipubench.plugins.count.litter import Litter

#: N calls have at least TARGET instructions, unless that takes more than MOST_CALLS.
TARGET = 3_000_000
MOST_CALLS = 8192
#: Calls before the counts, which let Python's interpreter specialise the code; fewer if they would
#: have more instructions than this.
WARM_UP_CALLS = 20
WARM_UP_INSTRUCTIONS = 100_000_000
#: A process counts a case this often. A case that takes long is counted LEAST_STATES times, or is
#: not counted if that would take more CPU time than MOST_SECONDS.
STATES, LEAST_STATES = 4, 2
MOST_SECONDS = 60.0
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
    seed: int = 0,
    clock: Callable[[], float] = time.process_time,
    most_seconds: float = MOST_SECONDS,
) -> Counted:
    """Count the calls that ``run(N)`` makes. Raises Uncountable."""
    start = clock()
    run(1)  # what the first call prepares is not counted
    freeze_garbage()
    litter = Litter(seed)
    with working_alone():
        counter.start()
        try:
            began = clock()
            first = counter.total(counter.count(lambda: run(1)))
            states = states_within(most_seconds - (clock() - start), clock() - began)
            calls = calls_of(first)
            run(max(calls, min(WARM_UP_CALLS, int(WARM_UP_INSTRUCTIONS / max(1.0, first)))))
            counts = [
                _count(counter, litter, lambda: run(calls), lambda: run(1)) for _ in range(states)
            ]
        finally:
            counter.stop()
    return _least(counter, counts, calls)


def calls_of(first: float) -> int:
    """Return N for a call that took so many instructions at first.

    A power of two: counts that differ a little lead to the same N.
    """
    wanted = max(1.0, min(MOST_CALLS, TARGET / max(1.0, first)))
    return 1 << math.ceil(math.log2(wanted))


#: The numbers of two counts: of nothing, and of the calls.
Pair = Tuple[int, int]


def _count(
    counter: Counter,
    litter: Litter,
    run: Callable[[], Any],
    before: Callable[[], Any] = list,
) -> Pair:
    """Count a run among new litter, with no garbage: a collection comes at the same call each time.

    The call ``before`` it fills Python's lists of free objects, which a collection has emptied.
    """
    litter.add()
    gc.collect()
    nothing = counter.count(list)
    before()
    litter.fill_holes()
    return nothing, counter.count(run)


def _least(counter: Counter, counts: Sequence[Pair], calls: int) -> Counted:
    """Return the least count. The files are read only now: reading changes the memory."""
    values = [counter.total(whole) - counter.total(nothing) for nothing, whole in counts]
    least = min(values) / calls
    if least <= 0:
        raise Uncountable("a call takes no instructions of this process that can be told apart")
    nothing, whole = map(counter.functions, counts[values.index(min(values))])
    return Counted(least, calls, difference(nothing, whole, calls))


class EachCall:
    """Counts calls one by one, which each have a set-up and a tear-down that are left out.

    Of those that are ``expected`` the last STATES are counted.
    """

    def __init__(self, counter: Counter, expected: int, seed: int = 0) -> None:
        self._counter = counter
        self._dropped = expected - STATES
        self._litter = Litter(seed)
        self._counts: List[Pair] = []

    def __call__(self, function: Callable[[], Any]) -> Any:
        """Call a function, counting only the last calls; return its result."""
        if self._dropped > 0:
            self._dropped -= 1
            return function()
        result: List[Any] = []
        freeze_garbage()
        with working_alone():
            self._counter.start()
            try:
                self._counts.append(
                    _count(self._counter, self._litter, lambda: result.append(function()))
                )
            finally:
                self._counter.stop()
        return result[0]

    def counted(self) -> Counted:
        """Return the least count. Raises Uncountable."""
        if not self._counts:
            raise Uncountable("the test made no call")
        return _least(self._counter, self._counts, 1)


def states_within(seconds: float, first: float) -> int:
    """Return how often a call of ``first`` seconds can be counted. Raises Uncountable."""
    possible = int((seconds - first) / (2 * first)) if first > 0 else STATES
    if possible < LEAST_STATES:
        raise Uncountable(
            f"a call takes {first:.0f} s while it is counted, so a count would take more than "
            f"{MOST_SECONDS:.0f} s"
        )
    return min(STATES, possible)


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


def difference(nothing: Functions, of_calls: Functions, calls: int) -> Functions:
    """Return the instructions a call of the functions that have the most of them."""
    found = {name: (value - nothing.get(name, 0.0)) / calls for name, value in of_calls.items()}
    largest = sorted(found.items(), key=lambda one: (-one[1], one[0]))[:MOST_FUNCTIONS]
    return {name: value for name, value in largest if value > 0}


def uses_a_gpu() -> bool:
    """Whether PyTorch has started a GPU in this process."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    return bool(cuda is not None and cuda.is_initialized())
