"""What a host says of itself before it measures, and in what the hosts of a fleet differ."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.case.errors import some_of
from ipubench.fixtures.machine.files import IMPORT_ROOT
from ipubench.plugins.record import host_process
from ipubench.plugins.run.conditions import apply_conditions
from ipubench.plugins.selection.expand import selection_key

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MOST = 3  # hosts that are named


@dataclass(frozen=True)
class HostFacts:
    """A process of a host, as plain data: it travels."""

    name: str  # of the host itself
    machine: str  # equal for two names of one machine; '' where nothing tells
    device: str  # the kind
    devices: Optional[List[int]]  # those of the host that can work side by side; None: one, shared
    fingerprint: str
    description: str
    conditions: Dict[str, Any] = field(default_factory=dict)
    versions: Dict[str, str] = field(default_factory=dict)
    revision: Optional[str] = None
    root: str = ""  # the project's folder
    code: str = ""  # that which holds the imported ipubench
    leases: List[str] = field(default_factory=list)  # what nobody else may hold while it measures

    @classmethod
    def of(cls, config: pytest.Config) -> HostFacts:
        """Look at this host. Raises DeviceError where it has no such device.

        The device is looked at, not leased: another run may have it for now.
        """
        option = config.option
        kind = config.stash[selection_key].device
        device = devices.make(kind, option.device_id, option.affinity == "cores")
        info = device.attach()
        conditions = apply_conditions(info.kind, option.affinity, option.allocator)
        device.release()
        return cls(
            name=platform.node(),
            machine=_machine(),
            device=kind,
            devices=devices.device_ids(kind),
            fingerprint=info.fingerprint,
            description=info.name,
            conditions=conditions,
            versions=host_process.versions(),
            revision=host_process.git_revision(config.rootpath),
            root=os.path.realpath(str(config.rootpath)),
            code=str(IMPORT_ROOT),
            leases=list(device.leases()),
        )

    def as_dict(self) -> Dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


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
