"""What was called on the stand-in, and what shall go wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List

from tests.doubles.record import Calls

#: How long a run keeps the IPUs busy, by the stand-in's own clock.
RUN_SECONDS = 1.0
#: The scope of operations that stand for one of the SDK's.
STAND_IN = "stand_in"
#: The names of functions that do have this: with their gradients they count as one operation.
ONE_OPERATION = "OfSdk"
PROCESSES = "experimental.multi_replica_distribution.process_count"


@dataclass
class Recorder(Calls):
    """The calls, and the state of the device that they act on."""

    #: Options that differed from their defaults when the device was last configured.
    configured: Dict[str, Any] = field(default_factory=dict)
    #: TF_POPLAR_FLAGS at that time.
    flags: str = ""
    #: Message of the error that running a program raises; empty: it runs.
    run_error: str = ""
    #: IPUs that are attached; 0: none.
    attached: int = 0
    #: Message of the error that attaching to a device raises; empty: a device is there.
    attach_error: str = ""
    #: Group of IPUs -> how many it has; others have one.
    groups: Dict[int, int] = field(default_factory=dict)
    #: IPUs of one replica, once a pipeline has told.
    shards: int = 1
    #: Pipelines record their arguments and run nothing.
    only_arguments: bool = False
    #: Programs of synthetic data are compiled by XLA, as for an IPU, and run; else only traced.
    by_xla: bool = True
    #: Of a pipeline's micro batches one is traced, which shows what all do.
    one_micro_batch: bool = False
    #: Variables of the stand-in itself, which a program needs as long as it runs.
    kept: List[Any] = field(default_factory=list)
    #: Weak references to the variables that the IPUs hold.
    held: List[Any] = field(default_factory=list)
    #: The functions that stand for programs that were run.
    programs: List[Any] = field(default_factory=list)
    #: Queues made so far.
    queues: List[Any] = field(default_factory=list)
    #: The stand-in's clock in seconds. The IPUs work beside the host: it moves where that waits.
    now: float = 0.0
    #: Runs that were started and that nobody has waited for.
    queued: int = 0
    #: The error of such a run, which the next wait or run raises.
    failed: Any = None

    @property
    def replicas(self) -> int:
        """Copies of the program that run on the attached IPUs."""
        return self.attached // self.shards

    @property
    def all_replicas(self) -> int:
        """Copies of the program in all instances of a job."""
        return self.replicas * max(1, int(self.configured.get(PROCESSES, 1)))

    @property
    def synthetic(self) -> bool:
        """Whether nothing is transferred between host and device."""
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
        """Wait until the IPUs have finished all runs; raise what one of them failed with."""
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
