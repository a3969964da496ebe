"""The alternating process: its reply to each order, and when it is quiet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, List, Optional, Tuple

import pytest

from ipubench.fixtures.data.feeds import ArrayFeed
from ipubench.fixtures.devices.fake import FakeDevice
from ipubench.fixtures.runtimes.fake import FakeStep
from ipubench.plugins.measure import alternating, meter
from ipubench.plugins.measure.alternating import (
    AlternatingMeter,
    OrderedRounds,
    Orders,
    wait_until_quiet,
)
from ipubench.plugins.measure.peaks import Peaks
from ipubench.plugins.measure.rounds import Calibrated, Limits
from ipubench.plugins.record.pytest_benchmark_adapter import EnoughRounds
from tests.support.command_line import given_options


class Member:
    """The orders of the controlling run and the replies to it."""

    def __init__(self, *orders: Tuple[str, Any]) -> None:
        self._orders = list(orders)
        self.answers: List[Any] = []

    def next_command(self) -> Optional[Tuple[str, Any]]:
        return self._orders.pop(0) if self._orders else None

    def reply(self, value: Any) -> None:
        self.answers.append(value)


def orders_of(member: Any) -> Orders:
    return Orders(member)


def test_an_order_is_answered_when_the_next_is_awaited_and_no_thread_spins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    member = Member(("ready", None), ("warm_up", 7))
    monkeypatch.setattr(alternating, "wait_until_quiet", lambda: member.answers.append("quiet"))
    orders = orders_of(member)
    assert orders.wait("ready") is None and member.answers == []
    orders.answer("built")
    assert orders.wait("warm_up") == 7 and member.answers == ["quiet", "built"]


def test_each_round_is_answered_with_its_seconds_until_the_record_is_ordered() -> None:
    member = Member(("round", None), ("round", None), ("record", "precision"))
    rounds = OrderedRounds(Limits(5.0), FakeDevice(0).clock, None)
    rounds.orders = orders_of(member)
    rounds.before_round([])
    rounds.before_round([0.5])
    with pytest.raises(EnoughRounds):
        rounds.before_round([0.5, 0.25])
    assert (member.answers, rounds.stopped_by) == ([None, 0.5, 0.25], "precision")


@pytest.mark.parametrize(("busy", "looks"), [(0, 1), (3, 4), (10**6, 150)])
def test_it_waits_for_threads_that_spin_after_their_work(
    busy: int, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They use the CPU during this many readings, each 2 ms apart and 150 at most."""
    done: List[float] = []
    clock = SimpleNamespace(
        monotonic=lambda: round(sum(done), 6),
        sleep=done.append,
        process_time=lambda: 0.002 * min(len(done), busy),
    )
    monkeypatch.setattr(alternating, "time", clock)
    wait_until_quiet()
    assert len(done) == looks


@pytest.mark.parametrize(("ordered", "rounds"), [(10, [0.1]), (20, [])])
def test_calls_of_the_common_length_count_as_rounds(
    ordered: int, rounds: List[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def calibrate(step: Any, clock: Any, target: float, most_seconds: float) -> Calibrated:
        step.batches_per_step = 10
        return Calibrated([0.1], batches=30)

    monkeypatch.setattr(meter, "calibrate", calibrate)
    device, member = FakeDevice(0), Member(("warm_up", ordered))
    config = SimpleNamespace(option=given_options(budget=5.0))
    case_run: Any = SimpleNamespace(
        item=SimpleNamespace(config=config), case=None, benchmark=None, device=device
    )
    made = AlternatingMeter(case_run, Peaks(None, "fake", device.clock), member)  # type: ignore[arg-type]
    step = FakeStep(device, ArrayFeed("synthetic", ()), 0.01)
    assert made._choose_batches(step, calibrated=True) == Calibrated(rounds, batches=30)
    assert step.batches_per_step == ordered
    assert member.answers == [{"batches": 10, "unfit": "", "timed": 1.0}]
    assert not made._adapts(step)  # the other process would not know
