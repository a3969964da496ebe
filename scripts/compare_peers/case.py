"""The types of a comparison: programs, cases, groups of cases, result rows, instruction sets.

A level is an instruction set: the machine's own, and AVX2, which frameworks imitate. They read the
variables that limit them at import, so a level is the environment of a new process.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Sequence

from ipubench.fixtures.devices.base import Device
from ipubench.fixtures.machine.files import IMPORT_ROOT
from ipubench.fixtures.machine.processor import ISA_FLAGS, Topology, read_topology
from ipubench.fixtures.runtimes.shared import compute_dtype

#: Runs a number of batches and returns when they are done.
Program = Callable[[int], object]
PRECISIONS = ("16.16", "16.32", "32.32")
NATIVE, AVX2 = "native", "avx2"
#: The levels that each value of ``--level`` stands for.
LEVELS = {NATIVE: (NATIVE,), AVX2: (AVX2,), "both": (NATIVE, AVX2)}
# The project's tests use the same variables.
MAKEFILE = IMPORT_ROOT / "Makefile"


class NotMeasured(Exception):
    """Raised if a program cannot run or cannot be compared; the message has the reason."""


def repeated(run: Callable[[], object]) -> Program:
    """Return a program whose batch is one call of ``run``."""

    def program(batches: int) -> None:
        for _ in range(batches):
            run()

    return program


@dataclass(frozen=True)
class Conditions:
    """The settings that all cases of a process share."""

    device: Device
    precision: str  # one of PRECISIONS
    level: str  # NATIVE or AVX2
    own: bool = False  # also measure the suite's other engines and forms

    @property
    def dtype(self) -> str:
        """The data type of the operations at ``precision``."""
        return compute_dtype(self.device, self.precision)

    @property
    def on_gpu(self) -> bool:
        """Whether programs run on a GPU."""
        return self.device.kind == "cuda"

    def require_onnxruntime_level(self) -> None:
        """Raise NotMeasured if ONNX Runtime would use other instructions than its peers."""
        if self.level != NATIVE:
            raise NotMeasured("no variable limits the instructions of ONNX Runtime")


@dataclass(frozen=True)
class Case:
    """One case and its peers. Each is built on request and may raise NotMeasured."""

    items: float  # of a batch
    dtype: str
    ours: Callable[[], Program]
    peers: Mapping[str, Callable[[], Program]]
    close: Callable[[], object] = lambda: None
    call_seconds: float = 0.1  # shortest timed call; it repeats shorter batches


class Family(ABC):
    """Cases of one kind, which one process measures one after another."""

    title: str
    unit: str  # of the rates, per second
    usual: Sequence[str]  # the default cases
    devices: Sequence[str] = ("cpu",)  # the devices that its programs run on

    def __init__(self, conditions: Conditions) -> None:
        self.conditions = conditions

    @classmethod
    @abstractmethod
    def names(cls) -> List[str]:
        """Return the names of all cases, without importing a framework."""

    @classmethod
    def names_on(cls, device: str) -> List[str]:
        """Return the names of the cases that run on a device."""
        return cls.names()

    @abstractmethod
    def open(self, name: str) -> Case:
        """Return a case. Nothing is built yet."""

    def close(self) -> None:
        """Release what all cases share."""


@dataclass(frozen=True)
class Row:
    """How one peer compares in one case, or why it does not."""

    family: str
    level: str
    case: str = ""
    peer: str = ""
    dtype: str = ""
    reason: str = ""  # why there is no result
    ours: Optional[float] = None  # items per second
    theirs: Optional[float] = None
    machine: str = ""  # the measured GPU; '' for the host
    ratio: Optional[float] = None  # our rate / theirs, the median of paired rounds
    low: Optional[float] = None  # its 95% interval
    high: Optional[float] = None
    rounds: int = 0


def named(names: Sequence[str], parts: Sequence[str], usual: Sequence[str]) -> List[str]:
    """Return the names that contain one of the parts, or the usual ones if there are no parts."""
    if not parts:
        return [name for name in names if name in usual]
    return [name for name in names if parts == ["all"] or any(part in name for part in parts)]


def avx2_variables(makefile: Path = MAKEFILE) -> Dict[str, str]:
    """Return the variables that limit frameworks to AVX2, with their values."""
    text = makefile.read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.search(r"^AS_AVX2 := (.*)$", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"{makefile} has no line AS_AVX2")
    return dict(word.split("=", 1) for word in shlex.split(found[1]))


def environment_of(level: str, environ: Mapping[str, str] = os.environ) -> Dict[str, str]:
    """Return the environment of a process at a level."""
    return {**environ, **(avx2_variables() if level == AVX2 else {})}


def missing(level: str, topology: Topology) -> str:
    """Return why a machine cannot run at a level; "" if it can."""
    if level == NATIVE:
        return ""
    if "avx2" not in topology.flags:
        return f"this machine ({platform.machine()}) has no AVX2"
    if topology.flags[-1] == "avx2":
        return "AVX2 is this machine's own level, which the rows of native show"
    return ""


def describe(topology: Topology) -> str:
    """Describe a processor: its model, best instruction set and number of threads."""
    best = topology.flags[-1] if topology.flags else f"below {ISA_FLAGS[0]}"
    return f"{topology.model}, {best}, {len(topology.cores)} threads"


def topology_at(level: str) -> Topology:
    """Return this machine as frameworks see it at a level."""
    return read_topology(environ=environment_of(level))
