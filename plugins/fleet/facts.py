"""What a host says of itself before it measures, and in what the hosts of a fleet differ."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.case.errors import some_of
from ipubench.plugins.record import host_process
from ipubench.plugins.run.machine import Machine

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MOST = 3  # hosts that are named


@dataclass(frozen=True)
class HostFacts(Machine):
    """A process of a host, as plain data: it travels."""

    name: str  # of the host itself
    machine: str  # equal for two names of one machine; '' where nothing tells
    device: str  # the kind
    devices: Optional[List[int]]  # those of the host that can work side by side; None: one, shared
    revision: Optional[str]

    @classmethod
    def of(cls, config: pytest.Config, kind: str) -> HostFacts:
        """Look at this host; UsageError where it has no such device."""
        return cls(
            **vars(Machine.here(config, kind)),
            name=platform.node(),
            machine=_machine(),
            device=kind,
            devices=devices.device_ids(kind),
            revision=host_process.git_revision(config.rootpath),
        )


def _machine() -> str:
    """Return what two containers or network namespaces of one machine have in common."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def differing_versions(hosts: Dict[str, HostFacts]) -> List[str]:
    """Say which packages have other versions on some hosts, one line each."""
    names = sorted({name for facts in hosts.values() for name in facts.versions})
    lines = []
    for package in names:
        found: Dict[str, List[str]] = {}
        for host, facts in hosts.items():
            found.setdefault(facts.versions.get(package, "none"), []).append(host)
        if len(found) > 1:
            said = [f"{version} on {some_of(names, MOST)}" for version, names in found.items()]
            lines.append(f"hosts differ in {package}: {', '.join(said)}")
    return lines
