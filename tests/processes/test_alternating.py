"""What the run that lets two processes take turns makes of the system's counters."""

from __future__ import annotations

from typing import List

import pytest

from ipubench.fixtures.machine.contention import Contention, Reading
from ipubench.plugins.gate.adjacent import AdjacentRounds
from ipubench.plugins.processes.alternating import Contended


class Counters(Contention):
    """Counters of a machine on which rounds of a second lose what a list says."""

    def __init__(self, lost: List[float], cpu: List[float]) -> None:
        super().__init__()
        self._lost, self._cpu = [0.0, *lost], [0.0, *cpu]

    def read(self) -> Reading:
        number = len(self.readings)
        lost, ours = sum(self._lost[: number + 1]), sum(self._cpu[: number + 1])
        self.readings.append(Reading(number, ours + lost, 0.0, 0.0, ours, lost, 0.0))
        return self.readings[-1]


def test_each_round_has_what_was_taken_from_it_on_its_own_side() -> None:
    """Here, there; there, here."""
    watched = Contended("cpu")
    watched._look = lambda: 0.5
    watched._contention = Counters([0.1, 0.2, 0.4, 0.3], [1.1, 1.2, 1.4, 1.3])
    watched._available = True
    rounds = AdjacentRounds()
    for here_first in (True, False):
        for _ in range(2):
            watched.begin()
        rounds.here_first.append(here_first)
        rounds.here.seconds.append(1.0)
        rounds.there.seconds.append(1.0)
        watched.complete(rounds)
    assert rounds.here.lost == pytest.approx([0.1, 0.3])
    assert rounds.there.lost == pytest.approx([0.2, 0.4])
    assert rounds.here.waited == pytest.approx([0.1, 0.3])
    assert rounds.here.by_others == pytest.approx([0.1, 0.3])
    assert rounds.there.cpu_seconds == pytest.approx([1.2, 1.4])
    assert rounds.comparable() == [True, True]


def test_a_fake_devices_time_is_not_the_machines() -> None:
    watched, rounds = Contended("fake"), AdjacentRounds(here_first=[True, False])
    watched.begin()
    watched.complete(rounds)
    assert rounds.here.lost == rounds.there.cpu_seconds == [None, None]
