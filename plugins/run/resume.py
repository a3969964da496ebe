"""`--resume`: what must be as it was for a finished case to count in the run that goes on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.devices.base import DeviceError
from ipubench.plugins.record import host_process
from ipubench.plugins.record.record import record_of
from ipubench.plugins.run.conditions import apply_conditions
from ipubench.plugins.selection.expand import selection_key

#: What verdicts depend on besides the cases: its name in words -> a digest.
depends_key = pytest.StashKey[Dict[str, str]]()
GIT = "git"


def depends_on(config: pytest.Config, what: str, value: str) -> None:
    """Have a resumed run measure anew where ``value``, a digest of ``what``, is another."""
    config.stash.setdefault(depends_key, {})[what] = value


def digest(path: Path) -> str:
    """Return a digest of a file's content; of one that cannot be read, why."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        return str(error.strerror)


def circumstances(config: pytest.Config) -> Dict[str, Optional[str]]:
    """Return what a journal's line says of the run, to be compared when it is resumed."""
    depends = config.stash.get(depends_key, {})
    return {GIT: host_process.git_revision(config.rootpath), **depends}


@dataclass
class Since:
    """What has changed since a run was interrupted."""

    files: List[str] = field(default_factory=list)
    note: str = ""
    fingerprint: str = ""
    conditions: Dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, config: pytest.Config, before: Any) -> Since:
        """Compare the circumstances ``before`` with those of now; UsageError without the device.

        The device is looked at, not leased: another run may have it for now.
        """
        before = before if isinstance(before, dict) else {}
        now = circumstances(config)
        names = sorted({*before, *now} - {GIT})
        found = cls([name for name in names if before.get(name) != now.get(name)])
        if before.get(GIT) != now[GIT]:
            found.note = f"the project's revision changed ({before.get(GIT)} -> {now[GIT]})"
        option = config.option
        device = devices.make(
            config.stash[selection_key].device, option.device_id, option.affinity == "cores"
        )
        try:
            info = device.attach()
        except DeviceError as error:
            raise pytest.UsageError(str(error)) from None
        found.fingerprint = info.fingerprint
        found.conditions = apply_conditions(info.kind, option.affinity, option.allocator)
        device.release()
        return found

    def changed(self, benchmark: Dict[str, Any]) -> str:
        """Return why a finished case is to be measured anew, or ''."""
        if self.files:
            return f"{' and '.join(self.files)} changed"
        record = record_of(benchmark)
        if record["device"]["fingerprint"] != self.fingerprint:
            return "this is another device"
        for what, before, now in (
            ("", record["conditions"], self.conditions),
            ("version of ", record["versions"], host_process.versions()),
        ):
            for name in sorted({*before, *now}):
                if before.get(name) != now.get(name):
                    return f"{what}{name} changed ({before.get(name)} -> {now.get(name)})"
        return ""
