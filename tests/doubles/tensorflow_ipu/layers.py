"""The fused recurrent layers of ``ipu_tensorflow_addons.keras.layers``, as plain operations.

The mathematics and the order of gates are those of Keras' own LSTM and GRU, with which the SDK's
tests compare the fused layers.
"""

from __future__ import annotations

from typing import Any, Dict

from tests.doubles.tensorflow_ipu.record import STAND_IN, recorder

UNSUPPORTED = (
    "kernel_regularizer",
    "recurrent_regularizer",
    "bias_regularizer",
    "activity_regularizer",
    "kernel_constraint",
    "recurrent_constraint",
    "bias_constraint",
    "recurrent_dropout",
    "go_backwards",
    "unroll",
    "dropout",
    "stateful",
)


def classes() -> Dict[str, Any]:
    """Return the layers' classes, made on the installed Keras."""
    import tensorflow as tf

    class PopnnRNN(tf.keras.layers.Layer):
        """What both have in common; the constructors differ in their signatures."""

        def _prepare(self, name: str, arguments: Dict[str, Any]) -> None:
            """Record all arguments of the constructor and refuse what does not fit."""
            del arguments["self"], arguments["__class__"]
            recorder.calls.append((name, arguments))
            for name in UNSUPPORTED:
                assert not arguments.get(name), f"the stand-in has no {name}"
            assert arguments["use_bias"], "the layer does not support use_bias = False"
            assert arguments["partials_dtype"] in (tf.float16, tf.float32)
            assert tf.as_dtype(self.dtype) in (tf.float16, tf.float32)
            self._units = arguments["units"]
            self._return_sequences = arguments["return_sequences"]
            self._return_state = arguments["return_state"]
            self._time_major = arguments["time_major"]

        def _checked(self, inputs: Any, mask: Any, training: Any, initial_state: Any) -> Any:
            """Return the inputs, once everything fits."""
            assert mask is None
            assert initial_state is None
            assert self._time_major, "the stand-in computes time-major only"
            assert not self._return_state
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
        def __init__(
            self,
            units: int,
            activation: str = "tanh",
            recurrent_activation: str = "sigmoid",
            use_bias: bool = True,
            kernel_initializer: Any = "glorot_uniform",
            recurrent_initializer: Any = "orthogonal",
            bias_initializer: Any = "zeros",
            unit_forget_bias: bool = True,
            kernel_regularizer: Any = None,
            recurrent_regularizer: Any = None,
            bias_regularizer: Any = None,
            activity_regularizer: Any = None,
            kernel_constraint: Any = None,
            recurrent_constraint: Any = None,
            bias_constraint: Any = None,
            dropout: float = 0.0,
            dropout_seed: Any = None,
            recurrent_dropout: float = 0.0,
            implementation: int = 2,
            return_sequences: bool = False,
            return_state: bool = False,
            go_backwards: bool = False,
            stateful: bool = False,
            unroll: bool = False,
            partials_dtype: Any = tf.float32,
            seed: Any = None,
            time_major: bool = False,
            options: Any = None,
            options_bwd: Any = None,
            **kwargs: Any,
        ) -> None:
            arguments = dict(locals())
            super().__init__(**kwargs)
            self._prepare("PopnnLSTM.__init__", arguments)

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
        def __init__(
            self,
            units: int,
            activation: str = "tanh",
            recurrent_activation: str = "sigmoid",
            use_bias: bool = True,
            kernel_initializer: Any = "glorot_uniform",
            recurrent_initializer: Any = "orthogonal",
            bias_initializer: Any = "zeros",
            kernel_regularizer: Any = None,
            recurrent_regularizer: Any = None,
            bias_regularizer: Any = None,
            activity_regularizer: Any = None,
            kernel_constraint: Any = None,
            recurrent_constraint: Any = None,
            bias_constraint: Any = None,
            dropout: float = 0.0,
            dropout_seed: Any = None,
            recurrent_dropout: float = 0.0,
            implementation: int = 2,
            return_sequences: bool = False,
            return_state: bool = False,
            go_backwards: bool = False,
            stateful: bool = False,
            unroll: bool = False,
            reset_after: bool = True,
            seed: Any = None,
            partials_dtype: Any = tf.float32,
            time_major: bool = False,
            options: Any = None,
            options_bwd: Any = None,
            **kwargs: Any,
        ) -> None:
            arguments = dict(locals())
            super().__init__(**kwargs)
            self._prepare("PopnnGRU.__init__", arguments)
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
