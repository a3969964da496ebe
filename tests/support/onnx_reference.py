"""The PopART kernels in NumPy, float64, from their equations: outputs, losses, gradients."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import numpy as np

from ipubench.bench_kernels.bench_popart_conv import PopartConv

Array = Any  # float64 np.ndarray
Weights = Dict[str, Array]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def lstm(weights: Weights, x: Array) -> Tuple[Array, Dict[str, Array]]:
    """Return (hidden states [T, B, H], intermediate values for the gradient).

    The rows of ONNX's weights are the gates input, output, forget, cell.
    """
    inward, state = weights["gate_weights"][0], weights["recurrence_weights"][0]
    timesteps, batch, size = x.shape
    hidden = np.zeros((timesteps + 1, batch, size))
    cell = np.zeros((timesteps + 1, batch, size))
    gates = np.zeros((timesteps, 4, batch, size))
    for t in range(timesteps):
        for gate in range(4):
            rows = slice(gate * size, (gate + 1) * size)
            sums = x[t] @ inward[rows].T + hidden[t] @ state[rows].T
            gates[t, gate] = np.tanh(sums) if gate == 3 else sigmoid(sums)
        i, o, f, c = gates[t]
        cell[t + 1] = f * cell[t] + i * c
        hidden[t + 1] = o * np.tanh(cell[t + 1])
    return hidden[1:], {"hidden": hidden, "cell": cell, "gates": gates}


def lstm_loss(weights: Weights, x: Array, labels: Array) -> float:
    """Return the summed negative log likelihood of ``labels`` [T, 1, B]."""
    states, _ = lstm(weights, x)
    return float(-np.log(_picked(_softmax(states), labels[:, 0])).sum())


def lstm_gradients(weights: Weights, x: Array, labels: Array) -> Weights:
    """Return the gradients of :func:`lstm_loss`, by backpropagation through time."""
    states, kept = lstm(weights, x)
    state = weights["recurrence_weights"][0]
    hidden, cell, gates = kept["hidden"], kept["cell"], kept["gates"]
    slopes = _softmax(states)
    np.put_along_axis(
        slopes, labels[:, 0, :, None], _picked(slopes, labels[:, 0])[..., None] - 1, 2
    )
    found = {name: np.zeros_like(value) for name, value in weights.items()}
    from_later, cell_slope = np.zeros_like(x[0]), np.zeros_like(x[0])
    for t in reversed(range(len(x))):
        i, o, f, c = gates[t]
        slope = slopes[t] + from_later
        squashed = np.tanh(cell[t + 1])
        cell_slope = cell_slope + slope * o * (1 - squashed**2)
        sums = np.concatenate(
            [
                cell_slope * c * i * (1 - i),
                slope * squashed * o * (1 - o),
                cell_slope * cell[t] * f * (1 - f),
                cell_slope * i * (1 - c**2),
            ],
            axis=1,
        )
        found["gate_weights"][0] += sums.T @ x[t]
        found["recurrence_weights"][0] += sums.T @ hidden[t]
        from_later, cell_slope = sums @ state, cell_slope * f
    return found


def conv(config: PopartConv, weights: Weights, x: Array) -> Array:
    """Return the convolution [B, F, out_height, out_width], one output pixel at a time."""
    filters, bias = weights["filters"], weights["bias"]
    result = np.zeros(config.output_shape)
    for row, column, patch in _patches(config, x):
        result[:, :, row, column] = np.einsum("bchw,fchw->bf", patch, filters) + bias
    return result


def conv_loss(config: PopartConv, weights: Weights, x: Array, labels: Array) -> float:
    """Return the sum of squared differences between each image's softmax and its labels."""
    return float(((_image_softmax(conv(config, weights, x)) - labels) ** 2).sum())


def conv_gradients(config: PopartConv, weights: Weights, x: Array, labels: Array) -> Weights:
    """Return the gradients of :func:`conv_loss`."""
    probabilities = _image_softmax(conv(config, weights, x))
    slopes = 2 * (probabilities - labels)
    mean = (slopes * probabilities).sum(axis=(1, 2, 3), keepdims=True)
    slopes = probabilities * (slopes - mean)
    filters = np.zeros_like(weights["filters"])
    for row, column, patch in _patches(config, x):
        filters += np.einsum("bf,bchw->fchw", slopes[:, :, row, column], patch)
    return {"filters": filters, "bias": slopes.sum(axis=(0, 2, 3))}


def _patches(config: PopartConv, x: Array) -> Any:
    edge = (config.padding, config.padding)
    padded = np.pad(x, ((0, 0), (0, 0), edge, edge))
    for row in range(config.output_shape[2]):
        for column in range(config.output_shape[3]):
            top, left = row * config.stride, column * config.stride
            size = config.kernel_size
            yield row, column, padded[:, :, top : top + size, left : left + size]


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _image_softmax(x: Array) -> Array:
    return _softmax(x.reshape(len(x), -1)).reshape(x.shape)


def _picked(values: Array, labels: Array) -> Array:
    return np.take_along_axis(values, labels[..., None], axis=-1)[..., 0]
