"""A stand-in for the part of PopART that the project uses.

It offers the names and signatures of the SDK and nothing else (``test_popart_contract.py`` checks
them against the SDK's published API), records every call, and computes: a session evaluates its
graph in float32 on the CPU, takes its batches from the host's arrays as PopART does and updates its
weights. It is as strict as the SDK about what the project can get wrong: names, types and sizes of
arrays, the number of IPUs, how full a pipeline is, the order of calls.

Tests install :func:`as_module` as ``popart`` and steer it through :data:`recorder`, which is not
part of what the module offers.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

from tests.doubles.record import Calls, module_of

# What `import popart` gives; everything else here belongs to the stand-in.
OFFERED = (
    "AnchorReturnType", "Builder", "ConstSGD", "DataFlow", "DeviceInfo", "DeviceManager",
    "InferenceSession", "PyStepIO", "RecomputationType", "ReductionType", "SessionOptions",
    "SyntheticDataMode", "TensorInfo", "TrainingSession", "VirtualGraphMode",
    "poplar_exception", "poplibs_exception", "popart_exception", "versionString",
)  # fmt: skip
NUMPY_TYPES = {"FLOAT16": "float16", "FLOAT": "float32", "INT32": "int32"}
IPU_NUMBER = "__ipu_number"  # the attribute that places a node
CYCLES_PER_BATCH = 1000

Array = Any  # np.ndarray


@dataclass
class Recorder(Calls):
    """What was called, and what shall go wrong."""

    #: Sessions and devices made so far.
    sessions: List[Any] = field(default_factory=list)
    devices: List[DeviceInfo] = field(default_factory=list)
    #: IPUs of the device that is asked for by number.
    ipus_of_id: int = 1
    #: Messages of errors; empty: nothing goes wrong.
    attach_error: str = ""
    compile_error: str = ""

    @property
    def options(self) -> Dict[str, Any]:
        """The session options that the last session was given, by name."""
        found: Dict[str, Any] = self.sessions[-1]._options._values
        return found


recorder = Recorder()
recorded = recorder.recorded


def as_module() -> ModuleType:
    """Return a module ``popart`` with the offered names only; the recorder starts empty."""
    recorder.reset()
    return module_of("popart", OFFERED, globals())


class popart_exception(Exception):
    """What PopART raises."""


class poplar_exception(Exception):
    """What Poplar raises."""


class poplibs_exception(Exception):
    """What Poplar's libraries raise."""


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
    """Which of a tensor's values of one call come back to the host."""

    @recorded
    def __init__(self, anchorReturnTypeString: str) -> None:
        if anchorReturnTypeString not in ("All", "Final", "Sum"):
            raise popart_exception(f"no return type {anchorReturnTypeString}")
        self._kind = anchorReturnTypeString


class TensorInfo:
    """Type and shape of a tensor."""

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
    """Return a property that takes values of its default's type only."""

    def read(self: SessionOptions) -> Any:
        return self._values.get(name, default)

    def write(self: SessionOptions, value: Any) -> None:
        assert isinstance(value, type(default)), f"{name}: {value!r} is no {type(default).__name__}"
        self._values[name] = value

    return property(read, write)


class SessionOptions:
    """How a graph is compiled; a name that PopART lacks is refused."""

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


class _AiOnnxOpset11:
    """Adds nodes of ONNX's opset 11 to a builder's graph."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder

    @recorded
    def softmax(self, args: List[str], axis: int = 1, debugContext: str = "") -> str:
        return self._builder._add("Softmax", args, axis=axis)

    @recorded
    def sub(self, args: List[str], debugContext: str = "") -> str:
        return self._builder._add("Sub", args)

    @recorded
    def reducesumsquare(
        self,
        args: List[str],
        axes: Optional[List[int]] = None,
        keepdims: int = 1,
        debugContext: str = "",
    ) -> str:
        return self._builder._add("ReduceSumSquare", args, axes=axes, keepdims=keepdims)


class _AiGraphcoreOpset1:
    """Adds nodes of Graphcore's own operators to a builder's graph."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder

    @recorded
    def nllloss(
        self,
        args: List[str],
        reduction: ReductionType = ReductionType.Mean,
        ignoreIndex: Optional[int] = None,
        inputIsLogProbability: bool = False,
        debugContext: str = "",
    ) -> str:
        return self._builder._add(
            "Nll", args, "ai.graphcore", reduction=reduction.name, ignoreIndex=ignoreIndex
        )


