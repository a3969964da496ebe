"""A network as an ONNX graph, which PopART, ONNX Runtime and PyTorch are given alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Sequence

import onnx
from onnx import TensorProto, helper, numpy_helper

# The newest operators that PopART takes, and the format of ONNX 1.6, which came with them.
OPSET = 11
IR_VERSION = 6
INPUTS, OUTPUT, LABELS, LOSS = "inputs", "output", "labels", "loss"
NEGATIVE_LOG_LIKELIHOOD = "negative log likelihood"
SQUARED_ERROR = "squared error"
WEIGHT_SEED = 42  # of NumPy, as in the original programs
TENSOR_TYPES = {
    "float16": TensorProto.FLOAT16,
    "float32": TensorProto.FLOAT,
    "int32": TensorProto.INT32,
}


@dataclass(frozen=True)
class Network:
    """A graph from ``inputs`` to ``output``, its weights as initializers, and how it is trained."""

    proto: onnx.ModelProto
    loss: str


def tensor(name: str, dtype: str, shape: Sequence[int]) -> onnx.ValueInfoProto:
    """Declare an input or an output of a graph; ``dtype`` by NumPy's name."""
    return helper.make_tensor_value_info(name, TENSOR_TYPES[dtype], list(shape))


def single_layer(
    layer: onnx.NodeProto,
    weights: Dict[str, Any],
    dtype: str,
    input_shape: Sequence[int],
    output_shape: Sequence[int],
    loss: str,
) -> Network:
    """Return the network of one node, whose NumPy ``weights`` are cast to ``dtype``."""
    graph = helper.make_graph(
        [layer],
        layer.op_type.lower(),
        [tensor(INPUTS, dtype, input_shape)],
        [tensor(OUTPUT, dtype, output_shape)],
        [numpy_helper.from_array(value.astype(dtype), name) for name, value in weights.items()],
    )
    proto = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    onnx.checker.check_model(proto)
    return Network(proto, loss)


def shape_of(value: onnx.ValueInfoProto) -> Sequence[int]:
    """Return the shape of a declared tensor."""
    return tuple(size.dim_value for size in value.type.tensor_type.shape.dim)


def dtype_of(value: onnx.ValueInfoProto) -> str:
    """Return the type of a declared tensor's elements, by NumPy's name."""
    names = {number: name for name, number in TENSOR_TYPES.items()}
    return names[value.type.tensor_type.elem_type]
