"""Devices, and sessions that run a graph on them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np

from tests.doubles.popart.builder import IPU_NUMBER
from tests.doubles.popart.options import (
    ConstSGD,
    DataFlow,
    SessionOptions,
    SyntheticDataMode,
    VirtualGraphMode,
)
from tests.doubles.popart.record import Array, popart_exception, recorded, recorder

CYCLES_PER_BATCH = 1000


class DeviceInfo:
    """One device of one or more IPUs."""

    def __init__(self, ipus: int, is_model: bool = False) -> None:
        self._ipus = ipus
        self._is_model = is_model
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
        return DeviceInfo(int(e["numIPUs"]), is_model=True)


class PyStepIO:
    """The host's arrays for one call."""

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
    """Shared by both sessions: a graph on a device."""

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
        self._graph = _Graph(self._model, self._training)
        self._prepared = True
        self._store()

    def _store(self) -> None:
        """Store the executable, which has the name of its program, as later PopARTs do."""
        folder = os.environ.get("POPART_CACHE_DIR") or os.environ.get("POPXL_CACHE_DIR")
        if folder and not self._device._is_model:
            program = self._model.SerializeToString(deterministic=True)
            name = hashlib.sha256(program).hexdigest()
            Path(folder).mkdir(parents=True, exist_ok=True)
            (Path(folder) / f"{name}.popef").write_bytes(b"executable")

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
        """Return shape and type of the returned tensors, by name."""
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
        """Do nothing: inference keeps its weights."""


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
        slopes = torch.autograd.grad(total, list(self._graph.kernel.parameters()))
        with torch.no_grad():
            for weight, slope in zip(self._graph.kernel.parameters(), slopes):
                weight -= self._rate * slope
                if half:
                    weight.copy_(weight.half().float())


class _Graph:
    """A layer and the operators of its loss, as a function of tensors in float32."""

    def __init__(self, model: Any, training: bool) -> None:
        import torch

        from ipubench.fixtures.runtimes.onnx.modules import Target, kernel_of

        self.kernel = kernel_of(
            model, Target(torch.device("cpu"), torch.float32, torch.float32, training)
        )
        self._layer, *self._loss = model.graph.node

    def __call__(self, inputs: Dict[str, Any]) -> Dict[str, Any]:
        values = dict(inputs)
        values[self._layer.output[0]] = self.kernel(values[self._layer.input[0]])
        for node in self._loss:
            values[node.output[0]] = _computed(node, [values[name] for name in node.input])
        return values


def _computed(node: Any, given: List[Any]) -> Any:
    import torch
    from onnx import helper

    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    attributes.pop(IPU_NUMBER, None)
    if node.op_type == "Nll":
        assert attributes == {"reduction": b"Sum"}
        probabilities, labels = given
        return -torch.log(probabilities.gather(-1, labels.long().unsqueeze(-1))).sum()
    if node.op_type == "Softmax":
        axis = attributes["axis"]  # and all after it
        return torch.softmax(given[0].flatten(axis), axis).view_as(given[0])
    if node.op_type == "Sub":
        return given[0] - given[1]
    assert node.op_type == "ReduceSumSquare" and attributes == {"keepdims": 0}
    return (given[0] ** 2).sum()
