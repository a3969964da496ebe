"""The project on a host: its own checkout of the same revision, or this one brought along."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import stat
from pathlib import Path
from typing import Any, FrozenSet, Optional

import execnet

from ipubench.plugins.fleet.hosts import FleetError
from ipubench.plugins.record.host_process import git_says

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
        """Tell whether a file or folder goes along: pipes and sockets cannot."""
        kind = os.lstat(path).st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind) or stat.S_ISLNK(kind)):
            return False
        if self._files is None:
            return LEFT_OUT.fullmatch(os.path.basename(path)) is None
        return path in self._files

    def stamp(self) -> str:
        """Return what changes where a file does: its name, mode, size, time or target.

        Raises FleetError where a name cannot travel.
        """
        found = hashlib.sha256()
        for folder, folders, files in os.walk(str(self._sourcedir)):
            folders[:] = sorted(name for name in folders if self.filter(os.path.join(folder, name)))
            for name in sorted([*files, *folders]):
                path = os.path.join(folder, name)
                if not self.filter(path):
                    continue
                status = os.lstat(path)
                target = os.readlink(path) if stat.S_ISLNK(status.st_mode) else ""
                known = [status.st_mode]
                if not stat.S_ISDIR(status.st_mode):
                    known += [status.st_size, status.st_mtime_ns]
                try:
                    found.update(f"{path}\0{known}\0{target}\n".encode())
                except UnicodeEncodeError:
                    raise FleetError(
                        f"the project cannot be brought there: the name {path!a}, or of what it "
                        "links to, is not UTF-8; rename it, have git ignore it, or give the host "
                        "a checkout of its own with chdir="
                    ) from None
        return found.hexdigest()

    def _broadcast(self, msg: object) -> None:
        """Have the owner write to each copy of a file: a later one must be able to replace it."""
        if isinstance(msg, tuple) and msg[0] is not None:
            msg = (msg[0] | stat.S_IWUSR, *msg[1:])
        super()._broadcast(msg)

    def _send_link(self, linktype: Any, basename: str, linkpoint: str) -> None:
        """Send a relative link as it is; execnet takes it from the working directory."""
        target = os.readlink(os.path.join(str(self._sourcedir), basename))
        if not os.path.isabs(target):
            linktype, linkpoint = "link", target
        super()._send_link(linktype, basename, linkpoint)


def _files_of_git(root: Path) -> Optional[FrozenSet[str]]:
    """Return the project's files and their folders; None where git does not tell them all."""
    tracked = git_says(root, "ls-files", "-z", "--cached", "--recurse-submodules")
    others = git_says(root, "ls-files", "-z", "--others", "--exclude-standard")
    if tracked is None or others is None or not tracked + others:
        return None
    names = tracked + others
    found = set()
    for name in os.fsdecode(names).split("\0"):
        path = root / name
        while name and path != root and str(path) not in found:
            found.add(str(path))
            path = path.parent
    return frozenset(found)


def bring(gateway: Any, root: Path) -> str:
    """Copy what changed of the project to a host; return the folder made for it there.

    Another process of that host, or of one that has the same home folder, waits meanwhile, and
    nothing is touched where the project is there as it is here. Raises FleetError, OSError, and
    what execnet raises where the host goes away.
    """
    project = Project(root.resolve())
    stamp = project.stamp()
    where = place(gateway, root)
    if not gateway.remote_exec(_take, folder=where, stamp=stamp).receive():
        project.add_target(gateway, f"{where}/{CHECKOUT}", delete=True)
        project.send()
    gateway.remote_exec(_leave, stamp=stamp).waitclose()
    return where


def place(gateway: Any, root: Path) -> str:
    """Return the folder of a project on a host; execnet raises where the user has no home there."""
    found: str = gateway.remote_exec(_below_home, name=place_of(root)).receive()
    return found


def _below_home(channel, name):  # type: ignore[no-untyped-def]  # its text runs on the host
    import os

    home = os.path.expanduser("~")
    if not os.path.isabs(home):
        raise OSError("the user has no home folder there; set HOME, or name a folder with chdir=")
    channel.send(os.path.join(home, name))


def _take(channel, folder, stamp):  # type: ignore[no-untyped-def]  # its text runs on the host
    import fcntl
    import os
    import sys

    os.makedirs(folder, mode=0o700, exist_ok=True)
    lock = open(os.path.join(folder, "lock"), "a+")  # noqa: SIM115  open until _leave
    fcntl.flock(lock, fcntl.LOCK_EX)
    lock.seek(0)
    vars(sys)["ipubench_lock"] = lock
    is_same = lock.read() == stamp
    if not is_same:
        lock.truncate(0)  # until all is there
    channel.send(is_same)


def _leave(channel, stamp):  # type: ignore[no-untyped-def]  # its text runs on the host
    import sys

    with vars(sys)["ipubench_lock"] as lock:
        lock.truncate(0)
        lock.write(stamp)
