"""One LSTM layer, time-major (Hochreiter and Schmidhuber, 1997, with forget gates)."""

from __future__ import annotations

from typing import Any, Tuple

from ipubench.models.tensorflow.dynamic_rnn import OneProduct, dynamic_rnn
from ipubench.models.tensorflow.popnn import popnn
from ipubench.models.tensorflow.recurrent import Form, gate_weights, layer


def lstm_layer(
    tf: Any,
    dtype: Any,
    features: int,
    size: int,
    *,
    training: bool,
    form: Form,
    fused: bool = False,
    half_partials: bool = False,
    of_inputs: bool = False,
) -> Any:
    """Return the layer: inputs [T, B, features] -> hidden states [T, B, size], or the last one.

    Weights are Glorot uniform, gates in the order input, forget, cell, output. The forget gate's
    bias starts at 1, the others at 0 (Jozefowicz et al., 2015). ``fused`` selects the SDK's equal
    fused layer; with ``half_partials`` it sums in float16. ``of_inputs``: training needs the
    gradient of the inputs, as in a stack of layers.
    """

    def gates(sums: Any, memory: Any) -> Tuple[Any, Any]:
        i, f, g, o = tf.split(sums, 4, axis=1)
        memory = tf.sigmoid(f) * memory + tf.sigmoid(i) * tf.tanh(g)
        return tf.sigmoid(o) * tf.tanh(memory), memory

    def cell(part: Any, product: Any, memory: Any) -> Tuple[Any, Any]:
        hidden, memory = gates(tf.cast(part + product, tf.float32), memory)
        return tf.cast(hidden, part.dtype), memory

    dynamic = form.dynamic and not fused

    class Lstm(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel, *rest = gate_weights(tf, dtype, features, size, 4, dynamic)
            if rest:
                (self.recurrent,) = rest
            bias = tf.concat([tf.zeros([size]), tf.ones([size]), tf.zeros([2 * size])], 0)
            self.bias = tf.Variable(tf.cast(bias, dtype))

        def __call__(self, inputs: Any, sequences: bool = True) -> Any:
            if fused:
                return popnn(
                    tf,
                    "LSTM",
                    inputs,
                    (self.kernel, self.recurrent, self.bias),
                    training=training,
                    half_partials=half_partials,
                    sequences=sequences,
                )
            if dynamic:
                zeros = tf.zeros([inputs.shape[1], size], inputs.dtype)
                hidden = dynamic_rnn(
                    tf,
                    OneProduct(tf, gates),
                    inputs,
                    (zeros, zeros),
                    (self.kernel, self.bias),
                    training=training,
                    form=form,
                    of_inputs=of_inputs,
                )
            else:
                memory = (tf.zeros([inputs.shape[1], size]),)
                weights = (self.kernel, self.bias, self.recurrent)
                hidden = layer(tf, cell, inputs, weights, memory, training=training, form=form)
            return hidden if sequences else hidden[-1]

    return Lstm()
