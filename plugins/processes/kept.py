"""Folders of the cache that runs make for later runs: complete or absent, removed when unused."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path
from typing import Callable

from ipubench.fixtures.machine.locks import LockTimeout, locked

KEPT_DAYS = 14
#: Of the program that fills a folder.
SETUP_SECONDS = 3600.0
#: Of the output of such a program, if it fails.
LAST_LINES = 15


def lock_of(folder: Path) -> Path:
    """Return the lock of a folder. Each has its own: to fill one may take an hour."""
    return Path(f"{folder}.lock")


def stamp(folder: Path) -> Path:
    """Return the file that marks a folder as complete; its time is that of the last use."""
    return folder.with_name(f"{folder.name}.used")


def is_old(folder: Path) -> bool:
    """Return whether no run has used a folder for long."""
    # A run that was killed while it made one has left no stamp.
    last = (stamp(folder) if stamp(folder).exists() else folder).stat().st_mtime
    return last < time.time() - KEPT_DAYS * 24 * 3600


def remove(folder: Path) -> None:
    """Remove a folder and its stamp, if they exist."""
    shutil.rmtree(str(folder), ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        stamp(folder).unlink()


def remove_others(folder: Path, remove: Callable[[Path], None]) -> None:
    """Call ``remove`` for the folders beside this one that no run holds, with their locks."""
    for old in filter(Path.is_dir, set(folder.parent.iterdir()) - {folder}):
        with contextlib.suppress(LockTimeout, FileNotFoundError), locked(lock_of(old), 0):
            remove(old)
