"""Counts instructions with the processor's performance unit, by ``perf_event_open``.

Only this thread's instructions outside of the kernel are counted, at full speed. If other programs
use the unit as well, the kernel lets them take turns and the count is an estimate.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import struct
from typing import Any, Callable, Dict, List, Optional

from ipubench.fixtures.machine.processor import read_topology
from ipubench.plugins.count.counter import PERF, Counter, Functions

#: Number of the system call, by machine.
SYSCALL = {"x86_64": 298, "aarch64": 241, "ppc64le": 319, "riscv64": 241, "s390x": 331}
HARDWARE, INSTRUCTIONS = 0, 1
SOFTWARE, PAGE_FAULTS = 1, 2
#: Flags of an event, from linux/perf_event.h.
DISABLED, EXCLUDE_KERNEL, EXCLUDE_HV = 1 << 0, 1 << 5, 1 << 6
#: A read returns the count, how long the event was enabled and how long it was counted.
READ_FORMAT = 1 | 2
ENABLE, DISABLE, RESET = 0x2400, 0x2401, 0x2403
SIZE = 64  # of the first version of the structure, which every kernel takes


class Attributes(ctypes.Structure):
    """``struct perf_event_attr``, version 0."""

    _fields_ = [
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64),
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("rest", ctypes.c_uint8 * (SIZE - 48)),
    ]


def open_event(kind: int = HARDWARE, event: int = INSTRUCTIONS) -> int:
    """Return the file of an event of this thread. Raises OSError if the machine has none."""
    number = SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(0, f"no performance unit is known for {platform.machine()}")
    attributes = Attributes(
        type=kind,
        size=SIZE,
        config=event,
        read_format=READ_FORMAT,
        flags=DISABLED | EXCLUDE_KERNEL | EXCLUDE_HV,
    )
    libc = ctypes.CDLL(None, use_errno=True)
    file = libc.syscall(
        ctypes.c_long(number), ctypes.byref(attributes), 0, -1, -1, ctypes.c_ulong(0)
    )
    if file < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(file)


def is_available() -> bool:
    """Whether this process may use a performance unit, and it counts."""
    try:
        unit = PerformanceUnit()
    except (OSError, AttributeError):
        return False
    unit.start()
    try:
        return unit.total(unit.count(lambda: sum(range(1000)))) > 0
    finally:
        unit.stop()


class PerformanceUnit(Counter):
    """Counts an event of this thread."""

    def __init__(self, kind: int = HARDWARE, event: int = INSTRUCTIONS) -> None:
        self._kind, self._event = kind, event
        self._file: Optional[int] = open_event(kind, event)
        self._enabled = self._running = 0
        self._totals: List[float] = []

    def start(self) -> None:
        """Open the event, unless it is open."""
        if self._file is None:
            self._file = open_event(self._kind, self._event)

    def count(self, run: Callable[[], Any]) -> int:
        """Count one run; the count is scaled up if it was counted a part of the time."""
        assert self._file is not None
        fcntl.ioctl(self._file, RESET, 0)
        before = self._times()
        fcntl.ioctl(self._file, ENABLE, 0)
        try:
            run()
        finally:
            fcntl.ioctl(self._file, DISABLE, 0)
        value, enabled, running = struct.unpack("QQQ", os.read(self._file, 24))
        enabled, running = enabled - before[0], running - before[1]
        self._enabled += enabled
        self._running += running
        self._totals.append(float(value) if not running else value * enabled / running)
        return len(self._totals) - 1

    def total(self, number: int) -> float:
        """Return the instructions of a count."""
        return self._totals[number]

    def _times(self) -> Any:
        assert self._file is not None
        return struct.unpack("QQQ", os.read(self._file, 24))[1:]

    def stop(self) -> None:
        """Close the event."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def functions(self, number: int) -> Functions:
        """The unit counts no functions."""
        return {}

    def describe(self) -> Dict[str, Any]:
        """Return which processor counts: another one may run other code of a library."""
        return {"by": PERF, "processor": read_topology().model, "machine": platform.machine()}

    def multiplexed(self) -> Optional[float]:
        """Return the share of the time in which the unit did other work."""
        share = 1 - self._running / self._enabled if self._enabled else 0.0
        return round(max(0.0, share), 6)
