"""A stand-in for PopDist: an instance that poprun started, or a process that it did not.

It offers the names and signatures of the SDK (``test_instances_popdist.py`` checks them) and is as
strict: options that poprun sets cannot be set again.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any, Dict

from tests.doubles import poptorch
from tests.doubles.record import Calls, module_of

OFFERED = (
    "getInstanceIndex",
    "getNumInstances",
    "getNumIpusPerReplica",
    "getNumLocalReplicas",
    "getNumTotalReplicas",
    "init",
    "isPopdistEnvSet",
)


@dataclass
class Job(Calls):
    """poprun's settings, and the number of this instance."""

    started: bool = True
    index: int = 0
    instances: int = 2
    replicas: int = 4
    ipus_per_replica: int = 1


recorder = Job()
recorded = recorder.recorded


def as_modules(sdk: str = "3.4") -> Dict[str, ModuleType]:
    """Return the modules of an SDK to install; the recorder starts empty."""
    recorder.reset()
    options = module_of("popdist.poptorch", ("Options",), {"Options": Options})
    offered = [name for name in OFFERED if sdk != "2.6" or name != "init"]
    return {"popdist": module_of("popdist", offered, globals()), "popdist.poptorch": options}


@recorded
def init() -> None:
    assert recorder.started, "poprun has not started this process"


@recorded
def isPopdistEnvSet() -> bool:
    return recorder.started


@recorded
def getInstanceIndex() -> int:
    return recorder.index


@recorded
def getNumInstances() -> int:
    return recorder.instances


@recorded
def getNumIpusPerReplica() -> int:
    return recorder.ipus_per_replica


@recorded
def getNumLocalReplicas() -> int:
    return recorder.replicas // recorder.instances


@recorded
def getNumTotalReplicas() -> int:
    return recorder.replicas


class Options(poptorch.Options):
    """PopTorch's options of one instance."""

    __slots__ = ()

    def __init__(self, ipus_per_replica: int = 1) -> None:
        assert ipus_per_replica == recorder.ipus_per_replica, "poprun has another number"
        super().__init__()
        super().replicationFactor(getNumLocalReplicas())
        super().useIpuId(recorder.index)

    def replicationFactor(self, replication_factor: int) -> Any:
        raise RuntimeError("replicationFactor is decided by poprun")

    def useIpuId(self, ipu_id: int) -> Any:
        raise RuntimeError("useIpuId is decided by poprun")
