"""Recurrent layers as the Poplar SDK's fused operations (PopNN), on weights that a model owns.

``ipu_tensorflow_addons``, which comes with the SDK, has Keras layers that run all timesteps as one
operation of the IPU. Here such a layer is given a model's weights instead of making its own, so
that a model computes the same with it as without, and its weights are cast and updated as any
others. The layers take their planner's options from those of matrix products; only the type of
partial results is their own argument.

Conventions of the fused layers, those of Keras: inputs are time-major, the initial state is zero,
weights are [features, gates * H]. LSTM gates stand in the order input, forget, cell, output; GRU
gates in the order update, reset, candidate, and a GRU's next state is z h + (1 - z) h' with update
gate z and candidate h'.
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

    ``kind``: "LSTM", or "GRU" whose reset gate scales the state before its matrix product (Cho et
    al., 2014, arXiv 1406.1078v3). ``weights``, for G gates: kernel [I, GH], recurrent [H, GH], bias
    [GH], all in the inputs' dtype, float16 or float32; an LSTM's forget bias of 1 is part of the
    bias. Without ``training`` there is no gradient.
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
    """Return a fused layer's class whose weights are given ones."""
    # As tensors: Keras would make variables its own.
    weights = [tf.convert_to_tensor(weight) for weight in (kernel, recurrent, bias)]

    class Layer(fused):
        def build(self, input_shape: Any) -> None:
            self.kernel, self.recurrent_kernel, self.biases = weights
            self.built = True

    return Layer
