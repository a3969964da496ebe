"""The losses of the networks in ONNX's own operators."""

from __future__ import annotations

from typing import List, Tuple

import onnx
from onnx import helper

from ipubench.models.onnx.network import (
    LABELS,
    LOSS,
    NEGATIVE_LOG_LIKELIHOOD,
    OUTPUT,
    SQUARED_ERROR,
    Network,
    dtype_of,
    shape_of,
    tensor,
)

Part = Tuple[List[onnx.NodeProto], onnx.ValueInfoProto]  # nodes and the labels they read


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
    """The sum of -log(softmax(output)[label]) over all positions; classes are the last axis.

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
    """The sum of (softmax(output) - labels)^2; labels have the output's shape and type.

    The axis is the default of this opset, 1: each image's softmax is over all its elements.
    """
    nodes = [
        helper.make_node("Softmax", [OUTPUT], ["probabilities"]),
        helper.make_node("Sub", ["probabilities", LABELS], ["differences"]),
        helper.make_node("ReduceSumSquare", ["differences"], [LOSS], keepdims=0),
    ]
    return nodes, tensor(LABELS, dtype_of(output), shape_of(output))


_LOSSES = {NEGATIVE_LOG_LIKELIHOOD: _negative_log_likelihood, SQUARED_ERROR: _squared_error}
