"""One process of a host: opened by execnet, started as a member, heard and spoken to."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import shlex
import threading
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import execnet
import pytest

from ipubench.plugins.command_line.words import typed_words
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
        return self.host.member(self.number)


@dataclass(frozen=True)
class Project:
    """What members are to run, in this machine's words."""

    root: Path
    start: Path
    words: List[str]
    members: int
    baseline: Optional[str]
    results: str  # the folder of the run's own journal
    run: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def of(cls, config: pytest.Config, members: int, baseline: Optional[str]) -> Project:
        """Take the words of this run; those of its environment come first, as pytest has them."""
        words = shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
        words = without_xdist(words + typed_words(config))
        results = config.option.results_dir
        return cls(config.rootpath, config.invocation_params.dir, words, members, baseline, results)

    def there(self, root: str) -> Tuple[str, List[str]]:
        """Return the folder to start in and the words, where the project is in ``root``."""
        start, here = self.start.resolve(), self.root.resolve()
        outside = here != start and here not in start.parents
        words = [self._moved(word, root, outside) for word in self.words]
        return (root if outside else os.path.join(root, str(start.relative_to(here)))), words

    def _moved(self, word: str, root: str, outside: bool) -> str:
        """Return a word with a path of the project, alone or as a value, as the host has it.

        A relative one is the same there, if the run has started in the project.
        """
        option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
        path, colons, rest = value.partition("::")
        if not path or not (os.path.isabs(path) or outside):
            return word
        here, wanted = self.root.resolve(), self.start / path
        with contextlib.suppress(ValueError, OSError):
            if wanted.exists():
                inside = wanted.resolve().relative_to(here)
                return f"{option}{equals}{os.path.join(root, str(inside))}{colons}{rest}"
        return word


#: Options of pytest-xdist, which a host need not have; those with a value.
OF_XDIST = ("--dist", "--tx", "--numprocesses", "-n")


def without_xdist(words: Sequence[str]) -> List[str]:
    """Return the words of a command line without those that say who measures."""
    kept: List[str] = []
    is_value = False
    for word in words:
        if is_value or word == "-d":
            is_value = False
        elif word in OF_XDIST:
            is_value = True
        elif not re.match(r"(--dist|--tx|--numprocesses)=|-n\d", word):
            kept.append(word)
    return kept


class Connection:
    """A process of a host."""

    def __init__(self, place: Place, project: Project, events: queue.Queue[Event]) -> None:
        self.place = place
        self.name = place.name
        self._project = project
        self._events = events
        self._group = execnet.Group()
        self._channel: Any = None
        self._sending = threading.Lock()

    def open(self, bring: bool) -> None:
        """Reach the host and start its member. Raises FleetError.

        ``bring``: copy the project first, where the host has none of its own.
        """
        host = self.place.host
        try:
            spec = execnet.XSpec(host.xspec(self.name))
            # Not among the words: execnet would split what has // in it.
            spec.python, spec.env = host.command, dict(host.environment)
            gateway = self._gateway(spec)
            root, results = self._project_of(gateway, bring)
            start, words = self._project.there(root)
            device = self.place.number if host.devices > 1 else None
            given = Handover(
                name=self.name,
                start=start,
                words=words,
                members=self._project.members,
                run=self._project.run,
                device_id=device,
                baseline=self._project.baseline,
                results=results,
            )
            self._channel = gateway.remote_exec(_start, root=root, given=json.dumps(asdict(given)))
        except (execnet.HostNotFound, EOFError, AssertionError, OSError) as error:
            self.close()
            # Others say no more than that the connection is closed.
            why = f" ({error})" if isinstance(error, OSError) and error.filename else ""
            raise FleetError(
                f"{self.name}: no Python of it answers{why}; this shows more: {_by_hand(host)}"
            ) from error
        except execnet.RemoteError as error:
            self.close()
            raise FleetError(
                f"{self.name}: the project cannot be brought there: {_last(error)}"
            ) from error
        except FleetError as error:
            self.close()
            raise FleetError(f"{self.name}: {error}") from error
        except Exception as error:
            self.close()
            raise FleetError(f"{self.name}: {type(error).__name__}: {error}") from error
        self._channel.setcallback(self._receive, endmarker=None)

    def _gateway(self, spec: execnet.XSpec) -> Any:
        """Start a Python of the host, with its priority and environment."""
        try:
            return self._group.makegateway(spec)
        except execnet.RemoteError as error:
            raise FleetError(
                f"nice= or env: is refused there: {_last(error)}; nice= below 0 needs root"
            ) from error

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
        with contextlib.suppress(OSError), self._sending:
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

    values = json.loads(given)
    home, start = os.path.expanduser("~"), values["start"]
    root = os.path.join(home, os.path.expanduser(root))
    if not os.path.isabs(root):
        raise OSError("the user has no home folder there; set HOME, or give chdir= a whole path")
    root = os.path.realpath(root)
    if not os.path.isdir(root):
        raise OSError("there is no folder " + root + "; chdir= names a checkout that is there")
    values["start"] = os.path.realpath(os.path.join(home, os.path.expanduser(start)))
    os.makedirs(values["start"], exist_ok=True)
    os.chdir(root)
    if os.path.isdir(os.path.join(root, "ipubench")):
        sys.path.insert(0, root)
    from ipubench.plugins.fleet.member import main

    main(channel, **values)


def _by_hand(host: HostSpec) -> str:
    """Return the command by which a user sees why a host does not answer."""
    if not host.address:
        return f"{host.command} -c 'import ipubench'"
    config = f"-F {shlex.quote(host.ssh_config)} " if host.ssh_config else ""
    return f"ssh {config}{host.address} {shlex.quote(host.command)} --version"


def _last(error: BaseException) -> str:
    """Return the last line of what went wrong on the host."""
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else "no reason was given"
