"""Brings Python's allocator of small objects, and malloc, into the same state before each count.

How many instructions an allocation takes depends on what is free, and so on everything that the
process did before. A loop that makes one integer at a time takes up to 15% more if that integer is
the last one that fits into its pool; products of small matrices take 2% more if malloc has to
search. Here the calls always find free memory of their size, which nothing else uses.
"""

from __future__ import annotations

import collections
import sys
from typing import Any, Callable, Dict, List, Set

#: The allocator's sizes: every 16 bytes up to 512.
STEP, LARGEST = 16, 512
POOL = 16 * 1024 if sys.version_info >= (3, 10) else 4 * 1024
HEADER = 48
#: The number of new pools of each size. One object keeps each from being given back.
POOLS = 16
#: The pool that the calls find first has room for at least this many objects, or half of a pool.
ROOM = 16
#: At most this many times ROOM objects fill holes.
MOST_FILLED = 1000
#: Without pools (another allocator), give up after this many objects.
MOST_OBJECTS = 100_000
#: malloc serves larger objects: this many chunks of each size become free.
SMALLEST_CHUNK, LARGEST_CHUNK, CHUNKS = 528, 16 * 1024, 4
#: The bytes of an object and of a chunk in addition to their content.
OF_BYTES, OF_CHUNK = sys.getsizeof(b""), 8


class Pools:
    """New pools for objects of one size, as long as this object lives."""

    def __init__(self, size: int) -> None:
        self._make = maker(size)
        capacity = (POOL - HEADER) // size
        #: Reused, because a new list would leave a hole when it is freed.
        self._made: List[Any] = [None] * min(ROOM, capacity // 2)
        made: List[Any] = []
        new: Set[int] = set()
        while len(new) < POOLS and len(made) < MOST_OBJECTS:
            made += [self._make() for _ in range(POOLS * capacity)]
            found = collections.Counter(id(one) // POOL for one in made)
            new = {pool for pool, count in found.items() if count == capacity}
        #: The numbers of the new pools.
        self.new = new
        #: One object of each new pool, and all objects in the holes of other pools.
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
        """Fill the holes of other pools, so that the next objects go into a new one."""
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
    """Free memory of each size in both allocators, as long as this object lives."""

    def __init__(self) -> None:
        self._between = free_chunks()
        self._pools = [Pools(size) for size in range(STEP, LARGEST + 1, STEP)]

    def fill_holes(self) -> None:
        """Make the next objects of each small size go into a new pool."""
        for pools in self._pools:
            pools.fill_holes()


def free_chunks() -> List[bytes]:
    """Free chunks of malloc that cannot merge; return the objects between them.

    The next larger object goes into such a chunk, not into memory that the process happens to have
    freed before.
    """
    between, free = [], []
    for size in range(SMALLEST_CHUNK, LARGEST_CHUNK, STEP):
        for _ in range(CHUNKS):
            free.append(bytes(size - OF_CHUNK - OF_BYTES))
            between.append(bytes(SMALLEST_CHUNK))
    return between


def maker(size: int) -> Callable[[], Any]:
    """Return a function that makes objects of this size."""
    if size == STEP:
        return object
    if size == 2 * STEP:
        return lambda: int("1000000")
    return lambda: bytes(size - OF_BYTES)
