"""The project on a host: its own checkout of the same revision, or this one brought along."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any, FrozenSet, Optional

import execnet

#: Below the home folder of the user there.
PLACE = ".cache/ipubench/fleet"
CHECKOUT, RESULTS = "checkout", "results"
#: Left out where git does not say what belongs to the project.
LEFT_OUT = re.compile(r"\..*|__pycache__|.*\.pyc|results|build|node_modules")


def place_of(root: Path) -> str:
    """Return the folder on a host, below the home folder, that a project of this machine has there.

    Each checkout has one of its own, so that two of them never replace each other's files. The
    project is in its CHECKOUT, what is measured there in RESULTS.
    """
    mark = hashlib.sha256(f"{platform.node()}:{root}".encode()).hexdigest()[:12]
    return f"{PLACE}/{root.name}-{mark}"


class Project(execnet.RSync):
    """Copies what belongs to a project: what git tracks or would, without what it ignores."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root), verbose=False)
        self._files = _files_of_git(root)

    def filter(self, path: str) -> bool:
        """Tell whether a file or folder goes along."""
        if self._files is None:
            return LEFT_OUT.fullmatch(os.path.basename(path)) is None
        return path in self._files

    def _send_link(self, linktype: Any, basename: str, linkpoint: str) -> None:
        """Send a relative link as it is; execnet takes it from the working directory."""
        target = os.readlink(os.path.join(str(self._sourcedir), basename))
        if not os.path.isabs(target):
            linktype, linkpoint = "link", target
        super()._send_link(linktype, basename, linkpoint)


def _files_of_git(root: Path) -> Optional[FrozenSet[str]]:
    """Return the project's files and their folders; None where git knows nothing of it."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        answer = subprocess.run(
            command,
            cwd=str(root),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    except OSError:
        return None
    if answer.returncode != 0 or not answer.stdout:
        return None
    found = set()
    for name in os.fsdecode(answer.stdout).split("\0"):
        path = root / name
        while name and path != root and str(path) not in found:
            found.add(str(path))
            path = path.parent
    return frozenset(found)


def bring(gateway: Any, root: Path) -> str:
    """Copy what changed of the project to a host; return the folder made for it there.

    Raises OSError, and what execnet raises where the host goes away.
    """
    where = place(gateway, root)
    project = Project(root)
    project.add_target(gateway, f"{where}/{CHECKOUT}", delete=True)
    project.send()
    return where


def place(gateway: Any, root: Path) -> str:
    """Return the folder of a project on a host."""
    found: str = gateway.remote_exec(_below_home, name=place_of(root)).receive()
    return found


def _below_home(channel, name):  # type: ignore[no-untyped-def]  # its text runs on the host
    import os

    channel.send(os.path.join(os.path.expanduser("~"), name))
