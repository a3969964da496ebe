"""The hosts of a run: `--tx` and `--hosts=FILE`, and the command that starts a Python on each.

``--tx`` has execnet's syntax, ``ssh=ADDRESS//python=PATH//chdir=FOLDER``. In a file, blanks
separate the fields and the address comes first. ``4*`` before it uses four devices of the host,
each with a worker.
"""

from __future__ import annotations

import platform
import re
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.untrusted import read_bytes
from ipubench.fixtures.machine.files import PathError, user_path
from ipubench.plugins.command_line.role import LOCAL

#: The fields of a host, besides its address and ``env:NAME``.
KEYS = ("python", "chdir", "id", "ssh_config")
#: ssh notices a lost host, and never asks for a password during a run.
SSH_OPTIONS = (
    *("-C", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"),
)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
MOST_BYTES = 1 << 20
MOST_DEVICES = 1024


class FleetError(CaseError):
    """A host cannot be used; the message has the host, and what to do."""


@dataclass(frozen=True)
class HostSpec:
    """A host as the command line or the file describes it."""

    address: str  # for ssh; '' is this machine
    name: str
    devices: int = 1  # workers, each with a device
    python: Optional[str] = None
    folder: Optional[str] = None  # of a checkout there; None: the project is copied
    ssh_config: Optional[str] = None
    environment: Dict[str, str] = field(default_factory=dict)

    def worker(self, number: int) -> str:
        """Return the name of the worker with this number."""
        return self.name if self.devices == 1 else f"{self.name}.{number}"

    def command(self, *arguments: str) -> str:
        """Return the shell command that starts this host's Python with ``arguments``."""
        if not self.address:
            return " ".join([self.python or sys.executable, *arguments])
        given = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        remote = " ".join(["env", *given, self.python or "python3", *arguments])
        config = ["-F", self.ssh_config] if self.ssh_config else []
        return shlex.join(["ssh", *SSH_OPTIONS, *config, self.address, remote])

    @property
    def interpreter(self) -> Optional[str]:
        """Return the command that execnet starts as a local Python; None: this Python.

        execnet appends ``-u -c PROGRAM``. PROGRAM has no single quotes, and the host's shell parses
        it too.
        """
        if not self.address:
            return self.python
        script = self.command("-u", "-c", "PROGRAM").replace("PROGRAM", """'"'$3'"'""")
        return shlex.join(["sh", "-c", f"exec {script}", "sh"])


def of_tx(specs: Sequence[str]) -> List[HostSpec]:
    """Return the hosts of ``--tx``. Raises FleetError."""
    return _named(_parse(text.split("//"), f"--tx={text}") for text in specs)


def of_file(name: str) -> List[HostSpec]:
    """Return the hosts of ``--hosts=FILE``, one per line. Raises FleetError."""
    try:
        text = read_bytes(user_path(name), MOST_BYTES).decode("utf-8")
    except (OSError, ValueError) as error:
        raise FleetError(f"--hosts={name}: the file cannot be read: {error}") from error
    found = _named(_lines(Path(name), text))
    if not found:
        raise FleetError(f"--hosts={name}: the file lists no host; write one per line")
    return found


def _lines(path: Path, text: str) -> Iterator[Tuple[HostSpec, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{path}, line {number}"
        try:
            fields = shlex.split(line, comments=True)
        except ValueError as error:
            raise FleetError(f"{where}: {error}") from error
        if fields:
            count, _, address = fields[0].rpartition("*")
            first = address if address == LOCAL or "=" in address else f"ssh={address}"
            fields[0] = f"{count}*{first}" if count else first
            yield _parse(fields, where)


def _parse(fields: Sequence[str], where: str) -> Tuple[HostSpec, str]:
    """Return a host, and the place that declares it."""
    count, star, first = fields[0].rpartition("*")
    devices = int(count) if count.isdecimal() else int(not star)
    if not 1 <= devices <= MOST_DEVICES:
        raise FleetError(f"{where}: {count}* is not a number of devices; write 4*ssh=ADDRESS")
    given: Dict[str, str] = {}
    environment: Dict[str, str] = {}
    for text in (first, *fields[1:]):
        key, _, value = text.partition("=")
        found = environment if key.startswith("env:") else given
        found[key[len("env:") :] if found is environment else key] = value
    address = _address(given, where)
    unknown = sorted(set(given) - set(KEYS))
    if unknown:
        known = ", ".join((*KEYS, "env:NAME"))
        raise FleetError(f"{where}: {unknown[0]} is not an option of a host; there are: {known}")
    empty = [key for key, value in given.items() if not value]
    if empty:
        raise FleetError(f"{where}: {empty[0]}= is empty")
    if not all(re.fullmatch(r"\w+", key) for key in environment):
        raise FleetError(f"{where}: env: needs a name, as in env:NAME=VALUE")
    name = given.get("id") or address.split("@")[-1] or platform.node() or "here"
    if not NAME.fullmatch(name):
        raise FleetError(f"{where}: {name!r} cannot name a host; give it one with id=NAME")
    folder = given.get("chdir")
    if not address and folder is not None:
        try:
            folder = str(user_path(folder).absolute())
        except PathError as error:
            raise FleetError(f"{where}: {error}") from error
    python, ssh_config = given.get("python"), given.get("ssh_config")
    return HostSpec(address, name, devices, python, folder, ssh_config, environment), where


def _address(given: Dict[str, str], where: str) -> str:
    """Take the address from a host's fields; '' is this machine."""
    if LOCAL in given:
        given.pop(LOCAL)
        return ""
    address = given.pop("ssh", "")
    # ssh would take an address that begins with a hyphen for an option.
    if not address or address.startswith("-") or len(address.split()) != 1:
        raise FleetError(
            f"{where}: a host begins with its address, ssh=ADDRESS, or is {LOCAL}, this machine"
        )
    return address


def _named(found: Iterable[Tuple[HostSpec, str]]) -> List[HostSpec]:
    """Return the hosts. Raises FleetError if two have the same name."""
    hosts: List[HostSpec] = []
    taken: Dict[str, str] = {}
    for host, where in found:
        for name in {host.name, *map(host.worker, range(host.devices))}:
            if taken.setdefault(name, where) != where or host in hosts:
                raise FleetError(
                    f"{where}: {host.name} is there twice; to use several devices of a host "
                    "write 2*, to use it twice give each a name with id=NAME"
                )
        hosts.append(host)
    return hosts
