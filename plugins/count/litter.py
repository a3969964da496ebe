"""Objects that stay alive, so that later ones lie elsewhere in memory.

How many instructions an allocation takes depends on what is free. A loop that makes one integer at
a time takes up to 15% more if that integer is the last one that fits into its pool. So a case is
counted in several states of memory, which differ in their litter, and the least count is its own.
In most of them no pool fills or empties during a call, and the least is the same in each process.
"""

from __future__ import annotations

import ctypes
import mmap
import random
import sys
from itertools import repeat
from typing import Any, Callable, List, Tuple

#: Python's allocator of small objects has pools for each 16 bytes up to 512, in arenas.
STEP, LARGEST = 16, 512
LARGE_POOLS = sys.version_info >= (3, 10)
POOL, ARENA = (16 * 1024, 1 << 20) if LARGE_POOLS else (4 * 1024, 1 << 18)
HEADER = 48
#: The new pools of each size.
POOLS = 32
#: At most so many objects of the largest size fill the pools that are free.
MOST_ARENAS = 128
#: As many objects of each size fill holes.
FILLERS = 8
#: The bytes of an object of Python in addition to its content.
OF_BYTES = sys.getsizeof(b"")


class Litter:
    """Objects that live as long as this one; ``seed`` decides how many."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311  the same each time
        self._makers = [maker(size) for size in range(STEP, LARGEST + 1, STEP)]
        # No list is large: malloc would take memory for it between two arenas.
        self._kept: List[Any] = [memory_before_arenas()]
        # Fills the holes and the free pools that older objects have left.
        for _ in range(MOST_ARENAS):
            whole = objects(LARGEST, ARENA // LARGEST)
            self._kept.append(whole)
            places = [id(one) for one in whole]
            if max(places) - min(places) < 2 * ARENA:  # in new arenas, side by side
                break
        for size in range(STEP, LARGEST + 1, STEP):
            pools = [objects(size, capacity(size)) for _ in range(2 * POOLS)]
            # One object keeps each pool from being given back.
            self._kept += [pools[:POOLS], [pool[0] for pool in pools]]

    def add(self) -> None:
        """Keep more objects of each size, less than a pool has room for."""
        for size in range(STEP, LARGEST + 1, STEP):
            self._kept.append(objects(size, self._random.randrange(capacity(size))))

    def fill_holes(self) -> None:
        """Fill single holes in full pools, without leaving new ones."""
        for make, argument in FILLERS * self._makers:
            self._kept.append(make(argument))


def memory_before_arenas() -> Any:
    """Return memory that makes the next arena begin shortly before a multiple of its size.

    Python finds an object in fewer steps if it lies beyond such a multiple.
    """
    wanted = ARENA - POOL
    before: List[mmap.mmap] = []
    # valgrind gives memory from below, Linux from above.
    for direction in (1, -1, -1):
        missing = direction * (wanted - next_address()) % ARENA
        if not missing:
            break
        before.append(mmap.mmap(-1, ARENA + missing))  # less would fill an older gap
    return before


def next_address() -> int:
    """Return where the system would put an arena."""
    with mmap.mmap(-1, ARENA) as memory:
        return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def capacity(size: int) -> int:
    """Return how many objects of a size a pool has room for."""
    return (POOL - HEADER) // size


def objects(size: int, count: int) -> List[Any]:
    """Return new objects of this size."""
    make, argument = maker(size)
    return list(map(make, repeat(argument, count)))


def maker(size: int) -> Tuple[Callable[[Any], Any], Any]:
    """Return a function and its argument that make an object of this size."""
    if size == STEP:
        return (lambda _: object()), None
    if size == 2 * STEP:
        return int, "1000000"
    return bytes, size - OF_BYTES
