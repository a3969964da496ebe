"""The calls on the stand-in, and the failures to produce."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List

from tests.doubles.record import Calls

#: How long a run keeps the IPUs busy, on the stand-in's own clock.
RUN_SECONDS = 1.0
#: The scope of operations that replace one of the SDK's.
STAND_IN = "stand_in"
#: Functions with this in their name count, with their gradients, as one operation.
ONE_OPERATION = "OfSdk"
PROCESSES = "experimental.multi_replica_distribution.process_count"


@dataclass
class Recorder(Calls):
    """The calls, and the state of the device."""

    #: Options that differed from their defaults at the last configuration.
    configured: Dict[str, Any] = field(default_factory=dict)
    #: TF_POPLAR_FLAGS at that time.
    flags: str = ""
    #: The error message of running a program; empty if it runs.
    run_error: str = ""
    #: Attached IPUs; 0 if there are none.
    attached: int = 0
    #: The error message of attaching to a device; empty if there is a device.
    attach_error: str = ""
    #: Group of IPUs -> its size; other groups have one.
    groups: Dict[int, int] = field(default_factory=dict)
    #: IPUs per replica, once a pipeline has set it.
    shards: int = 1
    #: If set, pipelines record their arguments and run nothing.
    only_arguments: bool = False
    #: If set, XLA compiles programs of synthetic data, as for an IPU, and they run; otherwise they
    #: are only traced.
    by_xla: bool = True
    #: If set, only one of a pipeline's micro batches is traced, which shows what all do.
    one_micro_batch: bool = False
    #: Variables of the stand-in that a program needs while it runs.
    kept: List[Any] = field(default_factory=list)
    #: Weak references to the variables that the IPUs hold.
    held: List[Any] = field(default_factory=list)
    #: The functions of programs that ran.
    programs: List[Any] = field(default_factory=list)
    #: Queues made so far.
    queues: List[Any] = field(default_factory=list)
    #: The stand-in's clock in seconds. The IPUs run in parallel to the host: it moves when the host
    #: waits.
    now: float = 0.0
    #: Runs that were started and not yet waited for.
    queued: int = 0
    #: The error of such a run; the next wait or run raises it.
    failed: Any = None

    @property
    def replicas(self) -> int:
        """Replicas of the program on the attached IPUs."""
        return self.attached // self.shards

    @property
    def all_replicas(self) -> int:
        """Replicas of the program in all instances of a job."""
        return self.replicas * max(1, int(self.configured.get(PROCESSES, 1)))

    @property
    def synthetic(self) -> bool:
        """Whether no data travels between host and device."""
        return "--use_synthetic_data" in self.flags.split()

    @property
    def connection(self) -> str:
        """How programs reach the IPUs: the name of a DeviceConnectionType."""
        kind = self.configured.get("device_connection.type")
        return "ALWAYS" if kind is None else str(kind.name)

    def clock(self) -> float:
        """Return the time of the stand-in's clock."""
        return self.now

    def wait(self) -> None:
        """Wait until the IPUs have finished all runs; raise the error of a failed one."""
        self.now += self.queued * RUN_SECONDS
        self.queued = 0
        self.raise_late()

    def raise_late(self) -> None:
        """Raise the error of an earlier run, once."""
        error, self.failed = self.failed, None
        if error is not None:
            raise error


recorder = Recorder()
recorded = recorder.recorded
