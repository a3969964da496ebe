"""Recurrent layers as the Poplar SDK's fused operations (PopNN), on a model's own weights.

The SDK's ``ipu_tensorflow_addons`` has Keras layers that run all timesteps as one operation of the
IPU. Here such a layer gets a model's weights instead of making its own, so that a model computes
the same with and without it, and its weights are cast and updated like any others. The layers take
their planner's options from those of matrix products; only the type of partial results is an
argument.

The fused layers follow Keras: inputs are time-major, the initial state is zero, weights are
[features, gates * H]. LSTM gates are in the order input, forget, cell, output; GRU gates in the
order update, reset, candidate, and a GRU's next state is z h + (1 - z) h' with update gate z and
candidate h'.
"""

from __future__ import annotations

from typing import Any, Tuple


def popnn(
    tf: Any,
    kind: str,
    inputs: Any,
    weights: Tuple[Any, Any, Any],
    *,
    training: bool,
    half_partials: bool = False,
    sequences: bool = True,
) -> Any:
    """Return the hidden states [T, B, H] for inputs [T, B, I], or only the last one [B, H].

    ``kind``: "LSTM", or "GRU", whose reset gate scales the state before its matrix product (Cho et
    al., 2014, arXiv 1406.1078v3). ``weights``, for G gates: kernel [I, GH], recurrent [H, GH], bias
    [GH], all in the inputs' dtype, float16 or float32; an LSTM's bias includes the forget bias of
    1. Without ``training`` there is no gradient.
    """
    from ipu_tensorflow_addons.keras.layers import PopnnGRU, PopnnLSTM

    fused, own = {"LSTM": (PopnnLSTM, {}), "GRU": (PopnnGRU, {"reset_after": False})}[kind]
    layer = _with_weights(tf, fused, *weights)(
        weights[1].shape[0],
        dtype=inputs.dtype,
        return_sequences=sequences,
        time_major=True,
        partials_dtype=tf.float16 if half_partials else tf.float32,
        **own,
    )
    return layer(inputs, training=training)


def _with_weights(tf: Any, fused: Any, kernel: Any, recurrent: Any, bias: Any) -> Any:
    """Return a fused layer's class with given weights."""
    # As tensors, because Keras would take over variables.
    weights = [tf.convert_to_tensor(weight) for weight in (kernel, recurrent, bias)]

    class Layer(fused):
        def build(self, input_shape: Any) -> None:
            self.kernel, self.recurrent_kernel, self.biases = weights
            self.built = True

    return Layer
