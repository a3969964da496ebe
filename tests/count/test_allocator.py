"""Before a count, Python's allocator has room in pools of our own."""

from __future__ import annotations

import platform
import sys

import pytest

from ipubench.plugins.count.allocator import (
    LARGEST,
    OF_BYTES,
    OF_CHUNK,
    POOL,
    POOLS,
    STEP,
    Pools,
    free_chunks,
    maker,
)

SIZES = range(STEP, LARGEST + 1, STEP)


@pytest.mark.parametrize("size", SIZES)
def test_objects_have_the_size_that_is_asked_for(size: int) -> None:
    made = sys.getsizeof(maker(size)())
    assert size - STEP < made <= size


@pytest.mark.skipif(
    not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="without a GIL there are no pools"
)
@pytest.mark.parametrize("size", [3 * STEP, 128, LARGEST])
def test_the_next_objects_are_in_new_pools_even_if_an_older_one_was_freed(size: int) -> None:
    make, older = maker(size), [maker(size)() for _ in range(5 * POOL // size)]
    pools = Pools(size)
    assert len(pools.new) >= POOLS
    del older[len(older) // 2]  # the only room in a full pool, which the allocator takes first
    pools.fill_holes()
    found = [make() for _ in range(10)]
    # The return of the call may free an object of the interpreter.
    assert sum(id(one) // POOL in pools.new for one in found) >= 9


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other libraries choose the place of an object freely"
)
def test_a_larger_object_is_in_a_chunk_that_was_made_free() -> None:
    between = free_chunks()
    made = bytes(2048 - OF_CHUNK - OF_BYTES)
    assert min(map(id, between)) < id(made) < max(map(id, between))
