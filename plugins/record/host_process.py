"""Facts about the measuring process: its memory, its software, its checkout."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import re
import resource
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Dict, Iterable, List, Mapping, Optional, Tuple

from ipubench.fixtures.case.errors import some_of
from ipubench.fixtures.case.untrusted import printable
from ipubench.fixtures.machine.memory import peak, reset_peak
from ipubench.fixtures.machine.packages import version_of
from ipubench.plugins.record.record import is_imported
from ipubench.plugins.record.structs import Facts, Json, Record

PR_SET_PDEATHSIG = 1  # prctl(2)
PACKAGES = (
    "torch",
    "torchvision",
    "tensorflow",
    "tensorflow-probability",
    "onnxruntime",
    "openvino",
    "poptorch",
    "nvidia-pytriton",
    "tritonclient",
    "numpy",
    "pytest",
    "pytest-benchmark",
)
#: Build date and compiler of Python: without profile-guided optimisation, the same version runs
#: cases of a few microseconds over 10% slower.
MOST_CHANGES = 8  # shown in a line
REVISION = re.compile("([0-9a-f]+)((?:-dirty)?)")
#: A measurement must not trigger the programs that a repository names: its hooks and its monitor.
GIT = ("git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=")
#: Variables that a git hook or alias sets; they would point git at its own repository.
GIT_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    with contextlib.suppress(OSError, AttributeError):  # not on Linux
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class PeakMemory:
    """The highest resident memory of this process since the object was made, in bytes."""

    def __init__(self) -> None:
        self.since = "case"
        # Return freed memory to the system: the tuned allocator keeps that of earlier cases.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
        try:
            reset_peak()
        except OSError:
            self.since = "process start"

    def read(self) -> int:
        """Return the peak since ``since``."""
        found = peak()
        if found is not None:
            return found
        self.since = "process start"
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@functools.lru_cache(maxsize=None)
def versions() -> Dict[str, str]:
    """Return the versions of Python and of the installed packages that can affect a result."""
    build = f"{platform.python_compiler()}, {platform.python_build()[1]}"
    found = {"python": platform.python_version(), "python-build": " ".join(build.split())}
    for name in PACKAGES:
        version = version_of(name)
        if version:
            found[name] = version
    return found


def changes(before: Facts, now: Facts) -> List[Tuple[str, Json, Json]]:
    """Return the changed facts as (name, value before, value now); None if absent."""
    return [
        (name, before.get(name), now.get(name))
        for name in dict.fromkeys([*before, *now])
        if before.get(name) != now.get(name)
    ]


def version_changes(before: Mapping[str, str], now: Mapping[str, str]) -> List[str]:
    """Return the changed versions as text, including added and removed packages."""
    return [
        f"{name} {'none' if old is None else old} -> {'none' if new is None else new}"
        for name, old, new in changes(before, now)
    ]


def software_changes(records: Iterable[Tuple[Record, Record]]) -> str:
    """Return how the software differs between pairs of records (before, now), or ''.

    Adds the number of cases if a difference is not in all pairs.
    """
    pairs = list(records)
    found: Counter[str] = Counter()
    for before, now in pairs:
        versions = now.versions
        if is_imported(before):  # its file lists few packages
            versions = {name: versions[name] for name in before.versions if name in versions}
        found.update(version_changes(before.versions, versions))
        commits = [short_revision(one.git, 12) or "none" for one in (before, now)]
        if before.git != now.git:
            found[f"commit {commits[0]} -> {commits[1]}"] += 1
    texts = [
        printable(text, 1000) + (f" ({count} of {len(pairs)} cases)" if count < len(pairs) else "")
        for text, count in found.items()
    ]
    return some_of(texts, MOST_CHANGES)


def short_revision(revision: Optional[str], digits: int = 7) -> str:
    """Return the first digits of a commit, with -dirty if files differed, or ''.

    File names contain the result, so it allows only hexadecimal digits.
    """
    found = REVISION.fullmatch(revision or "")
    return found.group(1)[:digits] + found.group(2) if found else ""


def outside_git() -> Dict[str, str]:
    """Return this process's environment without the variables of git hooks and aliases."""
    return {name: value for name, value in os.environ.items() if name not in GIT_VARIABLES}


def git_output(folder: Path, *words: str) -> Optional[bytes]:
    """Return the output of git in a folder; None if git is missing or fails."""
    try:
        answer = subprocess.run(
            [*GIT, *words],
            cwd=str(folder),
            env=outside_git(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    except OSError:
        return None
    return answer.stdout if answer.returncode == 0 else None


@functools.lru_cache(maxsize=None)
def uncommitted_changes(folder: Path) -> Optional[str]:
    """Return a digest of what differs from the commit; None without differences, or without git."""
    changed = git_output(folder, "diff", "HEAD", "--no-ext-diff", "--no-textconv", "--binary")
    return hashlib.sha256(changed).hexdigest() if changed else None


def git_revision(folder: Path) -> Optional[str]:
    """Return the commit of the project's checkout, with -dirty if files differ, or None."""
    words = ("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    return (git_output(folder, *words) or b"").decode().strip() or None
