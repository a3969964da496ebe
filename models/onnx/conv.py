"""One 2D convolution with bias, channels first."""

from __future__ import annotations

import math

import numpy as np
from onnx import helper

from ipubench.models.onnx.network import (
    INPUTS,
    OUTPUT,
    SQUARED_ERROR,
    WEIGHT_SEED,
    Network,
    single_layer,
)


def conv_output_size(size: int, kernel_size: int, padding: int, stride: int) -> int:
    """Return the output's height or width for that of the input."""
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
    """Return the network [B, C, height, width] -> [B, F, out_height, out_width].

    ``filters`` [F, C, k, k] and ``bias`` [F] are uniform within sqrt(15 / (C height width)), as
    in the original program, whose fan-in is the image instead of the kernel; or zeros. The loss is
    the squared error to labels of the output's shape and type.
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
