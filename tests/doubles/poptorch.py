"""A stand-in for the part of PopTorch that the project uses.

It offers the names and signatures of the SDK and nothing else (``test_poptorch_contract.py`` checks
them against the SDK's published API), records every call, and runs a wrapped model on the CPU. It
is as strict as the SDK about what the project can get wrong: types of arguments, the number of
IPUs, how full a pipeline is, sizes of inputs, and the life of an executor.

Tests install :func:`as_module` as ``poptorch`` and steer it through :data:`recorder`, which is not
part of what the module offers.
"""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, List, Optional, Set, Tuple

from tests.doubles.record import Calls, module_of

# What `import poptorch` gives; everything else here belongs to the stand-in.
OFFERED = (
    "BeginBlock",
    "Error",
    "Options",
    "OutputMode",
    "OverlapMode",
    "PoplarExecutor",
    "ShardedExecution",
    "inferenceModel",
    "set_overlap_for_input",
    "set_overlap_for_output",
)

NO_EXECUTABLE = "Model has not been compiled or has been destroyed."


@dataclass
class Recorder(Calls):
    """What was called, and what shall go wrong."""

    #: IPU of each pipeline stage entered while models ran, in order.
    stages: List[int] = field(default_factory=list)
    #: Executors made so far.
    executors: List[PoplarExecutor] = field(default_factory=list)
    #: Message of the error that attaching to a device raises; empty: a device is there.
    attach_error: str = ""
    #: Transfers of the model that runs which were asked to overlap.
    overlapping: int = 0


recorder = Recorder()
recorded = recorder.recorded


def as_module() -> ModuleType:
    """Return a module ``poptorch`` with the offered names only; the recorder starts empty."""
    recorder.reset()
    return module_of("poptorch", OFFERED, globals())


class Error(Exception):
    """What PopTorch's C++ part raises."""


class OutputMode(enum.IntEnum):
    """Which of a call's outputs come back to the host."""

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3
    Default = 4


class OverlapMode(enum.Enum):
    """With which loop a transfer overlaps."""

    NoOverlap = "no_overlap"
    OverlapAccumulationLoop = "overlap_accumulation_loop"
    OverlapDeviceIterationLoop = "overlap_device_iteration_loop"


class ShardedExecution:
    """All IPUs work on one batch after the other, without a pipeline."""


class _Closed:
    """Refuses to be given an attribute that the class does not declare, as the SDK's options do."""

    __slots__ = ("_frozen", "_values")

    def __init__(self) -> None:
        self._frozen = False
        self._values: Dict[str, Any] = {}

    def _put(self, key: str, value: Any) -> None:
        if self._frozen:
            raise AttributeError("Can't modify frozen Options")
        self._values[key] = value


class _PopartOptions(_Closed):
    __slots__ = ()

    @recorded
    def set(self, key: str, value: Any) -> _PopartOptions:
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
        """Refuse changes from now on: a wrapped model has its options."""
        for options in (self, self._precision, self._popart, self._locations):
            options._frozen = True


@recorded
def BeginBlock(layer_to_call: Any, user_id: Optional[str] = None, ipu_id: Any = None) -> Any:
    """Make a layer, in place, the first one of a stage."""

    def enter(module: Any, inputs: Any) -> None:
        recorder.stages.append(ipu_id)

    layer_to_call.register_forward_pre_hook(enter)
    layer_to_call._double_ipu = ipu_id
    return layer_to_call


@recorded
def set_overlap_for_input(input_tensors: Any, mode: OverlapMode) -> Any:
    """Return the tensors, whose transfer overlaps."""
    assert isinstance(mode, OverlapMode)
    recorder.overlapping += mode is not OverlapMode.NoOverlap
    return input_tensors


@recorded
def set_overlap_for_output(output_tensors: Any, mode: OverlapMode) -> Any:
    """Return the tensors, whose transfer overlaps."""
    assert isinstance(mode, OverlapMode)
    recorder.overlapping += mode is not OverlapMode.NoOverlap
    return output_tensors


@recorded
def inferenceModel(model: Any, options: Optional[Options] = None) -> PoplarExecutor:
    """Wrap a model; nothing is compiled yet."""
    return PoplarExecutor(model, options or Options(), False, "double")


