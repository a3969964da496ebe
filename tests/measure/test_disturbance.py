"""Disturbed rounds: left out, replaced, and reported."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Callable, List
from unittest import mock

import pytest
from msgspec import to_builtins
from msgspec.structs import astuple

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.machine.contention import Contention, Reading
from ipubench.plugins.measure import disturbance
from ipubench.plugins.measure.disturbance import Disturbance, is_enough, wait_for_quiet
from ipubench.plugins.measure.rounds import Limits, Rounds
from ipubench.plugins.record.pytest_benchmark_adapter import EnoughRounds
from ipubench.plugins.record.structs import Quiet
from tests.support.fake_device import TAKEN_VARIABLE, FakeDevice


def measured(device: FakeDevice, limits: Limits, each: float = 0.1) -> Any:
    """Run rounds of ``each`` seconds until the rule stops; return the rule and the seconds."""
    rounds = Rounds(limits, device.clock, None, Disturbance.of(device))
    seconds: List[float] = []
    while True:
        try:
            rounds.before_round(seconds)
        except EnoughRounds:
            return rounds, seconds
        start = device.clock.now
        device.work(each)
        seconds.append(device.clock.now - start)


def test_disturbed_rounds_are_left_out_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TAKEN_VARIABLE, "0.5,0.5,0")
    rounds, seconds = measured(FakeDevice(0), Limits(budget=3, precision=0))
    clean = rounds.disturbance.clean(seconds)
    assert clean == pytest.approx([0.1] * len(clean))
    assert 1.5 <= sum(clean) < 1.7  # half the budget
    assert sum(seconds) > 3 and rounds.stopped_by == "budget"
    record = rounds.disturbance.describe(seconds, True)
    assert record.clean == len(clean)
    assert len(record.lost) == len(record.cpu_seconds) == len(seconds)
    # Of each three rounds' five tenths of a second two were taken.
    assert record.by_others == pytest.approx(0.4, abs=0.02)


@pytest.mark.parametrize(("taken", "clean"), [("0", 5), ("0.5", 0)])
def test_rounds_watched_together_share_the_lost_time(
    taken: str, clean: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TAKEN_VARIABLE, taken)
    device = FakeDevice(0)
    watching = Disturbance.of(device)
    watching.read()
    device.work(1)
    watching.read()
    record = watching.describe_at_once(5)
    assert record.lost == pytest.approx([float(taken)] * 5)
    assert (record.clean, record.enough) == (clean, bool(clean))
    assert record.kept == [bool(clean)] * 5


@pytest.mark.parametrize(
    ("taken", "limits", "each", "count", "ended"),
    [
        ("0", Limits(budget=5), 0.1, 20, "precision"),
        ("0.5", Limits(steps=7), 0.1, 7, "steps"),
        ("0.5", Limits(budget=2), 10.0, disturbance.LEAST_ROUNDS, "disturbed"),  # a promise
    ],
)
def test_the_number_of_rounds_next_to_others(
    taken: str,
    limits: Limits,
    each: float,
    count: int,
    ended: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(TAKEN_VARIABLE, taken)
    rounds, seconds = measured(FakeDevice(0), limits, each)
    assert (len(seconds), rounds.stopped_by) == (count, ended)


@pytest.mark.parametrize(
    ("clean", "rounds", "enough"),
    [(0, 3, False), (2, 3, False), (3, 3, True), (3, 6, True), (3, 7, False), (20, 90, True)],
)
def test_the_number_of_clean_rounds_that_suffice(clean: int, rounds: int, enough: bool) -> None:
    assert is_enough([0.1] * clean, rounds, budget=5) is enough
    assert is_enough([3.0] * clean, rounds, budget=5) is (clean >= 3)  # they fill the budget
    assert is_enough([3.0], 1, budget=5) and not is_enough([3.0], 2, budget=5)


def test_the_record_has_the_counters_of_the_rounds() -> None:
    readings = [
        Reading(time=0.0, used=0, beside=0, stolen=0, ours=1.0, waited=0, throttled=0),
        Reading(time=2.0, used=0.5, beside=0, stolen=0, ours=1.5, waited=0, throttled=0),
        Reading(time=4.0, used=2.25, beside=0.25, stolen=0.5, ours=2.75, waited=1, throttled=0.5),
    ]
    counters: Any = SimpleNamespace(readings=readings, seconds=0.25)
    assert to_builtins(Disturbance(counters).describe([2.0, 2.0], True)) == {
        "limit": 0.02,
        "lost": [0.0, 0.625],
        "cpu_seconds": [0.5, 1.25],
        "kept": [True, False],
        "clean": 1,
        "enough": True,
        "by_others": 0.125,
        "waited": 0.25,
        "stolen": 0.125,
        "beside": 0.0625,
        "throttled": 0.125,
        "reading_seconds": 0.25,
    }


def test_a_system_without_counters_is_recorded_as_such() -> None:
    nothing = Disturbance(None)
    assert "does not count" in nothing.describe_at_once(3).unknown
    nothing.read()
    assert nothing.clean([1.0, 2.0]) == [1.0, 2.0]
    assert "does not count" in nothing.describe([1.0, 2.0], True).unknown


class Uncounted(FakeDevice):
    """A host that does not count waiting threads, as in some containers."""

    def contention(self) -> None:
        return None

    def look(self) -> Callable[[], float]:
        return iter([0.5, 0.5, 1.0, 1.0]).__next__


def test_without_counters_no_round_is_left_out() -> None:
    """The record could not list them, so table and comparisons would use different rounds."""
    watching = Disturbance.of(Uncounted(0))
    for _ in range(4):
        watching.read()
    assert watching.kept(3) == [True] * 3
    with pytest.raises(CaseError, match="--wait-for-quiet"):
        wait_for_quiet(Uncounted(0), 60, lambda text: None)


class Neighbour(FakeDevice):
    """A host on which others use a CPU until some time, or other machines share the host.

    Each reading takes a second.
    """

    def __init__(self, until: float, elsewhere: bool = False, share: float = 1.0) -> None:
        super().__init__(0)
        self.until = until
        self.elsewhere = elsewhere
        self.share = share

    def wait(self, most_seconds: float) -> Quiet:
        """Wait on its own clock until it is quiet; return the record's text."""
        clock = SimpleNamespace(monotonic=lambda: self.clock.now, sleep=lambda seconds: None)
        with mock.patch.object(disturbance, "time", clock):
            return wait_for_quiet(self, most_seconds, lambda text: None)

    def contention(self) -> Contention:
        device = self

        class Reader(Contention):
            def read(self) -> Reading:
                device.clock.advance(1.0)
                taken = device.share * min(device.clock.now, device.until)
                used, stolen = (0.0, taken) if device.elsewhere else (taken, 0.0)
                return Reading(device.clock.now, used, 0.0, stolen, 0.0, 0.0, 0.0)

        reader = Reader()
        reader._cpus = frozenset(range(4))
        return reader


