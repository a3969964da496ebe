"""Describes a host before it measures."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional

import pytest

from ipubench.fixtures import devices
from ipubench.plugins.record import host_process
from ipubench.plugins.run.machine import Machine

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class HostFacts(Machine):
    """A worker's host, as plain data that can be sent."""

    name: str  # the host's name for itself
    machine: str  # equal for containers of one machine; '' if unknown
    device: str  # the kind
    devices: Optional[List[int]]  # those that can work at the same time; None: one, shared
    revision: Optional[str]

    @classmethod
    def of(cls, config: pytest.Config, kind: str) -> HostFacts:
        """Describe this host. Raises UsageError if it has no such device."""
        return cls(
            **vars(Machine.here(config, kind)),
            name=platform.node(),
            machine=_machine(),
            device=kind,
            devices=devices.of(kind).device_ids(),
            revision=host_process.git_revision(config.rootpath),
        )


def _machine() -> str:
    """Return an identifier that all containers and network namespaces of a machine share."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