class PoplarExecutor:
    """A wrapped model. It compiles and attaches at ``compile`` or at its first call."""

    def __init__(
        self,
        model: Any,
        options: Any,
        training: bool,
        poptorch_version: str,
        optimizer: Any = None,
        user_model: Any = None,
    ) -> None:
        if not isinstance(options, Options):
            raise ValueError("Invalid type: 'options' must be of type poptorch.Options")
        options._freeze()
        self._model = model
        self._values: Dict[str, Any] = dict(options._values)
        self._tiles: int = options._locations._values.get("tiles", 0)
        self._compiled: Any = None
        #: Whether transfers overlapped with computing in the last call.
        self.overlapped = False
        self._attached = False
        self._destroyed = False
        self._runs = 0
        recorder.executors.append(self)

    @recorded
    def compile(self, *args: Any, **kwargs: Any) -> None:
        self._refuse_if_destroyed()
        self._check_stages()
        self._check_inputs(args[0])
        self._compile_or_load(args[0])
        self._compiled = (args[0].shape, args[0].dtype)
        if "offline" in self._values:
            return
        if recorder.attach_error:
            raise Error(recorder.attach_error)
        self._attached = True

    @recorded
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import torch

        self._refuse_if_destroyed()
        assert "offline" not in self._values, "Trying to run a model on an offline device"
        if not self._attached:
            self.compile(*args, **kwargs)
        self._check_inputs(args[0])
        self._runs += 1
        recorder.overlapping = 0
        images = args[0]
        if self._synthetic:
            images = torch.randn(images.shape).to(images.dtype)
        with torch.no_grad():
            results = self._model(images)
        self._check_overlap()
        return results

    @recorded
    def getLatency(self) -> Tuple[float, float, float]:
        """Return min, max and mean seconds of the last run; nothing is known without transfers."""
        if not self._runs or self._synthetic:
            return (0.0, 0.0, 0.0)
        return (0.001 * self._runs, 0.004 * self._runs, 0.002 * self._runs)

    @recorded
    def destroy(self) -> None:
        self._attached = False
        self._destroyed = True

    @recorded
    def isAttachedToDevice(self) -> bool:
        return self._attached

    @recorded
    def isCompiled(self) -> bool:
        return self._attached

    @property
    def _synthetic(self) -> bool:
        return bool(self._values.get("synthetic_data"))

    def _compile_or_load(self, images: Any) -> None:
        """Keep an executable in the cache's folder; one with the same program serves again."""
        if "cache" not in self._values:
            return
        program = f"{sum(p.numel() for p in self._model.parameters())}-{tuple(images.shape)}"
        path = Path(self._values["cache"]) / f"{hashlib.md5(program.encode()).hexdigest()}.popef"
        if not path.exists():
            path.write_bytes(b"executable")

    def _refuse_if_destroyed(self) -> None:
        # PopTorch would compile anew, minutes that nobody asked for.
        if self._destroyed:
            raise Error(NO_EXECUTABLE)

    def _check_stages(self) -> None:
        """Refuse what PopTorch and PopART refuse when they compile."""
        ids: Set[int] = {getattr(module, "_double_ipu", 0) for module in self._model.modules()}
        stages = max(ids) + 1
        ipus = stages * self._values.get("replication_factor", 1)
        if ipus & (ipus - 1) and not self._values.get("auto_round_num_ipus"):
            raise Error(f"{ipus} IPUs: the number of IPUs must be a power of 2")
        sharded = "strategy" in self._values
        if not sharded and self._values.get("device_iterations", 1) < stages:
            raise Error(
                "For pipelining, depth (batchesPerStep) must equal at least the number of pipeline "
                f"stages ({stages})"
            )

    def _check_overlap(self) -> None:
        """Overlap the transfers that were asked to, or silently do not: few iterations have none.

        poptorch_popart: Compiler.cpp; PopART: transforms/decomposeloops.cpp.
        """
        if not recorder.overlapping:
            return
        if "strategy" not in self._values:
            raise Error("Overlapped IO is not supported with poptorch.PipelinedExecution")
        if not self._tiles:
            raise Error("No IO tiles allocated")
        if self._values.get("output_mode", OutputMode.All) not in (OutputMode.All, OutputMode.Sum):
            raise Error("Unsupported output mode for overlapped IO")
        self.overlapped = self._values.get("device_iterations", 1) >= 3

    def _check_inputs(self, images: Any) -> None:
        if images.requires_grad:
            raise Error("An input tensor to an inferenceModel has requires_grad set")
        if self._compiled not in (None, (images.shape, images.dtype)):
            raise Error(f"compiled for {self._compiled}, not {images.shape}, {images.dtype}")
        runs = self._values.get("device_iterations", 1) * self._values.get("replication_factor", 1)
        assert len(images) % runs == 0, f"a batch of {len(images)} cannot be divided by {runs}"
