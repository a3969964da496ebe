"""Gives Python's allocator of small objects, and the C library's malloc, room before each count.

They take a short way or a long one by what is free, which depends on all that the process did
before. A loop that makes one integer at a time takes up to 15% more instructions if that integer is
the last that fits into its pool, and products of small matrices 2% more where malloc has to search.
"""

from __future__ import annotations

import collections
import sys
from typing import Any, Callable, Dict, List, Set

#: The allocator's sizes: every 16 bytes up to 512.
STEP, LARGEST = 16, 512
POOL = 16 * 1024 if sys.version_info >= (3, 10) else 4 * 1024
HEADER = 48
#: The calls find so many pools of each size that are empty but for one object.
POOLS = 16
#: As many objects, or half of a pool, have room in the one that the calls find first.
ROOM = 16
#: A bound on the holes that are filled before a count, in ROOMs.
MOST_FILLED = 1000
#: Another allocator may have no pools; then as many objects change nothing.
MOST_OBJECTS = 100_000
#: malloc serves what is larger: so many chunks of each size up to the largest are made free.
SMALLEST_CHUNK, LARGEST_CHUNK, CHUNKS = 528, 16 * 1024, 4
#: What bytes, and a chunk, have beside their content.
OF_BYTES, OF_CHUNK = sys.getsizeof(b""), 8


class Pools:
    """The pools of one size: keeps their state until it is deleted."""

    def __init__(self, size: int) -> None:
        self._make = maker(size)
        capacity = (POOL - HEADER) // size
        #: Made once: a list that is made to fill holes would leave one behind.
        self._made: List[Any] = [None] * min(ROOM, capacity // 2)
        made: List[Any] = []
        new: Set[int] = set()
        while len(new) < POOLS and len(made) < MOST_OBJECTS:
            made += [self._make() for _ in range(POOLS * capacity)]
            found = collections.Counter(id(one) // POOL for one in made)
            new = {pool for pool, count in found.items() if count == capacity}
        #: Numbers of pools that are empty but for one object.
        self.new = new
        #: One object of each new pool, and all that fill the holes of the others.
        first: Dict[int, Any] = {}
        self._kept: List[Any] = []
        for one in made:
            pool = id(one) // POOL
            if pool not in new:
                self._kept.append(one)
            else:
                first.setdefault(pool, one)
        self._kept += first.values()

    def fill_holes(self) -> None:
        """Fill what was freed in other pools, so that the next objects are in a new one."""
        make, made, size = self._make, self._made, len(self._made)
        for _ in range(MOST_FILLED if self.new else 0):
            for number in range(size):
                made[number] = make()
            pool, others = id(made[0]) // POOL, 0
            for one in made:
                others += id(one) // POOL != pool
            if not others and pool in self.new:
                break
            self._kept += made
        for number in range(size):
            made[number] = None


class Room:
    """The same room in both allocators, while this lives."""

    def __init__(self) -> None:
        self._between = free_chunks()
        self._pools = [Pools(size) for size in range(STEP, LARGEST + 1, STEP)]

    def fill_holes(self) -> None:
        """Let the next objects of each small size be in a new pool."""
        for pools in self._pools:
            pools.fill_holes()


def free_chunks() -> List[bytes]:
    """Leave free chunks of malloc that cannot merge; return the objects between them.

    The next object of a larger size then is in such a chunk, and not in one that depends on what
    the process has freed before.
    """
    between, free = [], []
    for size in range(SMALLEST_CHUNK, LARGEST_CHUNK, STEP):
        for _ in range(CHUNKS):
            free.append(bytes(size - OF_CHUNK - OF_BYTES))
            between.append(bytes(SMALLEST_CHUNK))
    return between


def maker(size: int) -> Callable[[], Any]:
    """Return what makes objects of a size of the allocator."""
    if size == STEP:
        return object
    if size == 2 * STEP:
        return lambda: int("1000000")
    return lambda: bytes(size - OF_BYTES)
