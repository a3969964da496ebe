"""One LSTM layer without biases, time-major, as many inputs as hidden units."""

from __future__ import annotations

import numpy as np
from onnx import helper

from ipubench.models.onnx.network import (
    INPUTS,
    NEGATIVE_LOG_LIKELIHOOD,
    OUTPUT,
    WEIGHT_SEED,
    Network,
    single_layer,
)


def lstm_network(
    batch_size: int, timesteps: int, hidden_size: int, dtype: str, zeros: bool = False
) -> Network:
    """Return the network [T, B, H] -> hidden states of every timestep [T, 1, B, H].

    The weights, ``gate_weights`` for the inputs and ``recurrence_weights`` for the state, both
    [1, 4H, H] with the gates in ONNX's order (input, output, forget, cell), are standard normal
    values, or zeros. The loss is the negative log likelihood of labels int32 [T, 1, B].
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
