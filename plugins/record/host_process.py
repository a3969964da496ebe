"""The measuring process itself: its end, its memory, what it runs with."""

from __future__ import annotations

import contextlib
import ctypes
import functools
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
#: When and by which compiler Python was built: without profile-guided optimisation the same version
#: runs cases of few microseconds more than a tenth slower.
MOST_CHANGES = 8  # of a line
REVISION = re.compile("([0-9a-f]+)((?:-dirty)?)")
#: Of a git hook or alias that runs us. Git would look at its repository, whatever folder is meant.
GIT_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")


def end_with_parent() -> None:
    """Have the kernel kill this process when the one that started it ends, however it ends."""
    with contextlib.suppress(OSError, AttributeError):  # not on Linux
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class PeakMemory:
    """The highest resident memory of this process since the object was made, in bytes."""

    def __init__(self) -> None:
        self.since = "case"
        # What earlier cases freed the tuned allocator keeps, and it would count as ours.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
        try:
            reset_peak()
        except OSError:
            self.since = "process start"

    def read(self) -> int:
        """Return the peak so far; ``since`` says from when it counts."""
        found = peak()
        if found is not None:
            return found
        self.since = "process start"
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@functools.lru_cache(maxsize=None)
def versions() -> Dict[str, str]:
    """Return the version of Python and of every installed package that can change a number."""
    build = f"{platform.python_compiler()}, {platform.python_build()[1]}"
    found = {"python": platform.python_version(), "python-build": " ".join(build.split())}
    for name in PACKAGES:
        version = version_of(name)
        if version:
            found[name] = version
    return found


def changes(before: Facts, now: Facts) -> List[Tuple[str, Json, Json]]:
    """Return what has another value: its name, the value before and the one now, or None."""
    return [
        (name, before.get(name), now.get(name))
        for name in dict.fromkeys([*before, *now])
        if before.get(name) != now.get(name)
    ]


def version_changes(before: Mapping[str, str], now: Mapping[str, str]) -> List[str]:
    """Return in words what has another version now, was not there before, or is no longer there."""
    return [
        f"{name} {'none' if old is None else old} -> {'none' if new is None else new}"
        for name, old, new in changes(before, now)
    ]


def software_changes(records: Iterable[Tuple[Record, Record]]) -> str:
    """Return in words how the software of records, pairs of before and now, differs; or ''.

    What differs in some of the pairs alone says in how many.
    """
    pairs = list(records)
    found: Counter[str] = Counter()
    for before, now in pairs:
        found.update(version_changes(before.versions, now.versions))
        commits = [short_revision(one.git, 12) or "none" for one in (before, now)]
        if before.git != now.git:
            found[f"commit {commits[0]} -> {commits[1]}"] += 1
    texts = [
        printable(text) + (f" ({count} of {len(pairs)} cases)" if count < len(pairs) else "")
        for text, count in found.items()
    ]
    return some_of(texts, MOST_CHANGES)


def short_revision(revision: Optional[str], digits: int = 7) -> str:
    """Return the first digits of a commit, with -dirty where files differed; '' without one.

    It is a part of file names, so nothing else may be in it.
    """
    found = REVISION.fullmatch(revision or "")
    return found.group(1)[:digits] + found.group(2) if found else ""


def outside_git() -> Dict[str, str]:
    """Return this process's environment as it is where neither a hook nor an alias runs us."""
    return {name: value for name, value in os.environ.items() if name not in GIT_VARIABLES}


def git_says(folder: Path, *words: str) -> Optional[bytes]:
    """Return what git answers in a folder; None without git, or where it refuses."""
    try:
        answer = subprocess.run(
            ["git", *words],  # noqa: S607  git of the PATH
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
def git_revision(folder: Path) -> Optional[str]:
    """Return the commit of the project's checkout, with -dirty where files differ, or None."""
    words = ("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    return (git_says(folder, *words) or b"").decode().strip() or None
