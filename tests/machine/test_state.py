"""The state of a machine that shares its host with others."""

from __future__ import annotations

from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.machine.state import same_state, usual


def test_a_cpu_measures_its_machine() -> None:
    look = CpuDevice(pin=False).look()
    assert look is not None and look() > 0


def test_states_are_distinguished_and_the_usual_one_is_not_in_a_gap() -> None:
    assert same_state(0.5, 0.6) and same_state(1.0, 0.85)
    assert not same_state(0.5, 0.9) and not same_state(0.9, 0.5)
    assert usual([0.5, 0.9]) == 0.5 and usual([0.5, 0.9, 0.95]) == 0.9