class Builder:
    """Makes a graph, or adds to one."""

    @recorded
    def __init__(
        self,
        modelProtoOrFilename: Any = None,
        opsets: Optional[Dict[str, int]] = None,
        builderCore: Any = None,
    ) -> None:
        import onnx

        assert isinstance(modelProtoOrFilename, bytes)
        assert opsets is not None and set(opsets) == {"ai.onnx", "ai.graphcore"}
        self._model = onnx.load_model_from_string(modelProtoOrFilename)
        onnx.checker.check_model(self._model)
        (version,) = (item.version for item in self._model.opset_import)
        if version != opsets["ai.onnx"] or version > 11:
            raise popart_exception(f"opset {version} is not {opsets['ai.onnx']}, or is too new")
        self._next = 0

    @property
    def aiOnnxOpset11(self) -> _AiOnnxOpset11:
        return _AiOnnxOpset11(self)

    @property
    def aiGraphcoreOpset1(self) -> _AiGraphcoreOpset1:
        return _AiGraphcoreOpset1(self)

    @recorded
    def getInputTensorIds(self) -> List[str]:
        return [value.name for value in self._model.graph.input]

    @recorded
    def getOutputTensorIds(self) -> List[str]:
        return [value.name for value in self._model.graph.output]

    @recorded
    def addInputTensor(self, tensorInfo: TensorInfo, debugContext: str = "") -> str:
        from onnx import helper

        name = f"{debugContext}/{self._number()}"
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(tensorInfo._dtype))
        value = helper.make_tensor_value_info(name, kind, tensorInfo._shape)
        self._model.graph.input.append(value)
        return name

    @recorded
    def addOutputTensor(self, outputName: str) -> None:
        from onnx import helper

        dtype = self._model.graph.output[0].type.tensor_type.elem_type
        value = helper.make_tensor_value_info(outputName, dtype, [])
        self._model.graph.output.append(value)

    @recorded
    def virtualGraph(self, nodeOutputNames: Set[str], value: int = 0) -> None:
        from onnx import helper

        assert isinstance(nodeOutputNames, set)
        (node,) = (n for n in self._model.graph.node if set(n.output) == nodeOutputNames)
        node.attribute.append(helper.make_attribute(IPU_NUMBER, value))

    @recorded
    def getModelProto(self) -> bytes:
        serialized: bytes = self._model.SerializeToString()
        return serialized

    def _add(self, kind: str, inputs: List[str], domain: str = "", **attributes: Any) -> str:
        from onnx import helper

        assert isinstance(inputs, list)
        known = {value.name for value in self._model.graph.input}
        known |= {name for node in self._model.graph.node for name in node.output}
        if not known >= set(inputs):
            raise popart_exception(f"{kind}: no tensors {set(inputs) - known}")
        if domain and domain not in {item.domain for item in self._model.opset_import}:
            self._model.opset_import.append(helper.make_opsetid(domain, 1))
        given = {name: value for name, value in attributes.items() if value is not None}
        output = f"{kind}:{self._number()}"
        node = helper.make_node(kind, inputs, [output], domain=domain, **given)
        self._model.graph.node.append(node)
        return output

    def _number(self) -> int:
        self._next += 1
        return self._next


class DeviceInfo:
    """One device of one or more IPUs."""

    def __init__(self, ipus: int) -> None:
        self._ipus = ipus
        self._attached = True
        recorder.devices.append(self)

    @property
    def numIpus(self) -> int:
        return self._ipus

    @property
    def isAttached(self) -> bool:
        return self._attached

    @recorded
    def detach(self) -> None:
        self._attached = False


class DeviceManager:
    """Finds devices."""

    @recorded
    def __init__(self) -> None: ...

    @recorded
    def acquireAvailableDevice(
        self, numIpus: int = 1, tilesPerIpu: int = 0, pattern: Any = "popart.SyncPattern.Full",
        connectionType: Any = "popart.DeviceConnectionType.Always",
        selectionCriterion: Any = "popart.DeviceSelectionCriterion.First",
    ) -> DeviceInfo:  # fmt: skip
        if recorder.attach_error:
            raise popart_exception(recorder.attach_error)
        if numIpus & (numIpus - 1):
            raise popart_exception(f"{numIpus} IPUs: must be a power of two")
        return DeviceInfo(numIpus)

    @recorded
    def acquireDeviceById(
        self, id: int, pattern: Any = "popart.SyncPattern.Full",
        connectionType: Any = "popart.DeviceConnectionType.Always",
    ) -> DeviceInfo:  # fmt: skip
        if recorder.attach_error:
            raise popart_exception(recorder.attach_error)
        return DeviceInfo(recorder.ipus_of_id)

    @recorded
    def createIpuModelDevice(self, e: Dict[str, Any], /) -> DeviceInfo:
        assert set(e) <= {"numIPUs", "tilesPerIPU", "compileIPUCode", "ipuVersion"}
        return DeviceInfo(int(e["numIPUs"]))


