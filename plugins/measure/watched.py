"""What a measurement takes of the machine while it goes on, and what others take from it."""

from __future__ import annotations

from dataclasses import dataclass

from ipubench.fixtures.devices.base import Device
from ipubench.plugins.measure.disturbance import Disturbance
from ipubench.plugins.record.host_process import PeakMemory


@dataclass
class Watched:
    """The memory of a measurement that goes on, and other programs."""

    memory: PeakMemory
    others: Disturbance
    _goes_on: bool = True

    @classmethod
    def begin(cls, device: Device) -> Watched:
        """Begin to watch."""
        watched = cls(PeakMemory(), Disturbance.of(device))
        watched.others.read()
        return watched

    def end(self) -> None:
        """The rounds are over."""
        if self._goes_on:
            self._goes_on = False
            self.others.read()
