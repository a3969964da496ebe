"""What a comparison is made of: programs, cases, families of cases, and the rows that they give."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Callable, List, Mapping, Optional, Sequence

from ipubench.fixtures.devices.base import Device
from ipubench.fixtures.runtimes.shared import compute_dtype
from scripts.compare_peers import levels

#: Runs so many batches and returns when all are done.
Program = Callable[[int], object]
PRECISIONS = ("16.16", "16.32", "32.32")


class NotMeasured(Exception):
    """A program that cannot run, or cannot be compared; the message says why."""


def repeated(run: Callable[[], object]) -> Program:
    """Return a program of which ``run`` is one batch."""

    def program(batches: int) -> None:
        for _ in range(batches):
            run()

    return program


@dataclass(frozen=True)
class Conditions:
    """What every case of a process is measured under."""

    device: Device
    precision: str  # one of PRECISIONS
    level: str  # see levels.py
    own: bool = False  # the suite's other engines and forms stand beside the peers

    @property
    def dtype(self) -> str:
        """The type of the operations, as ``precision`` means it here."""
        return compute_dtype(self.device, self.precision)

    @property
    def on_gpu(self) -> bool:
        """Whether programs run on a GPU."""
        return self.device.kind == "cuda"

    def require_onnxruntime_level(self) -> None:
        """Raise NotMeasured where ONNX Runtime would use other instructions than its peers."""
        if self.level != levels.NATIVE:
            raise NotMeasured("no variable limits the instructions of ONNX Runtime")


@dataclass(frozen=True)
class Case:
    """One case and its peers; each is built when it is asked for, and may raise NotMeasured."""

    items: float  # of a batch
    dtype: str
    ours: Callable[[], Program]
    peers: Mapping[str, Callable[[], Program]]
    close: Callable[[], object] = lambda: None
    call_seconds: float = 0.1  # a timed call lasts so long where a batch is shorter


class Family(ABC):
    """Cases of one kind, which one process measures one after the other."""

    title: str
    unit: str  # of the rates: items per second
    usual: Sequence[str]  # the cases that run unless others are asked for
    devices: Sequence[str] = ("cpu",)  # where its programs run

    def __init__(self, conditions: Conditions) -> None:
        self.conditions = conditions

    @classmethod
    @abstractmethod
    def names(cls) -> List[str]:
        """Return the names of all cases, without importing a framework."""

    @classmethod
    def names_on(cls, device: str) -> List[str]:
        """Return the names of the cases of a kind of device."""
        return cls.names()

    @abstractmethod
    def open(self, name: str) -> Case:
        """Return a case, nothing of which is built yet."""

    def close(self) -> None:
        """Give back what all cases shared."""


@dataclass(frozen=True)
class Row:
    """How one peer compares in one case, or why it does not."""

    family: str
    level: str
    case: str = ""
    peer: str = ""
    dtype: str = ""
    reason: str = ""  # why there are no numbers
    ours: Optional[float] = None  # items per second
    theirs: Optional[float] = None
    machine: str = ""  # the GPU that measured; '' is the host
    ratio: Optional[float] = None  # of our rate over theirs, the median of paired rounds
    low: Optional[float] = None  # its 95 % interval
    high: Optional[float] = None
    rounds: int = 0


def named(names: Sequence[str], parts: Sequence[str], usual: Sequence[str]) -> List[str]:
    """Return the names that contain one of the parts; the usual ones without parts."""
    if not parts:
        return [name for name in names if name in usual]
    return [name for name in names if parts == ["all"] or any(part in name for part in parts)]
