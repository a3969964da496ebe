"""The builder of graphs."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Set

import numpy as np

from tests.doubles.popart.options import ReductionType, TensorInfo
from tests.doubles.popart.record import popart_exception, recorded

IPU_NUMBER = "__ipu_number"  # the attribute that places a node


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
