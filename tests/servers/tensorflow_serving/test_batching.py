"""How a server forms batches of requests: sizes, waiting, limits, and the parameters file."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.fixtures.servers.tensorflow_serving.batching import Batcher, Batching, Refused
from tests.support.tries import tries

LONG = 10**9  # microseconds: no batch runs because it is old


class Doubling:
    """The work: doubles each row. It records the batches, and waits while ``hold`` is clear."""

    def __init__(self) -> None:
        self.batches: List[Any] = []
        self.hold = threading.Event()
        self.hold.set()

    def __call__(self, tensors: Dict[str, Any]) -> Dict[str, Any]:
        self.hold.wait(30)
        self.batches.append(tensors["x"].copy())
        if (tensors["x"] < 0).any():
            raise ArithmeticError("negative")
        return {"y": tensors["x"] * 2}


def rows(first: int, count: int) -> Dict[str, Any]:
    return {"x": np.arange(first, first + count, dtype=np.int64).reshape(count, 1)}


def asked(batching: Batching, infer: Callable[[Batcher, Doubling], Any]) -> Doubling:
    """Run ``await infer(batcher, work)`` in an event loop; return the work."""
    work = Doubling()

    async def run() -> None:
        with ThreadPoolExecutor(batching.num_batch_threads) as threads:
            try:
                await asyncio.wait_for(infer(Batcher(work, batching, threads), work), 30)
            finally:
                work.hold.set()

    asyncio.run(run())
    return work


@tries(30)
@given(
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=30),
    threads=st.integers(1, 3),
    padded=st.booleans(),
)
def test_every_request_gets_its_own_rows(sizes: List[int], threads: int, padded: bool) -> None:
    batching = Batching(8, 100, num_batch_threads=threads, allowed_batch_sizes=(4, 8) * padded)
    firsts = np.cumsum([0, *sizes]).tolist()

    async def infer(batcher: Batcher, _: Doubling) -> None:
        parts = [rows(first, size) for first, size in zip(firsts, sizes)]
        answers = await asyncio.gather(*map(batcher, parts))
        for part, answer in zip(parts, answers):
            np.testing.assert_array_equal(answer["y"], 2 * part["x"])

    work = asked(batching, infer)
    assert all(len(batch) <= 8 for batch in work.batches)
    if padded:
        assert all(len(batch) in (4, 8) for batch in work.batches)
    else:
        assert sum(map(len, work.batches)) == sum(sizes)


def test_requests_wait_until_a_batch_is_full_and_no_longer() -> None:
    async def infer(batcher: Batcher, work: Doubling) -> None:
        first = [asyncio.ensure_future(batcher(rows(n, 2))) for n in (1, 3, 5)]
        await asyncio.sleep(0)
        assert work.batches == []
        await asyncio.gather(batcher(rows(7, 2)), *first)

    work = asked(Batching(8, LONG), infer)
    np.testing.assert_array_equal(work.batches[0].ravel(), range(1, 9))
    assert len(work.batches) == 1


def test_an_incomplete_batch_runs_after_its_timeout_padded_with_zeros() -> None:
    async def infer(batcher: Batcher, _: Doubling) -> None:
        answer = await batcher(rows(1, 3))
        assert answer["y"].ravel().tolist() == [2, 4, 6]

    work = asked(Batching(8, 1000, allowed_batch_sizes=(8,)), infer)
    assert work.batches[0].ravel().tolist() == [1, 2, 3, 0, 0, 0, 0, 0]


def test_a_batch_fills_further_while_all_threads_are_busy() -> None:
    async def infer(batcher: Batcher, work: Doubling) -> None:
        work.hold.clear()
        calls = [asyncio.ensure_future(batcher(rows(1, 8)))]
        await asyncio.sleep(0)  # it has the only thread
        calls.append(asyncio.ensure_future(batcher(rows(9, 2))))
        await asyncio.sleep(0)  # it would run at once
        calls.append(asyncio.ensure_future(batcher(rows(11, 2))))
        await asyncio.sleep(0)
        work.hold.set()
        await asyncio.gather(*calls)

    work = asked(Batching(8, 0, num_batch_threads=1), infer)
    assert [len(batch) for batch in work.batches] == [8, 4]


def test_requests_beyond_the_limits_are_refused() -> None:
    async def infer(batcher: Batcher, work: Doubling) -> None:
        work.hold.clear()
        taken = [asyncio.ensure_future(batcher(rows(n, 8))) for n in range(3)]
        await asyncio.sleep(0)  # one runs, two wait
        for size, status in ((9, "INVALID_ARGUMENT"), (1, "UNAVAILABLE")):
            with pytest.raises(Refused) as caught:
                await batcher(rows(0, size))
            assert caught.value.status == status
        work.hold.set()
        await asyncio.gather(*taken)
        await batcher(rows(0, 8))

    asked(Batching(8, LONG, max_enqueued_batches=2, num_batch_threads=1), infer)


def test_a_failure_affects_all_requests_of_its_batch_and_no_others() -> None:
    async def infer(batcher: Batcher, _: Doubling) -> None:
        found = await asyncio.gather(
            batcher(rows(-2, 2)), batcher(rows(0, 2)), return_exceptions=True
        )
        assert [type(error) for error in found] == [ArithmeticError] * 2
        answer = await batcher(rows(0, 4))
        assert answer["y"].ravel().tolist() == [0, 2, 4, 6]

    asked(Batching(4, LONG), infer)


def test_the_parameters_file_can_be_read_back() -> None:
    batching = Batching(32, 250, 7, 3, (8, 32))
    assert Batching.parse(batching.text()) == batching
