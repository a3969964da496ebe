"""The workers on hosts: each uses a device there, and the same revision of the project."""

from __future__ import annotations

import contextlib
import os
import shlex
import threading
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import pytest

from ipubench.fixtures.case.errors import counted
from ipubench.fixtures.case.untrusted import read_bytes
from ipubench.fixtures.command_line import options_of
from ipubench.plugins.baseline.format import MOST_BYTES, BaselineError
from ipubench.plugins.baseline.store import baseline_path
from ipubench.plugins.fleet.facts import HostFacts
from ipubench.plugins.fleet.hosts import FleetError, HostWorker
from ipubench.plugins.fleet.schedule import sharing
from ipubench.plugins.fleet.worker import PULSE_SECONDS, THERE
from ipubench.plugins.record import host_process
from ipubench.plugins.state import run_of


class RemoteHosts:
    """The workers of all hosts, by name."""

    #: If a case crashes on two hosts, the case is the cause.
    most_losses = 2

    def __init__(self, config: pytest.Config, found: Sequence[HostWorker]) -> None:
        self.config = config
        self._workers = {one.name: one for one in found}
        self.names = list(self._workers)
        self.specs = [one.text for one in found]
        self.facts: Dict[str, HostFacts] = {}
        self.devices: Dict[str, int] = {}
        self.turns: Dict[str, str] = {}
        self._baseline = _text_of_baseline(config)

    def describe(self, spec: Any) -> None:
        """Send this run's PYTEST_ADDOPTS to a host, which has another environment."""
        if spec.ssh:
            spec.env.setdefault("PYTEST_ADDOPTS", os.environ.get("PYTEST_ADDOPTS", ""))

    def unreachable(self, name: str) -> FleetError:
        """Return the error for a host that does not answer, with a command that shows the cause."""
        worker, python = self._workers[name], "python"
        for part in worker.text.split("//"):
            python = part[len("python=") :] if part.startswith("python=") else python
        command = f"{python} -c 'import xdist'"
        command = f"cd {worker.folder} && {command}" if worker.folder else command
        shown = f"ssh {worker.address} {shlex.quote(command)}" if worker.address else command
        return FleetError(f"{name}: its Python does not answer; this shows more: {shown}")

    def handover(self, name: str) -> Dict[str, Any]:
        """Return the settings that a worker gets at its start."""
        return {
            "host": {"name": name, "baseline": self._baseline},
            "device_id": self._workers[name].number,
            "in_turns": False,
        }

    def check(self, facts: Dict[str, Any]) -> List[str]:
        """Check the hosts' facts; return lines that describe the hosts. Raises FleetError."""
        self.facts = {name: HostFacts(**facts[name]) for name in self.names}
        kinds = {one.device for one in self.facts.values()}
        if len(kinds) > 1:
            found_kinds = ", ".join(f"{name}: {one.device}" for name, one in self.facts.items())
            raise FleetError(
                f"the hosts have several kinds of device ({found_kinds}): add --device=KIND"
            )
        for name, worker in self._workers.items():
            _check(self.facts[name], worker, self.config.rootpath)
            found = self.facts[name].devices
            self.devices[name] = len(found) if found and worker.number is None else 1
        self.turns = sharing(self.facts)
        run = run_of(self.config)
        run.selection.device = kinds.pop()
        run.machines = list(self.facts.values())
        lines = [f"  {n}: {one.description} ({one.name})" for n, one in self.facts.items()]
        return [f"fleet of {counted(len(lines), 'worker')}:", *lines]

    def pulse(self, channels: Dict[str, Any]) -> None:
        """Send a sign of life to the hosts every few seconds, from a thread."""
        closed = threading.Event()
        self.config.add_cleanup(closed.set)

        def run() -> None:
            while not closed.wait(PULSE_SECONDS):
                for channel in list(channels.values()):
                    with contextlib.suppress(OSError):
                        channel.send(THERE)

        threading.Thread(target=run, daemon=True).start()


def _text_of_baseline(config: pytest.Config) -> Optional[str]:
    """Return the text of the baseline's file; its reader reports errors."""
    name = options_of(config).baseline
    if name is None:
        return None
    try:
        path = baseline_path(name, config.rootpath)
        return read_bytes(path, MOST_BYTES).decode("utf-8")
    except (BaselineError, OSError, ValueError):
        return None


def _check(facts: HostFacts, worker: HostWorker, root: Path) -> None:
    """Raise FleetError if a host has another revision of the project, or too few devices."""
    found = len(facts.devices or [0])
    if (worker.number or 0) >= found:
        raise FleetError(
            f"{worker.name}: --tx asks for more devices than the host has ({found} of "
            f"{facts.device})"
        )
    ours = host_process.git_revision(root)
    if worker.folder and facts.revision != ours:
        raise FleetError(
            f"{worker.name}: {worker.folder} is at revision {facts.revision}, and this project at "
            f"{ours}: check out the same one there"
        )
