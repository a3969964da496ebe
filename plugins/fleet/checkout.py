"""Copies the project to a host, without the files that git ignores."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import tarfile
import tempfile
from pathlib import Path
from typing import IO, Any, Iterator, Tuple

from ipubench.plugins.record.host_process import git_output

#: Below the user's home folder on the host.
PLACE = ".cache/ipubench/fleet"
#: Not copied if the project is not in git.
LEFT_OUT = re.compile(r"\..*|__pycache__|.*\.pyc|results|build|node_modules")
PIECE = 1 << 20


def bring(gateway: Any, root: Path) -> Tuple[str, str]:
    """Copy the project to a host, unless it has this version.

    Returns the folder of this version on the host, and the folder for its results. Raises OSError,
    and execnet's errors if the connection is lost.
    """
    mark = hashlib.sha256(f"{platform.node()}:{root}".encode()).hexdigest()[:12]
    place = f"{PLACE}/{root.name}-{mark}"
    with tempfile.TemporaryFile() as archive:
        channel = gateway.remote_exec(_unpack, place=place, version=_write(archive, root.resolve()))
        checkout, results, is_there = channel.receive()
        archive.seek(0)
        while not is_there:
            piece = archive.read(PIECE)
            channel.send(piece)
            is_there = not piece
    channel.waitclose()
    return checkout, results


def _write(archive: IO[bytes], root: Path) -> str:
    """Write the project's files into an archive; return its digest."""

    def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(_names(root)):
            path = root / name
            if path.is_symlink() or path.is_file():
                tar.add(path, name, recursive=False, filter=anonymous)
    archive.seek(0)
    digest = hashlib.sha256()
    for piece in iter(lambda: archive.read(PIECE), b""):
        digest.update(piece)
    return digest.hexdigest()[:16]


def _names(root: Path) -> Iterator[str]:
    tracked = git_output(root, "ls-files", "-z", "--cached", "--recurse-submodules")
    others = git_output(root, "ls-files", "-z", "--others", "--exclude-standard")
    if tracked is not None and others is not None and tracked + others:
        yield from set(os.fsdecode(tracked + others).split("\0")) - {""}
        return
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not LEFT_OUT.fullmatch(name)]
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in (*files, *links):
            if not LEFT_OUT.fullmatch(name):
                yield os.path.relpath(os.path.join(folder, name), root)


def _unpack(channel, place, version):  # type: ignore[no-untyped-def]  # its text runs on the host
    import os
    import shutil
    import tarfile
    import tempfile
    import time

    home = os.path.expanduser("~")
    if not os.path.isabs(home):
        raise OSError("the user has no home folder there; set HOME, or name a folder with chdir=")
    place = os.path.join(home, place)
    os.makedirs(place, mode=0o700, exist_ok=True)
    checkout = os.path.join(place, version)
    is_there = os.path.isdir(checkout)
    channel.send((checkout, os.path.join(place, "results"), is_there))
    if not is_there:
        with tempfile.TemporaryFile() as archive:
            for piece in iter(channel.receive, b""):
                archive.write(piece)
            archive.seek(0)
            made = tempfile.mkdtemp(dir=place)
            with tarfile.open(fileobj=archive) as tar:
                tar.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
                tar.extractall(made)  # noqa: S202
        try:
            os.rename(made, checkout)
        except OSError:  # another run was faster
            shutil.rmtree(made)
    os.utime(checkout)
    for name in os.listdir(place):
        path = os.path.join(place, name)
        if name != "results" and os.stat(path).st_mtime < time.time() - 7 * 24 * 3600:
            shutil.rmtree(path)
