"""The workers of `-n N` on this machine; the controller leases their devices.

On cuda and ipu each worker has a device. On a CPU they share the host, and only one worker runs a
case at a time: see docs/how-to/workers.md.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, List, Optional, Sequence

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.devices.base import DeviceError
from ipubench.fixtures.devices.lease import hold
from ipubench.fixtures.instances.plan import refuse_direct_poprun
from ipubench.plugins.fleet.facts import HostFacts

#: More devices than a case needs: the controller leaves out cases with more than one IPU.
ANY_NUMBER = 1 << 20


class LocalWorkers:
    """The names of the workers, and the device of each."""

    #: A case that has crashed one worker would crash the next.
    most_losses = 1

    def __init__(self, config: pytest.Config, count: int) -> None:
        self.config = config
        self._held = contextlib.ExitStack()
        config.add_cleanup(self._held.close)
        self.facts: Dict[str, HostFacts] = {}
        self.names = [f"gw{number}" for number in range(count)]
        self.specs = [f"popen//worker={name}" for name in self.names]
        self.device = devices.choose(options_of(config).device)
        found = devices.of(self.device).device_ids()
        #: Whether all workers have the same device, and so must run one case at a time.
        self.shared = found is None
        self.device_ids = dict(zip(self.names, self._own_devices(found or [])))
        self.devices = dict.fromkeys(self.names, ANY_NUMBER)
        self.turns = dict.fromkeys(self.names, "host") if self.shared else {}

    def _own_devices(self, found: Sequence[int]) -> List[int]:
        """Return the device of each worker. Raises UsageError if there are too few."""
        given, count = options_of(self.config).device_id, len(self.names)
        if given is not None and count > 1:
            raise pytest.UsageError(
                f"--device-id={given} with -n {count}: each worker needs a device; "
                "leave out one of them"
            )
        if not found or given is not None:  # without devices, attaching one explains why
            return []
        if count > len(found):
            raise pytest.UsageError(
                f"-n {count}: each worker needs a device, and this host has "
                f"{len(found)} of --device={self.device}; -n auto uses all of them"
            )
        return list(found[:count])

    def lease(self) -> None:
        """Hold the devices until the end of the session."""
        option = options_of(self.config)
        pin = option.affinity == "cores"
        numbers: List[Optional[int]] = [*self.device_ids.values()] or [option.device_id]
        made = [devices.make(self.device, number, pin) for number in numbers]
        names = {name for device in made for name in device.leases()}
        try:
            refuse_direct_poprun(option.device_id)
            self._held.enter_context(hold(self.config, sorted(names)))
        except DeviceError as error:
            raise pytest.UsageError(str(error)) from None

    def handover(self, name: str) -> Dict[str, Any]:
        """Return the settings that a worker gets at its start."""
        return {
            "host": None,
            "device_id": self.device_ids.get(name, options_of(self.config).device_id),
            "lease_holder": os.getpid(),
            "in_turns": self.shared,
        }
