"""The hosts of a fleet: `--tx` and `--hosts=FILE`, and how execnet reaches each.

A host is written as execnet writes it, ``ssh=ADDRESS//python=PATH//chdir=FOLDER``; in a file the
address comes first and the rest is words. ``4*`` before it takes four devices of the host, each
with a process of its own.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence, Set, Tuple

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.untrusted import BadFile, read_bytes
from ipubench.fixtures.machine.files import PathError, user_path

#: Keys of execnet that a host may have, besides its address and ``env:NAME``.
KEYS = ("python", "chdir", "id", "ssh_config", "nice")
PRIORITIES = tuple(str(number) for number in range(-20, 20))
#: How ssh notices that a host is gone, and never asks for a password in the middle of a run.
SSH_OPTIONS = (
    *("-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"),
)
PYTHON = "python3"
#: Variables that Python, the loader and the C library read once, when a process starts.
READ_AT_START = re.compile(r"(PYTHON|LD_|MALLOC_)\w*|GLIBC_TUNABLES")
LOCAL = "popen"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
MOST_BYTES = 1 << 20
MOST_DEVICES = 1024


class FleetError(CaseError):
    """A fleet cannot be had, or lost its way; the message says which host, and what to do."""


@dataclass(frozen=True)
class HostSpec:
    """A host as it was asked for."""

    address: str  # of ssh; '' is this machine
    name: str
    devices: int = 1  # processes, each with a device of its own
    python: Optional[str] = None
    folder: Optional[str] = None  # where its checkout is; None: it is brought there
    ssh_config: Optional[str] = None
    nice: Optional[str] = None
    environment: Dict[str, str] = field(default_factory=dict)

    def member(self, number: int) -> str:
        """Return what the process with this number is called everywhere."""
        return self.name if self.devices == 1 else f"{self.name}.{number}"

    @property
    def command(self) -> str:
        """Return what starts a Python of this host, as its shell has it.

        Of the environment it has what is read only then; all the rest is set in the process, where
        no other user of the host sees it.
        """
        python = self.python or (PYTHON if self.address else shlex.quote(sys.executable))
        read = [
            f"{name}={shlex.quote(value)}"
            for name, value in self.environment.items()
            if READ_AT_START.fullmatch(name)
        ]
        return " ".join(["env", *read, python]) if read else python

    def xspec(self, name: str) -> str:
        """Return the words by which execnet reaches this host: all but what starts there."""
        words = [f"id={name}", "execmodel=main_thread_only"]
        words.append("ssh=" + " ".join([*SSH_OPTIONS, self.address]) if self.address else LOCAL)
        given = {"ssh_config": self.ssh_config, "nice": self.nice}
        words += [f"{key}={value}" for key, value in given.items() if value is not None]
        return "//".join(words)


def of_tx(specs: Sequence[str]) -> List[HostSpec]:
    """Return the hosts of ``--tx``. Raises FleetError."""
    return _named(_parse(text, text.split("//"), f"--tx={text}") for text in specs)


def of_file(name: str) -> List[HostSpec]:
    """Return the hosts of ``--hosts=FILE``, one a line. Raises FleetError."""
    return _named(_lines(name))


def _lines(name: str) -> Iterator[Tuple[HostSpec, str]]:
    try:
        path = user_path(name)
        text = read_bytes(path, MOST_BYTES).decode("utf-8")
    except FileNotFoundError:
        raise FleetError(f"--hosts={name}: there is no such file; write one host a line") from None
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, BadFile) else error
        raise FleetError(f"--hosts={name}: the file cannot be read: {reason}") from error
    found = list(_hosts(path, text))
    if not found:
        raise FleetError(f"--hosts={name}: the file names no host; write one a line")
    yield from found


def _hosts(path: Path, text: str) -> Iterator[Tuple[HostSpec, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{path}, line {number}"
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise FleetError(f"{where}: {error}") from error
        if words:
            count, _, address = words[0].rpartition("*")
            first = address if address == LOCAL or "=" in address else f"ssh={address}"
            words[0] = f"{count}*{first}" if count else first
            yield _parse(line.strip(), words, where)


def _parse(text: str, words: Sequence[str], where: str) -> Tuple[HostSpec, str]:
    """Return a host without a final name, and where it was written."""
    count, star, first = words[0].rpartition("*")
    try:
        devices = int(count) if star else 1
    except ValueError:
        devices = 0
    if not 1 <= devices <= MOST_DEVICES:
        raise FleetError(f"{where}: {count}* is no number of devices; write 4*ssh=ADDRESS")
    given: Dict[str, str] = {}
    environment: Dict[str, str] = {}
    for word in (first, *words[1:]):
        key, _, value = word.partition("=")
        if key.startswith("env:"):
            environment[key[len("env:") :]] = value
        elif key in given:
            raise FleetError(f"{where}: {key} is there twice")
        else:
            given[key] = value
    address = _address(given, where)
    unknown = sorted(set(given) - set(KEYS))
    if unknown:
        known = ", ".join((*KEYS, "env:NAME"))
        raise FleetError(f"{where}: {unknown[0]} is no word for a host; there are: {known}")
    empty = [key for key, value in given.items() if not value]
    if empty:
        raise FleetError(f"{where}: {empty[0]}= names nothing")
    nice = given.get("nice", "0")
    if nice not in PRIORITIES:
        raise FleetError(f"{where}: nice={nice} is no priority; give a number from -20 to 19")
    if not all(re.fullmatch(r"\w+", key) for key in environment):
        raise FleetError(f"{where}: env: needs a name, as in env:NAME=VALUE")
    ssh_config = given.get("ssh_config")
    name = given.get("id") or address.split("@")[-1] or platform.node() or "here"
    if not NAME.fullmatch(name):
        raise FleetError(f"{where}: {name!r} cannot name a host; give it one with id=NAME")
    folder = given.get("chdir")
    if not address and folder is not None:
        try:
            folder = str(user_path(folder).absolute())
        except PathError as error:
            raise FleetError(f"{where}: {error}") from error
    return HostSpec(
        address=address,
        name=name,
        devices=devices,
        python=given.get("python"),
        folder=folder,
        # execnet separates its words by //.
        ssh_config=None if ssh_config is None else os.path.normpath(ssh_config),
        nice=given.get("nice"),
        environment=environment,
    ), where


def _address(given: Dict[str, str], where: str) -> str:
    """Take the address of a host from its words: '' is this machine."""
    if LOCAL in given:
        given.pop(LOCAL)
        return ""
    address = given.pop("ssh", "")
    # A word that begins with a hyphen would be an option of ssh.
    if not address or address.startswith("-") or len(address.split()) != 1:
        raise FleetError(
            f"{where}: a host begins with its address, ssh=ADDRESS, or is {LOCAL}, this machine"
        )
    if "//" in address:  # execnet separates its words by it
        raise FleetError(
            f"{where}: {address} is a URL; write USER@HOST, and a port in a file that ssh_config= "
            "names"
        )
    return address


def _named(found: Iterator[Tuple[HostSpec, str]]) -> List[HostSpec]:
    """Return the hosts once their names are known to differ."""
    hosts: Dict[str, HostSpec] = {}
    taken: Set[str] = set()
    for host, where in found:
        members = {host.member(number) for number in range(host.devices)}
        if host.name in hosts or taken & members:
            raise FleetError(
                f"{where}: {host.name} is there twice; to take several devices of a host write "
                f"2*, to have it twice give each a name with id=NAME"
            )
        hosts[host.name] = host
        taken |= members
    return list(hosts.values())
