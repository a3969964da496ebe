"""The measuring process itself: its allocator, its memory, what it runs with."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.metadata
import os
import platform
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Optional

from fixtures.servers.allocator import ALLOCATOR

PR_SET_PDEATHSIG = 1  # prctl(2)
# Numbers of glibc's mallopt parameters, from malloc.h.
MALLOPT = {"mmap_threshold": -3, "trim_threshold": -1}

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


def end_with_parent() -> None:
    """Have the kernel kill this process when the one that started it ends, however it ends."""
    with contextlib.suppress(OSError, AttributeError):  # not on Linux
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def tune_allocator() -> Dict[str, bool]:
    """Make glibc keep large freed buffers instead of unmapping them; return what was accepted.

    By default each large activation is mapped, faulted in page by page and unmapped at each call,
    or not, depending on the heap's history: one process draws one of several speeds. A C library
    without mallopt accepts nothing.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return dict.fromkeys(ALLOCATOR, False)
    return {name: mallopt(MALLOPT[name], value) == 1 for name, value in ALLOCATOR.items()}


def conditions(kind: str, affinity: str, allocator: str) -> Dict[str, Any]:
    """Tune this process for measuring on a kind of device; return what holds, for the record.

    ``affinity`` and ``allocator`` are the options; the device is attached.
    """
    if kind not in ("cpu", "ipu-model"):
        return {"allocator": "system"}
    found = {
        "allocator": "system",
        "affinity": affinity,
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
    }
    if allocator == "tuned":
        accepted = tune_allocator()
        found["allocator"] = "tuned" if all(accepted.values()) else f"tuned in part: {accepted}"
    return found


def _give_back_free_memory() -> None:
    """Return what earlier cases freed: the tuned allocator keeps it, and it would count as ours."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class PeakMemory:
    """The highest resident memory of this process since the object was made, in bytes."""

    def __init__(self) -> None:
        self.since = "case"
        _give_back_free_memory()
        try:
            # 5 resets the peak (proc(5), clear_refs).
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        except OSError:
            self.since = "process start"

    def read(self) -> int:
        """Return the peak so far; ``since`` says from when it counts."""
        try:
            for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        except OSError:
            self.since = "process start"
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@functools.lru_cache(maxsize=None)
def versions() -> Dict[str, str]:
    """Return the version of Python and of every installed package that can change a number."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@functools.lru_cache(maxsize=None)
def git_revision(folder: Path) -> Optional[str]:
    """Return the commit of the project's checkout, with -dirty where files differ, or None."""
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=str(folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    except OSError:
        return None
    return answer.stdout.decode().strip() or None if answer.returncode == 0 else None
