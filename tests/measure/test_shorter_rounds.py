"""Rounds that would take too long on this machine get fewer batches, which the record shows."""

from __future__ import annotations

from typing import Any, List, Optional
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.fixtures.data.feeds import ArrayFeed
from ipubench.fixtures.servers.request_step import LEAST_EACH, RequestStep
from ipubench.fixtures.servers.server_options import LoadOptions
from ipubench.plugins.record.differences import differences
from tests.support.harness import Project
from tests.support.stored import a_benchmark, changed


class Requests(RequestStep):
    """Requests without a server; only the clients are counted."""

    def __init__(self, clients: int, each: int, system: str = "host") -> None:
        runtime = Mock()
        feed = ArrayFeed("generated", ())
        super().__init__(runtime, LoadOptions(system=system), feed, clients * each)
        self.clients = [None] * clients  # type: ignore[assignment]

    def build(self) -> None: ...

    def compile(self) -> bool:
        return True

    def describe(self) -> Any:
        return {}


@given(st.integers(1, 64), st.integers(1, 500))
def test_every_client_has_the_same_number_of_requests(clients: int, each: int) -> None:
    assert Requests(clients=4, each=8).lengths() == [8, 16, 32]
    assert Requests(clients=4, each=8, system="ipu").lengths() == [32]
    lengths = Requests(clients, each).lengths()
    assert lengths[-1] == clients * each
    assert lengths == sorted(set(lengths))
    for length in lengths:
        left, rest = divmod(length, clients)
        assert not rest
        assert min(each, LEAST_EACH) <= left <= each


FIXED = ["-k", "beta-synthetic", "--set=requests=64", "--set=batch_seconds=0.1"]


@pytest.mark.parametrize(
    ("words", "batches"),
    [
        ([], 32),  # a first call of seven seconds with a budget of five
        (["--budget=60"], 64),
        (["--steps=3"], 64),
    ],
)
def test_a_round_is_a_modest_share_of_the_budget(
    project: Project, words: List[str], batches: int
) -> None:
    outcome = project.run(*FIXED, *words).assert_code(0)
    (record,) = project.records().values()
    assert record["rounds"]["batches_per_step"] == batches
    assert record["rounds"]["shortened"] == batches / 64
    assert record["throughput"]["median"] == pytest.approx(80)
    said = "a round has 50% of the configured work, because this machine is slow"
    assert (said in outcome.text) is (batches == 32)


@pytest.mark.parametrize(
    ("flops", "seconds", "words", "dropped"),
    [
        (8e9, 10, [], 0),  # 64 GFLOP per batch: 21 s at 0.3 of the peak
        (8e8, 10, [], 1),  # 2.1 s: the first call may have prepared something
        (1.5e9, 1.2, [], 2),  # 4 s, and it took less than half of the budget
        (8e9, 10, ["--budget=60"], 2),  # a batch is a small part of the warm-up
    ],
)
def test_a_first_call_with_much_work_is_the_whole_warm_up(
    project: Project, flops: float, seconds: float, words: List[str], dropped: int
) -> None:
    work = [f"--set=batch_seconds={seconds}", f"--set=flops={flops}", "--set=peak=1e10"]
    project.run("-k", "beta-synthetic", *work, *words).assert_code(0)
    (record,) = project.records().values()
    rounds = record["rounds"]
    assert rounds["batches_per_step"] == 1
    assert len(rounds["dropped_seconds"]) == dropped
    assert rounds["warm_up_ended_by"] == ("steady" if words or seconds < 2.5 else "budget")
    assert rounds["count"] >= 3


@pytest.mark.parametrize(("how", "comparable"), [("async", False), ("sync", True), (None, True)])
def test_concurrent_requests_are_compared_with_equally_many(
    how: Optional[str], comparable: bool
) -> None:
    one = a_benchmark([0.1], effective={"request_type": how})
    other = changed(one, {"record.rounds.shortened": 0.5})
    assert (differences(one.record, other.record) == []) is comparable
