"""A session's options: how it runs, which tensors it returns, how weights are updated."""

from __future__ import annotations

import enum
from typing import Any, Dict, Mapping, Sequence

from tests.doubles.popart.record import popart_exception, recorded

NUMPY_TYPES = {"FLOAT16": "float16", "FLOAT": "float32", "INT32": "int32"}


def versionString() -> str:
    return "double"


class SyntheticDataMode(enum.Enum):
    Off = 0
    Zeros = 1
    RandomNormal = 2


class VirtualGraphMode(enum.Enum):
    Off = 0
    Manual = 1
    Auto = 2


class RecomputationType(enum.Enum):
    NoRecompute = 0
    Standard = 1
    Pipeline = 2


class ReductionType(enum.Enum):
    Mean = 0
    Sum = 1
    NoReduction = 2


class AnchorReturnType:
    """Which values of a tensor a call returns."""

    @recorded
    def __init__(self, anchorReturnTypeString: str) -> None:
        if anchorReturnTypeString not in ("All", "Final", "Sum"):
            raise popart_exception(f"no return type {anchorReturnTypeString}")
        self._kind = anchorReturnTypeString


class TensorInfo:
    """A tensor's type and shape."""

    @recorded
    def __init__(self, *args: Any) -> None:
        dtype, shape = args
        if dtype not in NUMPY_TYPES:
            raise popart_exception(f"no type {dtype}")
        self._dtype = NUMPY_TYPES[dtype]
        self._shape = list(shape)


class DataFlow:
    """How many batches a call runs, and which tensors it returns."""

    @recorded
    def __init__(self, batchesPerStep: int, anchorTensors: Mapping[str, AnchorReturnType]) -> None:
        assert all(isinstance(kind, AnchorReturnType) for kind in anchorTensors.values())
        self._batches = batchesPerStep
        self._anchors = dict(anchorTensors)


class ConstSGD:
    """Gradient descent at a fixed rate."""

    @recorded
    def __init__(
        self,
        learning_rate: float,
        weight_decay: float = 0.0,
        loss_scaling: float = 1.0,
        clip_norm_settings: Sequence[Any] = [],
    ) -> None:
        self._rate = learning_rate


def _option(name: str, default: Any) -> Any:
    """Return a property that accepts only values of its default's type."""

    def read(self: SessionOptions) -> Any:
        return self._values.get(name, default)

    def write(self: SessionOptions, value: Any) -> None:
        assert isinstance(value, type(default)), f"{name}: {value!r} is no {type(default).__name__}"
        self._values[name] = value

    return property(read, write)


class SessionOptions:
    """How a graph is compiled; names that PopART lacks are refused."""

    __slots__ = ("_values",)

    @recorded
    def __init__(self) -> None:
        self._values: Dict[str, Any] = {}

    syntheticDataMode = _option("syntheticDataMode", SyntheticDataMode.Off)
    virtualGraphMode = _option("virtualGraphMode", VirtualGraphMode.Off)
    autoRecomputation = _option("autoRecomputation", RecomputationType.NoRecompute)
    enablePipelining = _option("enablePipelining", False)
    enableReplicatedGraphs = _option("enableReplicatedGraphs", False)
    replicatedGraphCount = _option("replicatedGraphCount", 1)
    instrumentWithHardwareCycleCounter = _option("instrumentWithHardwareCycleCounter", False)
    convolutionOptions = _option("convolutionOptions", {})
