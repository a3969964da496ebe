"""One LSTM layer, time-major (Hochreiter and Schmidhuber, 1997, with forget gates)."""

from __future__ import annotations

from typing import Any, Tuple

from ipubench.models.tensorflow.popnn import popnn
from ipubench.models.tensorflow.recurrent import Form, layer


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
) -> Any:
    """Return the layer: inputs [T, B, features] -> hidden states [T, B, size], or the last one.

    Weights are Glorot uniform, gates in the order input, forget, cell, output. The forget gate's
    bias starts at 1, the others at 0 (Jozefowicz et al., 2015). ``fused``: on the SDK's fused
    layer, which is the same; ``half_partials`` tells it to sum in float16.
    """
    glorot = tf.keras.initializers.GlorotUniform

    def cell(part: Any, product: Any, memory: Any) -> Tuple[Any, Any]:
        i, f, g, o = tf.split(tf.cast(part + product, tf.float32), 4, axis=1)
        memory = tf.sigmoid(f) * memory + tf.sigmoid(i) * tf.tanh(g)
        return tf.cast(tf.sigmoid(o) * tf.tanh(memory), part.dtype), memory

    class Lstm(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            # Initialisers exist in float32 for every TensorFlow, in 16 bits not for all.
            self.kernel = tf.Variable(tf.cast(glorot()([features, 4 * size]), dtype))
            self.recurrent = tf.Variable(tf.cast(glorot()([size, 4 * size]), dtype))
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
            memory = (tf.zeros([inputs.shape[1], size]),)
            weights = (self.kernel, self.bias, self.recurrent)
            hidden = layer(tf, cell, inputs, weights, memory, training=training, form=form)
            return hidden if sequences else hidden[-1]

    return Lstm()
