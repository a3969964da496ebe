"""Two alternating processes: which cases can alternate, and how the run uses the counters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, List

import pytest

from ipubench.fixtures.case.cases import case_key
from ipubench.fixtures.data.feeds import ArrayFeed
from ipubench.fixtures.instances.protocol import ALTERNATING
from ipubench.fixtures.machine.contention import Contention, Reading
from ipubench.fixtures.runtimes.step import Loading, OwnClock, RoundRules
from ipubench.plugins.gate.rounds import AdjacentRounds
from ipubench.plugins.measure.served import why_unfit
from ipubench.plugins.processes.pair import Contended, why_not_alternating
from ipubench.plugins.processes.place import Place
from tests.support.fake_device import FakeDevice
from tests.support.fake_runtime import FakeStep


class Counters(Contention):
    """Counters of a machine on which one-second rounds lose the time in a list."""

    def __init__(self, lost: List[float], cpu: List[float]) -> None:
        super().__init__()
        self._lost, self._cpu = [0.0, *lost], [0.0, *cpu]

    def read(self) -> Reading:
        number = len(self.readings)
        lost, ours = sum(self._lost[: number + 1]), sum(self._cpu[: number + 1])
        self.readings.append(Reading(number, ours + lost, 0.0, 0.0, ours, lost, 0.0))
        return self.readings[-1]


def test_each_round_is_charged_with_the_disturbance_in_its_own_process() -> None:
    """Here, there; there, here."""
    counters = Counters([0.1, 0.2, 0.4, 0.3], [1.1, 1.2, 1.4, 1.3])
    # The third and the last reading follow the latest round, until the next one begins.
    watched = Contended(counters, iter([0.5, 0.51, 0.7, 0.52, 0.53004, 0.9]).__next__)
    rounds = AdjacentRounds()
    for here_first in (True, False):
        for _ in range(2):
            watched.read()
        rounds.here_first.append(here_first)
        rounds.here.seconds.append(1.0)
        rounds.there.seconds.append(1.0)
        watched.complete(rounds)
    assert rounds.here.lost == pytest.approx([0.1, 0.3])
    assert rounds.there.lost == pytest.approx([0.2, 0.4])
    assert rounds.here.by_others == pytest.approx([0.1, 0.3])
    assert (rounds.here.copies_ms, rounds.there.copies_ms) == ([0.51, 0.9], [0.52, 0.53])
    assert rounds.comparable() == [True, False]


def test_the_time_of_a_fake_device_is_not_the_machines() -> None:
    watched, rounds = Contended.of("fake"), AdjacentRounds(here_first=[True, False])
    watched.read()
    watched.complete(rounds)
    assert rounds.here.lost == rounds.there.cpu_seconds == [None, None]


@pytest.mark.parametrize(
    ("device", "version", "instances", "marker", "fixture", "why"),
    [
        ("cpu", ALTERNATING, 1, None, "tensorflow", ""),
        ("cpu", ALTERNATING - 1, 1, None, "tensorflow", "another version"),
        ("ipu", ALTERNATING, 1, None, "tensorflow", "the kind ipu"),
        ("cpu", ALTERNATING, 2, None, "tensorflow", "instances"),
        ("cpu", ALTERNATING, 1, "spec", "tensorflow", "a command"),
        ("cpu", ALTERNATING, 1, None, "triton", "a server"),
    ],
)
def test_a_case_that_cannot_alternate_has_a_reason(
    device: str, version: int, instances: int, marker: Any, fixture: str, why: str
) -> None:
    case = SimpleNamespace(config=SimpleNamespace(instances=instances))
    item: Any = SimpleNamespace(
        stash={case_key: case}, get_closest_marker=lambda _: marker, fixturenames=[fixture]
    )
    there = Place("python", [], alternating=version)
    found = why_not_alternating(item, device, there)
    assert why in found and bool(found) == bool(why)


@pytest.mark.parametrize(
    ("fact", "value", "why"),
    [
        ("clock", None, ""),
        ("loading", Loading(4), "its input"),
        ("clock", OwnClock(float), "its times"),
        ("rounds", RoundRules(most=lambda: 9), "its work ends"),
    ],
)
def test_a_step_that_cannot_alternate_has_a_reason(fact: str, value: Any, why: str) -> None:
    step = FakeStep(FakeDevice(0), ArrayFeed("real", ()), 0.0)
    setattr(step, fact, value)
    found = why_unfit(step)
    assert why in found and bool(found) == bool(why)
