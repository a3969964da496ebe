"""A stand-in for the part of PopART that the project uses.

It offers the names and signatures of the SDK and nothing else (tests/runtimes/test_sdk_contract.py
checks them against the SDK's published API), records every call, and computes: a session evaluates
its graph in float32 on the CPU, takes its batches from the host's arrays as PopART does and updates
its weights. It is as strict as the SDK about what the project can get wrong: names, types and sizes
of arrays, the number of IPUs, how full a pipeline is, the order of calls.

Tests install :func:`as_module` as ``popart`` and control it with :data:`recorder`, which the module
itself does not offer.
"""

from __future__ import annotations

from types import ModuleType

from tests.doubles.popart.builder import Builder
from tests.doubles.popart.options import (
    AnchorReturnType,
    ConstSGD,
    DataFlow,
    RecomputationType,
    ReductionType,
    SessionOptions,
    SyntheticDataMode,
    TensorInfo,
    VirtualGraphMode,
    versionString,
)
from tests.doubles.popart.record import (
    popart_exception,
    poplar_exception,
    poplibs_exception,
)
from tests.doubles.popart.record import recorder as recorder
from tests.doubles.popart.session import (
    DeviceInfo,
    DeviceManager,
    InferenceSession,
    PyStepIO,
    TrainingSession,
)
from tests.doubles.record import module_of

# The contents of `import popart`; everything else here belongs to the stand-in.
__all__ = [
    "AnchorReturnType",
    "Builder",
    "ConstSGD",
    "DataFlow",
    "DeviceInfo",
    "DeviceManager",
    "InferenceSession",
    "PyStepIO",
    "RecomputationType",
    "ReductionType",
    "SessionOptions",
    "SyntheticDataMode",
    "TensorInfo",
    "TrainingSession",
    "VirtualGraphMode",
    "popart_exception",
    "poplar_exception",
    "poplibs_exception",
    "versionString",
]


def as_module() -> ModuleType:
    """Return a module ``popart`` with the offered names only; the recorder starts empty."""
    recorder.reset()
    return module_of("popart", __all__, globals())
