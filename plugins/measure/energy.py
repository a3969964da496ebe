"""Measures the energy of a case's rounds, with the counter of its device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Optional

from ipubench.fixtures.devices.base import Device, EnergyCounter
from ipubench.fixtures.runtimes.step import Step
from ipubench.plugins.record.structs import Energy

#: A window has this many changes of the counter, so that the first and the last hardly matter.
LEAST_CHANGES = 10


@dataclass
class EnergyWindow:
    """The energy from before the first round to after the last; nothing without a counter.

    If another process takes turns, each round is a window.
    """

    counter: Optional[EnergyCounter]
    clock: Callable[[], float]
    windows: int = 0
    seconds: float = 0.0
    joules: float = 0.0
    _began: float = 0.0
    _joules_then: float = 0.0

    @classmethod
    def of(cls, device: Device) -> EnergyWindow:
        """Return the window of a case that is about to run on a device."""
        return cls(device.counter, device.clock)

    def begin(self) -> None:
        """Begin a window."""
        if self.counter is not None:
            self._began, self._joules_then = self.clock(), self.counter.read()

    def end(self) -> None:
        """End the window."""
        if self.counter is not None:
            self.joules += self.counter.read() - self._joules_then
            self.seconds += self.clock() - self._began
            self.windows += 1

    def describe(self, step: Step, items: float) -> Optional[Energy]:
        """Return this part of a record; ``items`` are those of all rounds."""
        counter = self.counter
        if counter is None:
            return None
        unknown = self._why_unknown(counter, step)
        if unknown:
            return Energy(counter.source, self.seconds, unknown=unknown)
        return Energy(counter.source, self.seconds, self.joules, self.joules / items)

    def _why_unknown(self, counter: EnergyCounter, step: Step) -> str:
        least, each = LEAST_CHANGES * counter.resolution, self.seconds / max(1, self.windows)
        if step.on_several_hosts:
            return "it works on other hosts too, whose energy is not counted"
        if step.timed_share < 1:
            return "its rounds have an untimed part, whose energy nothing separates"
        if each < least:
            return f"{counter.source}: rounds of {least:g} s are needed; give a longer --budget"
        if each > counter.longest:
            return f"{counter.source}: counts at most {counter.longest:.0f} s; give less --budget"
        if self.joules <= 0:
            return f"{counter.source}: the counter stands still, as in some virtual machines"
        return ""