class PyStepIO:
    """The host's arrays of one call."""

    @recorded
    def __init__(self, inputs: Dict[str, Array], outputs: Dict[str, Array]) -> None:
        for name, array in {**inputs, **outputs}.items():
            if not array.flags.c_contiguous:
                raise popart_exception(f"{name} is not contiguous")
        self._inputs, self._outputs = inputs, outputs
        self._checked = True

    @recorded
    def enableRuntimeAsserts(self, b: bool, /) -> None:
        self._checked = b


class _Session:
    """What both sessions share: a graph on a device."""

    _training = False

    def _open(
        self, model: bytes, flow: DataFlow, device: DeviceInfo, options: SessionOptions
    ) -> None:
        import onnx

        self._model = onnx.load_model_from_string(model)
        self._flow, self._device, self._options = flow, device, options
        self._prepared = self._written = self._ran = False
        recorder.sessions.append(self)
        self._check_placement()
        tensors = [name for node in self._model.graph.node for name in node.output]
        for name in flow._anchors:
            if name not in tensors:
                raise popart_exception(f"no tensor {name} to return")

    def _check_placement(self) -> None:
        """Refuse what PopART refuses when it places operations."""
        mode, replicas = self._options.virtualGraphMode, self._replicas
        placed = [
            {a.name: a.i for a in node.attribute}.get(IPU_NUMBER) for node in self._model.graph.node
        ]
        shards = self._device.numIpus // replicas
        if self._device.numIpus % replicas or (mode is VirtualGraphMode.Off and shards != 1):
            raise popart_exception(f"{self._device.numIpus} IPUs for {replicas} replicas")
        if mode is VirtualGraphMode.Manual and set(placed) != set(range(shards)):
            raise popart_exception(f"operations are placed on {placed}, of {shards} shards")
        if self._options.enablePipelining:
            if mode is VirtualGraphMode.Off:
                raise popart_exception("pipelining needs virtual graphs")
            stages = 2 * shards - 1 if self._training else shards
            if self._flow._batches < stages:
                raise popart_exception(
                    "For pipelining, depth (batchesPerStep) must equal at least the number of "
                    f"pipeline stages ({stages})"
                )

    @property
    def _replicas(self) -> int:
        return self._options.replicatedGraphCount if self._options.enableReplicatedGraphs else 1

    @property
    def _synthetic(self) -> bool:
        return self._options.syntheticDataMode is not SyntheticDataMode.Off

    @recorded
    def prepareDevice(self, loadEngine: bool = True) -> None:
        if recorder.compile_error:
            raise popart_exception(recorder.compile_error)
        self._graph = _evaluator(self._model, self._training)
        self._prepared = True

    @recorded
    def weightsFromHost(self) -> None:
        self._written = True

    @recorded
    def initAnchorArrays(self) -> Dict[str, Array]:
        leading = [self._flow._batches, self._replicas]
        return {
            name: np.empty([n for n in leading if n != 1] + list(shape), dtype)
            for name, (shape, dtype) in self._returned().items()
        }

    @recorded
    def getCycleCount(self, id: str = "") -> int:
        if not (self._ran and self._options.instrumentWithHardwareCycleCounter):
            raise popart_exception("no cycles were counted")
        return CYCLES_PER_BATCH * self._flow._batches

    @recorded
    def run(self, stepio: PyStepIO, debugName: str = "") -> None:
        if not (self._prepared and self._device.isAttached):
            raise popart_exception("prepareDevice first, with an attached device")
        if self._training and not self._written:
            raise popart_exception("weightsFromHost first")
        if stepio._checked:
            self._check_arrays(stepio)
        for batch in range(self._flow._batches):
            self._run_batch(stepio, batch)
        self._ran = True

    def _returned(self) -> Dict[str, Tuple[Tuple[int, ...], str]]:
        """Return shape and type of the tensors that come back, by name."""
        from ipubench.models.onnx.network import dtype_of, shape_of

        values = {value.name: value for value in self._model.graph.output}
        names = self._flow._anchors
        return {name: (tuple(shape_of(values[name])), dtype_of(values[name])) for name in names}

    def _check_arrays(self, stepio: PyStepIO) -> None:
        from ipubench.models.onnx.network import dtype_of, shape_of

        expected = {v.name: (tuple(shape_of(v)), dtype_of(v)) for v in self._model.graph.input}
        count = self._flow._batches * self._replicas
        for given, wanted in (
            (stepio._inputs, expected),
            (stepio._outputs, self._returned()),
        ):
            if set(given) != set(wanted):
                raise popart_exception(f"arrays for {sorted(given)}, not for {sorted(wanted)}")
            for name, (shape, dtype) in wanted.items():
                if given[name].size != count * int(np.prod(shape)) or given[name].dtype != dtype:
                    raise popart_exception(
                        f"{name}: {given[name].dtype} {given[name].shape} for {count} times "
                        f"{dtype} {shape}"
                    )

    def _run_batch(self, stepio: PyStepIO, batch: int) -> None:
        from ipubench.models.onnx.network import shape_of

        results = []
        for replica in range(self._replicas):
            index = batch * self._replicas + replica
            inputs = {
                value.name: self._input(stepio, value, tuple(shape_of(value)), index)
                for value in self._model.graph.input
            }
            results.append(self._graph(inputs))
        for name, (shape, dtype) in {} if self._synthetic else self._returned().items():
            rows = stepio._outputs[name].reshape(-1, *shape)
            for replica, values in enumerate(results):
                found = values[name].detach().numpy()
                rows[batch * self._replicas + replica] = found.astype(dtype)
        self._after_batch(results)

    def _input(self, stepio: PyStepIO, value: Any, shape: Tuple[int, ...], index: int) -> Any:
        import torch

        if self._synthetic:
            integers = value.type.tensor_type.elem_type == 6  # INT32
            zeros = integers or self._options.syntheticDataMode is SyntheticDataMode.Zeros
            return torch.zeros(shape) if zeros else torch.randn(shape)
        array = stepio._inputs[value.name].reshape(-1, *shape)[index]
        return torch.from_numpy(array if array.dtype == np.int32 else array.astype(np.float32))

    def _after_batch(self, results: List[Dict[str, Any]]) -> None:
        """Inference keeps its weights."""