@pytest.mark.parametrize(
    ("device", "found"),
    [
        (Neighbour(3.0), (True, 4.0, 0.0)),
        (Neighbour(3.0, elsewhere=True), (True, 4.0, 0.0)),
        (Neighbour(1e9, share=0.1), (True, 2.0, 0.025)),
        (Neighbour(1e9), (False, 6.0, 0.25)),
    ],
)
def test_a_case_waits_until_the_machine_is_quiet_but_not_forever(
    device: Neighbour, found: Any
) -> None:
    assert astuple(device.wait(5.5)) == found


def watched(copies: List[float]) -> Disturbance:
    """Watch rounds on a quiet machine that sometimes shares its host; return the result."""

    class Beside(FakeDevice):
        def look(self) -> Callable[[], float]:
            return iter(copies).__next__

    found = Disturbance.of(Beside(0))
    for _ in copies:
        found.read()
    return found


def test_rounds_in_another_state_of_the_machine_are_left_out() -> None:
    """Reads the state before and after each round: a copy takes twice as long on a shared host."""
    assert watched([1.0, 1.0, 1.1, 0.5, 0.5, 1.0, 1.0]).kept(6) == [True] * 3 + [False] + [True] * 2
    found = watched([0.5, 0.48, 1.0, 0.9, 0.52, 0.5, 0.55, 0.5])
    assert found.around() == [0.5, 1.0, 1.0, 0.9, 0.52, 0.55, 0.55]
    assert found.kept(7) == [True, False, False, False, True, True, True]
    assert found.clean([0.1, 0.2, 0.2, 0.2, 0.11, 0.12, 0.13]) == [0.1, 0.11, 0.12, 0.13]
    record = found.describe([0.1] * 7, True)
    assert (record.clean, record.copy_ms) == (4, 0.52)
    assert record.copies_ms == [0.5, 0.48, 1.0, 0.9, 0.52, 0.5, 0.55, 0.5]
