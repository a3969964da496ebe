"""The workers on hosts: each uses a device there, and the same revision of the project."""

from __future__ import annotations

import contextlib
import inspect
import os
import shlex
import threading
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import execnet
import pytest
import xdist.remote

from ipubench.fixtures.case.errors import counted
from ipubench.fixtures.case.untrusted import read_bytes
from ipubench.fixtures.command_line import change_options, options_of
from ipubench.plugins.baseline.format import MOST_BYTES, BaselineError
from ipubench.plugins.baseline.store import baseline_path
from ipubench.plugins.command_line.arguments import passed_arguments
from ipubench.plugins.fleet.checkout import bring
from ipubench.plugins.fleet.facts import HostFacts, differing_versions
from ipubench.plugins.fleet.hosts import FleetError, HostSpec
from ipubench.plugins.fleet.schedule import sharing
from ipubench.plugins.fleet.worker import PULSE_SECONDS, THERE
from ipubench.plugins.fleet.xdist_adapter import why_lost
from ipubench.plugins.record import host_process
from ipubench.plugins.state import run_of


class RemoteHosts:
    """The workers of all hosts, by name."""

    #: If a case crashes on two hosts, the case is the cause.
    most_losses = 2

    def __init__(self, config: pytest.Config, found: Sequence[HostSpec]) -> None:
        self.config = config
        self._places = {host.worker(n): (host, n) for host in found for n in range(host.devices)}
        self.names = list(self._places)
        self.facts: Dict[str, HostFacts] = {}
        self.devices: Dict[str, int] = {}
        self.turns: Dict[str, str] = {}
        #: Host -> the folders of the project's copy and of its results.
        self._copied: Dict[str, Tuple[str, str]] = {}
        self._baseline = _text_of_baseline(config)

    def describe(self, name: str, spec: Any) -> None:
        """Set the Python that execnet's ``spec`` starts on a host."""
        host = self._places[name][0]
        spec.python = host.interpreter
        spec.env = {} if host.address else dict(host.environment)

    def opened(self, name: str, gateway: Any) -> None:
        """Copy the project to a connected host. Raises FleetError."""
        host = self._places[name][0]
        try:
            gateway.remote_exec("channel.send(None)").receive()
            if host.address and host.folder is None:
                self._copied[host.name] = bring(gateway, self.config.rootpath)
        except execnet.RemoteError as error:
            why = why_lost(error)
            raise FleetError(f"{name}: the project cannot be copied there: {why}") from error
        except (EOFError, OSError):
            raise self.unreachable(name) from None

    def unreachable(self, name: str) -> FleetError:
        """Return the error for a host that does not answer, with a command that shows the cause."""
        command = self._places[name][0].command("-c", shlex.quote("import xdist"))
        return FleetError(f"{name}: its Python does not answer; this shows more: {command}")

    def handover(self, name: str) -> Dict[str, Any]:
        """Return the settings that a worker gets at its start."""
        host, number = self._places[name]
        root, results = str(self.config.rootpath), ""  # '': --results-dir as given
        if host.folder is not None:
            root = host.folder
        elif host.address:
            root, results = self._copied[host.name]
        else:
            results = str(Path(options_of(self.config).results_dir).absolute() / name)
        start, arguments = self._translated(root)
        return {
            "host": {
                "root": root,
                "start": start,
                "arguments": arguments,
                "program": inspect.getsource(xdist.remote),
                "results": results,
                "baseline": self._baseline,
            },
            "device_id": number if host.devices > 1 else None,
            "in_turns": False,
        }

    def _translated(self, root: str) -> Tuple[str, List[str]]:
        """Return the folder to start in, below ``root``, and the command line for the host.

        Paths in the project become the host's paths. Relative ones stay if the run has started in
        the project.
        """
        start = self.config.invocation_params.dir.resolve()
        here = self.config.rootpath.resolve()
        outside = here != start and here not in start.parents

        def moved(text: str) -> str:
            option, equals, value = text.partition("=") if text.startswith("-") else ("", "", text)
            path, colons, rest = value.partition("::")
            if path and (os.path.isabs(path) or outside):
                with contextlib.suppress(ValueError, OSError):
                    inside = (start / path).resolve(strict=True).relative_to(here)
                    return f"{option}{equals}{os.path.join(root, str(inside))}{colons}{rest}"
            return text

        arguments = list(map(moved, passed_arguments(self.config)))
        return ("." if outside else str(start.relative_to(here))), arguments

    def check(self, facts: Dict[str, Any]) -> List[str]:
        """Check the hosts' facts; return lines that describe the hosts. Raises FleetError."""
        self.facts = {name: HostFacts(**facts[name]) for name in self.names}
        kinds = {one.device for one in self.facts.values()}
        if len(kinds) > 1:
            found_kinds = ", ".join(f"{name}: {one.device}" for name, one in self.facts.items())
            raise FleetError(
                f"the hosts have several kinds of device ({found_kinds}): add --device=KIND"
            )
        for name, (host, _) in self._places.items():
            _check(name, self.facts[name], host, self.config.rootpath)
            found = self.facts[name].devices
            self.devices[name] = len(found) if found and host.devices == 1 else 1
        self.turns = sharing(self.facts)
        run = run_of(self.config)
        run.selection.device = kinds.pop()
        change_options(self.config, device=run.selection.device)
        run.machines = list(self.facts.values())
        lines = [f"  {n}: {one.description} ({one.name})" for n, one in self.facts.items()]
        differing = differing_versions(self.facts)
        return [f"fleet of {counted(len(lines), 'worker')}:", *lines, *differing]

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


def _check(name: str, facts: HostFacts, host: HostSpec, root: Path) -> None:
    """Raise FleetError if a host has another revision of the project, or too few devices."""
    if host.devices > len(facts.devices or [0]):
        what = f"{len(facts.devices or [0])} of {facts.device}"
        raise FleetError(f"{name}: {host.devices}* asks for more devices than it has ({what})")
    ours = host_process.git_revision(root)
    if host.folder and facts.revision != ours:
        raise FleetError(
            f"{name}: {host.folder} is at revision {facts.revision}, and this project at {ours}: "
            "check out the same one there, or leave out chdir= to have this one copied"
        )