class InferenceSession(_Session):
    """Runs a graph forward."""

    @recorded
    def __init__(
        self, fnModel: bytes, dataFlow: DataFlow, deviceInfo: DeviceInfo,
        inputShapeInfo: Any = "popart.InputShapeInfo()", patterns: Any = None,
        userOptions: Any = "popart.SessionOptions()", name: str = "inference",
    ) -> None:  # fmt: skip
        self._open(fnModel, dataFlow, deviceInfo, userOptions)


class TrainingSession(_Session):
    """Runs a graph forward and backward, and updates its weights."""

    _training = True

    @recorded
    def __init__(
        self, fnModel: bytes, dataFlow: DataFlow, loss: str, optimizer: ConstSGD,
        deviceInfo: DeviceInfo, inputShapeInfo: Any = "popart.InputShapeInfo()",
        patterns: Any = None, userOptions: Any = "popart.SessionOptions()", name: str = "training",
    ) -> None:  # fmt: skip
        self._open(fnModel, dataFlow, deviceInfo, userOptions)
        self._loss, self._rate = loss, optimizer._rate

    def _after_batch(self, results: List[Dict[str, Any]]) -> None:
        """Apply the sum of the replicas' gradients, rounded to the weights' type."""
        import torch

        total = sum(values[self._loss] for values in results)
        half = self._model.graph.initializer[0].data_type == 10  # FLOAT16
        slopes = torch.autograd.grad(total, self._graph.parameters)
        with torch.no_grad():
            for weight, slope in zip(self._graph.parameters, slopes):
                weight -= self._rate * slope
                if half:
                    weight.copy_(weight.half().float())


def _evaluator(model: Any, training: bool) -> Any:
    """Return the graph as a function of tensors, in float32."""
    import torch

    from ipubench.fixtures.runtimes.onnx.operators import FUNCTIONS, Target
    from ipubench.fixtures.runtimes.onnx.torch_engine import TorchGraph

    def nll(node: Any, target: Any) -> Any:
        assert node.attributes == {"reduction": "Sum"}
        return lambda p, labels: -torch.log(p.gather(-1, labels.long().unsqueeze(-1))).sum()

    target = Target(torch.device("cpu"), torch.float32, torch.float32, training, threads=1)
    for node in model.graph.node:
        kept = [a for a in node.attribute if a.name != IPU_NUMBER]
        del node.attribute[:]
        node.attribute.extend(kept)
    return TorchGraph(model, target, functions={**FUNCTIONS, "Nll": nll})
