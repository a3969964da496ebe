"""Whether CPUs share cores, on this machine's own."""

from __future__ import annotations

import os
import threading

import pytest

from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.machine.processor import allowed_cpus
from ipubench.fixtures.machine.shared_cores import BAND, SharedCores, same_state

pytestmark = pytest.mark.skipif(len(allowed_cpus()) < 2, reason="needs two CPUs")


def test_one_cpu_for_two_threads_is_not_taken_for_a_shared_core() -> None:
    """Threads that take turns on one CPU wait, and each has the CPU's whole speed."""
    cpu = min(allowed_cpus())
    cores = SharedCores([cpu, cpu])
    assert min(cores.read() for _ in range(20)) < BAND
    cores.close()


def test_the_threads_end_and_leave_this_thread_where_it_was() -> None:
    before, cpus = threading.active_count(), os.sched_getaffinity(0)
    cores = SharedCores(sorted(allowed_cpus())[:2])
    assert threading.active_count() == before + 2
    assert cores.read() > 0.5
    cores.close()
    assert threading.active_count() == before
    assert os.sched_getaffinity(0) == cpus


def test_a_cpu_device_keeps_one_look_and_one_cpu_needs_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = CpuDevice(pin=False)
    first, second = device.shared_cores(), device.shared_cores()
    assert first == second is not None
    monkeypatch.setattr(device, "allowed", frozenset({0}))
    assert device.shared_cores() is None


def test_states_are_told_apart() -> None:
    assert same_state(1.0, 1.2) and same_state(2.0, 1.9) and same_state(1.5, 1.45)
    assert not same_state(1.1, 2.0) and not same_state(2.0, 1.1)
