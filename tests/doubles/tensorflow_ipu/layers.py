"""The fused recurrent layers of ``ipu_tensorflow_addons.keras.layers`` in plain operations.

The mathematics and the order of gates are those of Keras's LSTM and GRU, with which the SDK's tests
compare the fused layers.
"""

from __future__ import annotations

from typing import Any, Dict

from tests.doubles.tensorflow_ipu.config import check_planned
from tests.doubles.tensorflow_ipu.record import STAND_IN, recorder


def classes() -> Dict[str, Any]:
    """Return the layers' classes, built on the installed Keras."""
    import tensorflow as tf

    class PopnnRNN(tf.keras.layers.Layer):
        """The base class of both, with the SDK options that the project sets."""

        def __init__(
            self,
            units: int,
            return_sequences: bool = False,
            partials_dtype: Any = tf.float32,
            time_major: bool = False,
            **kwargs: Any,
        ) -> None:
            given = {"units": units, "partials_dtype": partials_dtype, "time_major": time_major}
            recorder.calls.append((f"{type(self).__mro__[1].__name__}.__init__", given))
            assert partials_dtype in (tf.float16, tf.float32)
            assert time_major, "the stand-in computes time-major only"
            # TensorFlow gives them the options of matrix products (rnn_util.cc).
            check_planned("recurrent", recorder.configured.get("matmuls.poplar_options", {}))
            super().__init__(**kwargs)
            assert tf.as_dtype(self.dtype) in (tf.float16, tf.float32)
            self._units, self._return_sequences = units, return_sequences

        def _checked(self, inputs: Any, mask: Any, training: Any, initial_state: Any) -> Any:
            """Return the inputs after all checks."""
            assert mask is None
            assert initial_state is None
            for weight in (self.kernel, self.recurrent_kernel, self.biases):
                assert weight.dtype == inputs.dtype, (weight.dtype, inputs.dtype)
            return inputs if training else without_gradient(inputs)

        def _result(self, states: Any) -> Any:
            return states if self._return_sequences else states[-1]

    @tf.custom_gradient  # type: ignore[untyped-decorator, unused-ignore]
    def without_gradient(inputs: Any) -> Any:
        def gradient(*slopes: Any) -> Any:
            raise ValueError("is_training must be set to True.")

        return tf.identity(inputs), gradient

    class PopnnLSTM(PopnnRNN):
        def call(
            self, inputs: Any, mask: Any = None, training: Any = None, initial_state: Any = None
        ) -> Any:
            inputs = self._checked(inputs, mask, training, initial_state)

            def step(state: Any, here: Any) -> Any:
                hidden, cell = state
                sums = here @ self.kernel + hidden @ self.recurrent_kernel + self.biases
                i, f, c, o = tf.split(sums, 4, axis=1)
                cell = tf.sigmoid(f) * cell + tf.sigmoid(i) * tf.tanh(c)
                return tf.sigmoid(o) * tf.tanh(cell), cell

            start = tf.zeros([inputs.shape[1], self._units], inputs.dtype)
            with tf.name_scope(STAND_IN):
                return self._result(tf.scan(step, inputs, (start, start))[0])

    class PopnnGRU(PopnnRNN):
        def __init__(self, units: int, reset_after: bool = True, **kwargs: Any) -> None:
            super().__init__(units, **kwargs)
            self._reset_after = reset_after

        def call(
            self, inputs: Any, mask: Any = None, training: Any = None, initial_state: Any = None
        ) -> Any:
            inputs = self._checked(inputs, mask, training, initial_state)
            width = 3 * self._units
            assert self.biases.shape == ([2, width] if self._reset_after else [width])
            bias, own = self.biases, tf.zeros([width], inputs.dtype)
            if self._reset_after:
                bias, own = tf.unstack(self.biases)
            parts = [2 * self._units, self._units]
            of_gates, of_candidate = tf.split(self.recurrent_kernel, parts, axis=1)
            own_gates, own_candidate = tf.split(own, parts)

            def step(hidden: Any, here: Any) -> Any:
                x_gates, x = tf.split(here @ self.kernel + bias, parts, axis=1)
                z, r = tf.split(tf.sigmoid(x_gates + hidden @ of_gates + own_gates), 2, axis=1)
                if self._reset_after:
                    new = tf.tanh(x + r * (hidden @ of_candidate + own_candidate))
                else:
                    new = tf.tanh(x + (r * hidden) @ of_candidate)
                return z * hidden + (1 - z) * new

            start = tf.zeros([inputs.shape[1], self._units], inputs.dtype)
            with tf.name_scope(STAND_IN):
                return self._result(tf.scan(step, inputs, start))

    return {"PopnnLSTM": PopnnLSTM, "PopnnGRU": PopnnGRU}
