"""The state of a machine beside others of its host, looked at on this one."""

from __future__ import annotations

from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.machine.state import COPIED, copy_look, same_state, usual


def test_a_look_takes_the_time_of_its_copies() -> None:
    look = copy_look()
    gigabytes = 4 * COPIED / 1e9  # read and written, there and back
    found = min(look() for _ in range(20))
    assert 0.5 < gigabytes / (found / 1e3) < 2000


def test_a_cpu_looks_at_its_machine() -> None:
    look = CpuDevice(pin=False).look()
    assert look is not None and look() > 0


def test_states_are_told_apart() -> None:
    assert same_state(0.5, 0.6) and same_state(1.0, 0.85)
    assert not same_state(0.5, 0.9) and not same_state(0.9, 0.5)


def test_the_usual_state_lies_in_no_gap() -> None:
    assert usual([0.5, 0.9]) == 0.5 and usual([0.5, 0.9, 0.95]) == 0.9
