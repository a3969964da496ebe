"""Single-layer networks as ONNX graphs, for PopART, ONNX Runtime and PyTorch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# The newest operators that PopART supports, and the format of ONNX 1.6, which introduced them.
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
    """A graph from ``inputs`` to ``output``, its weights as initializers, and its loss."""

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
    """Return a network of one node. Its NumPy ``weights`` are cast to ``dtype``."""
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


def conv_output_size(size: int, kernel_size: int, padding: int, stride: int) -> int:
    """Return the output's height or width from the input's."""
    return (size + 2 * padding - kernel_size) // stride + 1


def conv_network(
    batch_size: int,
    channels: int,
    height: int,
    width: int,
    filters: int,
    kernel_size: int,
    padding: int,
    stride: int,
    dtype: str,
    zeros: bool = False,
) -> Network:
    """Return a network [B, C, height, width] -> [B, F, out_height, out_width].

    ``filters`` [F, C, k, k] and ``bias`` [F] are uniform within sqrt(15 / (C height width)), as in
    the original program, which takes the image as fan-in instead of the kernel; or zeros. The loss
    is the squared error to labels of the output's shape and type.
    """
    generator = np.random.RandomState(WEIGHT_SEED)
    bound = 0.0 if zeros else math.sqrt(15 / (channels * height * width))
    shapes = {"filters": (filters, channels, kernel_size, kernel_size), "bias": (filters,)}
    layer = helper.make_node(
        "Conv",
        [INPUTS, *shapes],
        [OUTPUT],
        kernel_shape=[kernel_size] * 2,
        pads=[padding] * 4,
        strides=[stride] * 2,
    )
    out = [conv_output_size(size, kernel_size, padding, stride) for size in (height, width)]
    return single_layer(
        layer,
        {name: generator.uniform(-bound, bound, shape) for name, shape in shapes.items()},
        dtype,
        (batch_size, channels, height, width),
        (batch_size, filters, *out),
        SQUARED_ERROR,
    )


def lstm_network(
    batch_size: int, timesteps: int, hidden_size: int, dtype: str, zeros: bool = False
) -> Network:
    """Return a network [T, B, H] -> hidden states of each timestep [T, 1, B, H].

    The weights are ``gate_weights`` for the inputs and ``recurrence_weights`` for the state, both
    [1, 4H, H] with the gates in ONNX's order (input, output, forget, cell). They are standard
    normal values, or zeros. The loss is the negative log likelihood of labels int32 [T, 1, B].
    """
    generator = np.random.RandomState(WEIGHT_SEED)
    shape = (1, 4 * hidden_size, hidden_size)
    names = ("gate_weights", "recurrence_weights")
    weights = {name: np.zeros(shape) if zeros else generator.normal(size=shape) for name in names}
    layer = helper.make_node("LSTM", [INPUTS, *names], [OUTPUT], hidden_size=hidden_size)
    return single_layer(
        layer,
        weights,
        dtype,
        (timesteps, batch_size, hidden_size),
        (timesteps, 1, batch_size, hidden_size),
        NEGATIVE_LOG_LIKELIHOOD,
    )


Part = Tuple[List[onnx.NodeProto], onnx.ValueInfoProto]  # nodes and the labels that they read


def with_loss(network: Network) -> onnx.ModelProto:
    """Return the network's graph with the input ``labels`` and the scalar output ``loss``."""
    (output,) = network.proto.graph.output
    nodes, labels = _LOSSES[network.loss](output)
    proto = onnx.ModelProto()
    proto.CopyFrom(network.proto)
    proto.graph.node.extend(nodes)
    proto.graph.input.append(labels)
    proto.graph.output.append(tensor(LOSS, dtype_of(output), ()))
    onnx.checker.check_model(proto)
    return proto


def _negative_log_likelihood(output: onnx.ValueInfoProto) -> Part:
    """Return the sum of -log(softmax(output)[label]) over all positions; classes are the last axis.

    Labels are int32 of the output's shape without that axis.
    """
    *positions, _ = shape_of(output)
    last = len(positions)
    nodes = [
        helper.make_node("LogSoftmax", [OUTPUT], ["log_probabilities"], axis=last),
        helper.make_node("Unsqueeze", [LABELS], ["classes"], axes=[last]),
        helper.make_node("GatherElements", ["log_probabilities", "classes"], ["picked"], axis=last),
        helper.make_node("ReduceSum", ["picked"], ["log_likelihood"], keepdims=0),
        helper.make_node("Neg", ["log_likelihood"], [LOSS]),
    ]
    return nodes, tensor(LABELS, "int32", positions)


def _squared_error(output: onnx.ValueInfoProto) -> Part:
    """Return the sum of (softmax(output) - labels)^2; labels have the output's shape and type.

    The axis is this opset's default, 1: the softmax is over all elements of an image.
    """
    nodes = [
        helper.make_node("Softmax", [OUTPUT], ["probabilities"]),
        helper.make_node("Sub", ["probabilities", LABELS], ["differences"]),
        helper.make_node("ReduceSumSquare", ["differences"], [LOSS], keepdims=0),
    ]
    return nodes, tensor(LABELS, dtype_of(output), shape_of(output))


_LOSSES = {NEGATIVE_LOG_LIKELIHOOD: _negative_log_likelihood, SQUARED_ERROR: _squared_error}
