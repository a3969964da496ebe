"""What runs around each call of a function, and is not timed."""

from __future__ import annotations

import asyncio
from typing import Any, Callable, List

import pytest

from ipubench.fixtures.runtimes import surrounded
from ipubench.fixtures.runtimes.call import CallStep
from ipubench.plugins.measure.served import why_unfit
from tests.support.own_project import OwnProject


class Work:
    """A setup of 3 s, a function of 1 s and a teardown of 4 s, on a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.seen: List[Any] = []
        monkeypatch.setattr(surrounded, "perf_counter", lambda: self.now)

    def setup(self) -> Any:
        self.now += 3
        self.seen.append("setup")
        return ([len(self.seen)], {"more": 5})

    def function(self, *args: Any, **named: Any) -> str:
        self.now += 1
        self.seen.append((args, named))
        return "done"

    async def coroutine(self, *args: Any, **named: Any) -> str:
        await asyncio.sleep(0)
        return self.function(*args, **named)

    async def slow_setup(self) -> Any:
        await asyncio.sleep(0)
        return self.setup()

    def teardown(self, *args: Any, **named: Any) -> None:
        self.now += 4
        self.seen.append(("teardown", args, named))


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_the_function_alone_is_timed(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    work = Work(monkeypatch)
    setup = work.setup if kind == "function" else work.slow_setup
    step = CallStep(getattr(work, kind), setup, work.teardown)
    step.build()
    step.batches_per_step = 2
    assert step.clock is not None
    step()
    step.close()
    assert (work.now, step.clock.read(), step.timed_share) == (16.0, 2.0, 0.125)
    assert step.result == "done"
    each = [["setup", ((n,), {"more": 5}), ("teardown", (n,), {"more": 5})] for n in (1, 4)]
    assert work.seen == [*each[0], *each[1]]
    assert why_unfit(step) == ""


def test_a_failed_call_is_torn_down(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(monkeypatch)

    def fail() -> None:
        raise ValueError

    with pytest.raises(ValueError):
        CallStep(fail, teardown=work.teardown)()
    assert work.seen == [("teardown", (), {})]


def test_what_calls_the_function_gets_neither_setup_nor_teardown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = Work(monkeypatch)
    step = CallStep(work.function, work.setup, work.teardown)
    counted: List[float] = []

    def each(call: Callable[[], Any]) -> Any:
        start = work.now
        result = call()
        counted.append(work.now - start)
        return result

    assert step.surrounded is not None
    step.surrounded.call_by(each)
    for _ in range(3):
        step()
    assert counted == [1.0] * 3 and step.result == "done"


TESTS = """
import time

CALLS = []


def setup():
    time.sleep(0.005)
    CALLS.append("setup")
    return [list(range(500, 0, -1))], {}


def work(numbers):
    CALLS.append("work")
    numbers.sort()
    return numbers[0]


def teardown(numbers):
    CALLS.append("teardown")
    assert numbers[0] == 1  # sorted once


def balanced():
    return CALLS == ["setup", "work", "teardown"] * (len(CALLS) // 3)


def test_meter(meter):
    meter(work, setup=setup, teardown=teardown, unit="sorts")
    assert balanced()


def test_pedantic(benchmark):
    assert benchmark.pedantic(work, setup=setup, teardown=teardown, rounds=3) == 1
    assert balanced()
"""


@pytest.mark.slow
def test_such_cases_are_measured_in_alternating_rounds(own: OwnProject) -> None:
    own.write(TESTS)
    own.commit("before")
    own.work.write_text(own.work.read_text() + "\n")
    words = ("--budget=0.3", "--target-precision=50%", "--gate-cap=3")
    own.run("tests", *words, "--against=git:HEAD", alone=True).assert_code(0)
    found = own.records()
    assert set(found) == {"test_meter", "test_pedantic"}
    record = found["test_meter"]["extra_info"]["ipubench"]
    assert not record["contention"].get("cpu_seconds")  # which is that of the setup as well
    assert record["throughput"]["median"] > 2 / 0.005  # with its setup a call takes longer
    pairs = [line for line in own.lines() if line["type"] == "pair"]
    assert {line["case"].split("::")[1] for line in pairs} == set(found)
    for pair in pairs:
        assert not any(pair["rounds"]["here"]["cpu_seconds"])
        seconds = [*pair["rounds"]["here"]["seconds"], *pair["rounds"]["there"]["seconds"]]
        per_call = pair["here"]["extra_info"]["ipubench"]["rounds"]["batches_per_step"]
        assert min(seconds) / per_call < 0.0025
