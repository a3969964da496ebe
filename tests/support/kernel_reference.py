"""The TensorFlow kernels in NumPy, float64, each written from its equations."""

from __future__ import annotations

from typing import Any, Callable, Dict

import numpy as np

from ipubench.bench_kernels.bench_dense import Dense
from ipubench.bench_kernels.bench_grouped_conv import GroupedConv
from ipubench.bench_kernels.bench_gru import Gru
from ipubench.bench_kernels.bench_lstm import Lstm
from ipubench.bench_kernels.bench_lstm_multi import LstmMulti
from ipubench.bench_kernels.bench_rnn import Rnn
from tests.support.kernels import Array, Weights, cross_entropy, sigmoid


def output_of(config: Any, weights: Weights, batch: Dict[str, Array]) -> Array:
    """Return a kernel's output for a batch."""
    weights = apart(config, weights)
    return OUTPUTS[type(config)](config, weights, batch["inputs"])


def loss_of(config: Any, weights: Weights, batch: Dict[str, Array]) -> float:
    """Return the loss that training minimises."""
    output = output_of(config, weights, batch)
    if isinstance(config, (Dense, GroupedConv)):
        return float(output.mean())
    if isinstance(config, LstmMulti):
        return float(((output - batch["labels"]) ** 2).mean())
    return cross_entropy(output, batch["labels"])


def apart(config: Any, weights: Weights) -> Weights:
    """Return weights with separate matrices for inputs and state, which an IPU joins."""
    if not isinstance(config, (Gru, Lstm, LstmMulti, Rnn)) or any(
        "recurrent" in name for name in weights
    ):
        return weights
    found = dict(weights)
    if "candidate" in found:
        for name in ("kernel", "bias"):
            other = found.pop("candidate" if name == "kernel" else "candidate_bias")
            found[name] = np.concatenate([found[name], other], -1)
    for name in [name for name in found if name.endswith("kernel")]:
        features = found[name].shape[0] - config.hidden_size
        recurrent = f"{name[: -len('kernel')]}recurrent"
        found[name], found[recurrent] = found[name][:features], found[name][features:]
    return found


def dense(config: Dense, w: Weights, x: Array) -> Array:
    output = x @ w["kernel"] + w["bias"]
    return np.maximum(output, 0) if config.include_activation else output


def rnn(config: Any, w: Weights, x: Array) -> Array:
    hidden = np.zeros((x.shape[1], w["recurrent"].shape[0]))
    states = []
    for inputs in x:
        hidden = np.tanh(inputs @ w["kernel"] + hidden @ w["recurrent"] + w["bias"])
        states.append(hidden)
    return np.stack(states)


def lstm(config: Any, w: Weights, x: Array) -> Array:
    """Gates one by one: input, forget, cell, output."""
    w = {name.rpartition(".")[2]: value for name, value in w.items()}
    size = w["recurrent"].shape[0]
    hidden = cell = np.zeros((x.shape[1], size))
    states = []
    for inputs in x:
        sums = inputs @ w["kernel"] + hidden @ w["recurrent"] + w["bias"]
        i, f, g, o = (sums[:, n * size : (n + 1) * size] for n in range(4))
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        hidden = sigmoid(o) * np.tanh(cell)
        states.append(hidden)
    return np.stack(states)


def gru(config: Any, w: Weights, x: Array) -> Array:
    """Gates one by one: update, reset, candidate; the reset gate scales the state."""
    size = w["recurrent"].shape[0]
    w_z, w_r, w_c = (w["kernel"][:, n * size : (n + 1) * size] for n in range(3))
    u_z, u_r, u_c = (w["recurrent"][:, n * size : (n + 1) * size] for n in range(3))
    b_z, b_r, b_c = (w["bias"][n * size : (n + 1) * size] for n in range(3))
    hidden = np.zeros((x.shape[1], size))
    states = []
    for inputs in x:
        update = sigmoid(inputs @ w_z + hidden @ u_z + b_z)
        reset = sigmoid(inputs @ w_r + hidden @ u_r + b_r)
        candidate = np.tanh(inputs @ w_c + (reset * hidden) @ u_c + b_c)
        hidden = update * hidden + (1 - update) * candidate
        states.append(hidden)
    return np.stack(states)


def lstm_multi(config: LstmMulti, w: Weights, x: Array) -> Array:
    for number in range(config.num_layers):
        names = ("kernel", "recurrent", "bias")
        x = lstm(config, {name: w[f"layers.{number}.{name}"] for name in names}, x)
    return x[-1] @ w["dense"] + w["bias"]


def grouped_conv(config: GroupedConv, w: Weights, x: Array) -> Array:
    for number in range(config.block_repeats):
        x = convolution(x, w[f"kernels.{number}"], config.stride)
    return x


def convolution(images: Array, kernel: Array, stride: int) -> Array:
    """One grouped convolution with SAME padding, one position of the kernel at a time."""
    batch_size, side, _, channels = images.shape
    size, _, depth, filters = kernel.shape
    groups = channels // depth
    result = -(-side // stride)
    padding = max(0, (result - 1) * stride + size - side)
    before = padding // 2
    padded = np.zeros((batch_size, side + padding, side + padding, channels))
    padded[:, before : before + side, before : before + side] = images
    grouped = padded.reshape(*padded.shape[:3], groups, depth)
    weights = kernel.reshape(size, size, depth, groups, filters // groups)
    reach = (result - 1) * stride + 1
    output = np.zeros((batch_size, result, result, groups, filters // groups))
    for row in range(size):
        for column in range(size):
            seen = grouped[:, row : row + reach : stride, column : column + reach : stride]
            output += np.einsum("bhwgd,dgf->bhwgf", seen, weights[row, column])
    return output.reshape(batch_size, result, result, filters)


OUTPUTS: Dict[type, Callable[[Any, Weights, Array], Array]] = {
    Dense: dense,
    GroupedConv: grouped_conv,
    Gru: gru,
    Lstm: lstm,
    LstmMulti: lstm_multi,
    Rnn: rnn,
}
