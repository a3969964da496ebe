"""Addresses on which the processes of a run listen, from the kernel."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Dict, Iterator, Mapping, Optional, Set, Tuple

from tests.support.harness import Outcome, SuiteServer, start_pytest

LISTEN = "0A"
# 127.0.0.1 and ::1 as a little-endian kernel writes them.
LOOPBACK = ("0100007F", "00000000000000000000000001000000")


def family(pid: int, links: Optional[Path] = None) -> Set[int]:
    """Return a process and its descendants, including those that a starter started for them."""
    parents: Dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                text = Path("/proc", entry, "stat").read_text(errors="replace")
                parents[int(entry)] = int(text.rpartition(")")[2].split()[1])
    pairs = set(parents.items())
    for line in links.read_text().splitlines() if links else ():
        parent, child = map(int, line.split())
        pairs.add((child, parent))
    found = {pid}
    while True:
        more = {child for child, parent in pairs if parent in found} - found
        if not more:
            return found
        found |= more


def sockets_of(pid: int) -> Iterator[str]:
    """Yield the inodes of a process's open sockets; none if it is gone."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                name = os.readlink(entry.path)
                if name.startswith("socket:["):
                    yield name[len("socket:[") : -1]


def listening(pid: int, links: Optional[Path] = None) -> Set[str]:
    """Return the hexadecimal addresses, without ports, on which a process or a descendant listens.

    TCP over IPv4 and IPv6.
    """
    owned = {inode for member in family(pid, links) for inode in sockets_of(member)}
    return {address for inode, address in sockets_that_listen() if inode in owned}


def sockets_that_listen() -> Iterator[Tuple[str, str]]:
    """Yield the inode and the address of each socket of the machine that listens."""
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path("/proc/net", name).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == LISTEN:
                    yield words[9], words[1].partition(":")[0]


def watched_run(
    folder: Path, environment: Mapping[str, str], *words: str, framework: str = ""
) -> Tuple[Outcome, Set[str]]:
    """Run ``pytest WORDS``; return its result and all addresses that it listened on."""
    seen: Set[str] = set()
    known: Set[str] = set()
    run = start_pytest(folder, environment, *words, framework=framework, plain=False)
    links = SuiteServer.files(framework).links
    while run.is_running():
        there = {inode for inode, _ in sockets_that_listen()}
        if there - known:  # finding their owner means reading every process
            seen |= listening(run.pid, links)
        known |= there
        time.sleep(0.05)
    return run.wait(), seen
