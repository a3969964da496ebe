"""Watches a measurement's memory, and what other programs take from it."""

from __future__ import annotations

from dataclasses import dataclass

from ipubench.fixtures.devices.base import Device
from ipubench.plugins.measure.disturbance import Disturbance
from ipubench.plugins.record.host_process import PeakMemory


@dataclass
class Watched:
    """The memory of a measurement and the time that others take from it."""

    memory: PeakMemory
    others: Disturbance
    _running: bool = True

    @classmethod
    def begin(cls, device: Device) -> Watched:
        """Begin to watch."""
        watched = cls(PeakMemory(), Disturbance.of(device))
        watched.others.read()
        return watched

    def end(self) -> None:
        """End the watch; more calls do nothing."""
        if self._running:
            self._running = False
            self.others.read()
