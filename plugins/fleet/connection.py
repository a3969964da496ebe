"""One process of a host: opened by execnet, started as a member, heard and spoken to."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import execnet
import pytest

from ipubench.plugins.fleet import checkout
from ipubench.plugins.fleet.hosts import FleetError, HostSpec
from ipubench.plugins.fleet.member import GONE, Handover

#: Of a process that is to end by itself.
END_SECONDS = 10.0
#: (name of the member, what happened, values)
Event = Tuple["Connection", str, Dict[str, Any]]


@dataclass(frozen=True)
class Place:
    """A member before it is started: which host, and which of its devices."""

    host: HostSpec
    number: int

    @property
    def name(self) -> str:
        """What the member is called everywhere."""
        return self.host.name if self.host.devices == 1 else f"{self.host.name}.{self.number}"


@dataclass(frozen=True)
class Project:
    """What members are to run, in this machine's words."""

    root: Path
    start: Path
    words: List[str]
    members: int
    baseline: Optional[str]
    results: str  # the folder of the run's own journal

    @classmethod
    def of(cls, config: pytest.Config, members: int, baseline: Optional[str]) -> Project:
        """Take the words of this run; those of its environment come first, as pytest has them."""
        words = shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
        words += [str(word) for word in config.invocation_params.args]
        results = config.option.results_dir
        return cls(config.rootpath, config.invocation_params.dir, words, members, baseline, results)

    def there(self, root: str) -> Tuple[str, List[str]]:
        """Return the folder to start in and the words, where the project is in ``root``."""
        with contextlib.suppress(ValueError):
            inside = self.start.relative_to(self.root)
            moved = [_moved(word, str(self.root), root) for word in self.words]
            return os.path.join(root, str(inside)), moved
        return root, list(self.words)


def _moved(word: str, before: str, after: str) -> str:
    """Return a word with a path of the project, alone or as a value, as the host has it."""
    option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    inside = value == before or value.startswith((f"{before}/", f"{before}::"))
    return f"{option}{equals}{after}{value[len(before) :]}" if inside else word


class Connection:
    """A process of a host."""

    def __init__(self, place: Place, project: Project, events: queue.Queue[Event]) -> None:
        self.place = place
        self.name = place.name
        self._project = project
        self._events = events
        self._group = execnet.Group()
        self._channel: Any = None

    def open(self, bring: bool) -> None:
        """Reach the host and start its member. Raises FleetError.

        ``bring``: copy the project first, where the host has none of its own.
        """
        host = self.place.host
        try:
            gateway = self._group.makegateway(host.xspec(self.name))
            root, results = self._project_of(gateway, bring)
            start, words = self._project.there(root)
            device = self.place.number if host.devices > 1 else None
            given = Handover(
                name=self.name,
                start=start,
                words=words,
                members=self._project.members,
                device_id=device,
                baseline=self._project.baseline,
                results=results,
            )
            self._channel = gateway.remote_exec(_start, root=root, given=json.dumps(asdict(given)))
        except (execnet.HostNotFound, EOFError, AssertionError, OSError) as error:
            self.close()
            why = f" ({error})" if isinstance(error, OSError) else ""
            raise FleetError(
                f"{self.name}: no Python of it answers{why}; this shows more: {_by_hand(host)}"
            ) from error
        except execnet.RemoteError as error:
            self.close()
            raise FleetError(
                f"{self.name}: the project cannot be brought: {_last(error)}"
            ) from error
        self._channel.setcallback(self._receive, endmarker=None)

    def _project_of(self, gateway: Any, bring: bool) -> Tuple[str, Optional[str]]:
        """Return the project's folder on the host, and where its journals go; None: as usual."""
        host, root = self.place.host, self._project.root
        if host.folder is not None:
            return host.folder, None
        if not host.address:
            return str(root), f"{self._project.results}/{self.name}"
        place = checkout.bring(gateway, root) if bring else checkout.place(gateway, root)
        return f"{place}/{checkout.CHECKOUT}", f"{place}/{checkout.RESULTS}"

    def _receive(self, text: Optional[str]) -> None:
        """Pass on what the member says, in execnet's thread."""
        name, values = (GONE, {}) if text is None else json.loads(text)
        self._events.put((self, name, values))

    def send(self, name: str, **values: Any) -> None:
        """Tell the member something; that it is gone is an event of its own."""
        if self._channel is None:
            return
        with contextlib.suppress(OSError):
            self._channel.send(json.dumps([name, values]))

    def why_gone(self) -> str:
        """Say why a member that is gone has ended, as far as anybody knows."""
        try:
            self._channel.waitclose(1.0)
        except execnet.RemoteError as error:
            return _last(error)
        except (EOFError, OSError):
            return "the connection was lost, or its process was killed"
        return "its process ended"

    def close(self) -> None:
        """End the connection, and with it the process."""
        with contextlib.suppress(OSError, EOFError):
            self._group.terminate(END_SECONDS)


def _start(channel, root, given):  # type: ignore[no-untyped-def]  # its text runs on the host
    import json
    import os
    import sys

    root = os.path.expanduser(root)
    values = json.loads(given)
    values["start"] = os.path.expanduser(values["start"])
    os.chdir(root)
    if os.path.isdir(os.path.join(root, "ipubench")):
        sys.path.insert(0, root)
    from ipubench.plugins.fleet.member import main

    main(channel, **values)


def _by_hand(host: HostSpec) -> str:
    """Return the command by which a user sees why a host does not answer."""
    python = host.python or "python3"
    if not host.address:
        return f"{python} -c 'import ipubench'"
    config = f"-F {shlex.quote(host.ssh_config)} " if host.ssh_config else ""
    return f"ssh {config}{host.address} {shlex.quote(python)} --version"


def _last(error: BaseException) -> str:
    """Return the last line of what went wrong on the host."""
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else "no reason was given"
