"""The recorder, the enumerations and the options of the PopTorch stand-in.

Options refuse names that PopTorch lacks, values of other types, and changes once a model uses them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

from tests.doubles.record import Calls


@dataclass
class Recorder(Calls):
    """The calls so far, and the failures to produce."""

    #: IPU of each pipeline stage that running models entered, in order.
    stages: List[int] = field(default_factory=list)
    #: Executors made so far.
    executors: List[Any] = field(default_factory=list)
    #: The error message of attaching to a device; empty if there is a device.
    attach_error: str = ""
    #: Transfers of the running model that were marked to overlap.
    overlapping: int = 0
    #: Losses marked in the last training step.
    losses: int = 0


recorder = Recorder()
recorded = recorder.recorded


class OutputMode(enum.IntEnum):
    """Which of a call's outputs are returned to the host."""

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3
    Default = 4


class OverlapMode(enum.Enum):
    """The loop that a transfer overlaps with."""

    NoOverlap = "no_overlap"
    OverlapAccumulationLoop = "overlap_accumulation_loop"
    OverlapDeviceIterationLoop = "overlap_device_iteration_loop"


class ShardedExecution:
    """All IPUs work on one batch at a time, without a pipeline."""


class _Closed:
    """Refuses attributes that the class does not declare, as the SDK's options do."""

    __slots__ = ("_frozen", "_values")

    def __init__(self) -> None:
        self._frozen = False
        self._values: Dict[str, Any] = {}

    def _put(self, key: str, value: Any) -> None:
        if self._frozen:
            raise AttributeError("Can't modify frozen Options")
        self._values[key] = value


#: PopART's options that the project sets by name; other names are refused.
POPART_OPTIONS = (
    "defaultPrefetchBufferingDepth",
    "engineOptions",
    "groupNormStridedChannelGrouping",
)


class _PopartOptions(_Closed):
    __slots__ = ()

    @recorded
    def set(self, key: str, value: Any) -> _PopartOptions:
        assert key in POPART_OPTIONS, f"PopART has no option {key}"
        self._put(key, value)
        return self


class _PrecisionOptions(_Closed):
    __slots__ = ()

    @recorded
    def setPartialsType(self, dtype: Any) -> _PrecisionOptions:
        import torch

        if dtype not in (torch.float, torch.half):
            raise ValueError("parameter to setPartialsType should be torch.float or torch.half")
        return self


class _TensorLocationOptions(_Closed):
    __slots__ = ()

    @recorded
    def numIOTiles(self, num_tiles: int) -> _TensorLocationOptions:
        if num_tiles < 32 or num_tiles > 192 or num_tiles % 2:
            raise ValueError("numIOTiles must be an even number between 32 and 192 (inclusive)")
        self._put("tiles", num_tiles)
        return self


class Options(_Closed):
    """How a model runs; each option returns the object itself."""

    __slots__ = ("_locations", "_popart", "_precision")

    @recorded
    def __init__(self) -> None:
        super().__init__()
        self._precision = _PrecisionOptions()
        self._popart = _PopartOptions()
        self._locations = _TensorLocationOptions()

    @property
    def Precision(self) -> _PrecisionOptions:
        return self._precision

    @property
    def _Popart(self) -> _PopartOptions:
        return self._popart

    @property
    def TensorLocations(self) -> _TensorLocationOptions:
        return self._locations

    @recorded
    def setExecutionStrategy(self, strategy: Any) -> Options:
        return self._keep("strategy", strategy, ShardedExecution)

    @recorded
    def enableExecutableCaching(self, path: str) -> Options:
        return self._keep("cache", path, str)

    @recorded
    def useOfflineIpuTarget(self, ipu_version: int = 2) -> Options:
        return self._keep("offline", ipu_version, int)

    @recorded
    def deviceIterations(self, device_iterations: int) -> Options:
        return self._keep("device_iterations", device_iterations, int)

    @recorded
    def replicationFactor(self, replication_factor: int) -> Options:
        return self._keep("replication_factor", replication_factor, int)

    @recorded
    def outputMode(
        self, output_mode: OutputMode, output_return_period: Optional[int] = None
    ) -> Options:
        return self._keep("output_mode", output_mode, OutputMode)

    @recorded
    def useIpuModel(self, use_model: bool) -> Options:
        return self._keep("use_model", use_model, bool)

    @recorded
    def useIpuId(self, ipu_id: int) -> Options:
        return self._keep("ipu_id", ipu_id, int)

    @recorded
    def autoRoundNumIPUs(self, auto_round_num_ipus: bool = True) -> Options:
        return self._keep("auto_round_num_ipus", auto_round_num_ipus, bool)

    @recorded
    def enableSyntheticData(self, enabled: bool) -> Options:
        return self._keep("synthetic_data", enabled, bool)

    def _keep(self, key: str, value: Any, kind: type) -> Options:
        assert isinstance(value, kind), f"{key}: {value!r} is no {kind.__name__}"
        self._put(key, value)
        return self

    def _freeze(self) -> None:
        """Refuse changes from now on, because a wrapped model uses these options."""
        for options in (self, self._precision, self._popart, self._locations):
            options._frozen = True
