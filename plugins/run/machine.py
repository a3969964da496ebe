"""Describes a machine that measures, and what has changed on it since a stored result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.devices.base import DeviceError
from ipubench.plugins.record import host_process
from ipubench.plugins.record.structs import Facts, Record
from ipubench.plugins.run.conditions import apply_conditions


@dataclass(frozen=True)
class Machine:
    """A machine: its device, its conditions and its versions."""

    fingerprint: str
    description: str
    leases: List[str]  # of resources that only one run may use at a time
    conditions: Facts
    versions: Dict[str, str]

    @classmethod
    def here(cls, config: pytest.Config, kind: str) -> Machine:
        """Return this machine. Raises UsageError if it lacks the device.

        Does not lease the device: another run may be using it.
        """
        option = options_of(config)
        device = devices.make(kind, option.device_id, option.affinity == "cores")
        try:
            info = device.attach()
        except DeviceError as error:
            raise pytest.UsageError(str(error)) from None
        conditions = apply_conditions(info.kind, option.affinity, option.allocator)
        device.release()
        leases = list(device.leases())
        return cls(info.fingerprint, info.name, leases, conditions, host_process.versions())

    def changed(self, record: Record) -> str:
        """Return what has changed since a case was measured on such a device, or ''."""
        for what, before, now in (
            ("", record.conditions, self.conditions),
            ("version of ", record.versions, self.versions),
        ):
            for name, old, new in sorted(host_process.changes(before, now)):
                return f"{what}{name} changed ({old} -> {new})"
        return ""
