"""The part of a record that says where and with what a case was measured."""

from __future__ import annotations

import time
from typing import Any, Dict

import pytest

from fixtures.devices.base import Device
from plugins import process
from plugins.workers import workers_key


def surroundings(
    config: pytest.Config, device: Device, conditions: Dict[str, Any]
) -> Dict[str, Any]:
    """Return the device, the conditions that hold, the versions, the revision and the time."""
    return {
        "device": {
            "kind": device.info.kind,
            "name": device.info.name,
            "fingerprint": device.info.fingerprint,
            "details": device.info.details,
        },
        "conditions": conditions,
        "workers": config.stash.get(workers_key, 1),
        "versions": process.versions(),
        "git": process.git_revision(config.rootpath),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
