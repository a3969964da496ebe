"""One GRU layer, time-major.

inputs [timesteps, batch_size, input_size] -> hidden states [timesteps, batch_size, hidden_size].
Training minimises the mean softmax cross-entropy of the hidden states against labels of their shape
with SGD at 0.01. An item is one complete sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Dict, Tuple

from ipubench.bench_kernels.recurrent_kernel import RecurrentKernel
from ipubench.fixtures.case.cases import cases
from ipubench.fixtures.case.options import option
from ipubench.fixtures.data.provider import Data
from ipubench.models.tensorflow.dynamic_rnn import Cell, affine, dynamic_rnn, slopes_of_affine
from ipubench.models.tensorflow.popnn import popnn
from ipubench.models.tensorflow.recurrent import (
    Form,
    State,
    factor_of,
    form_for,
    gate_weights,
    inputs_part,
    one_kernel,
    over_time,
    product,
    scan,
    sequence_loss,
)


@dataclass(frozen=True)
class Gru(RecurrentKernel):
    """Options of the layer; defaults of the original program."""

    gates = 3

    name: str = option("gru", "first part of the case's identifier")
    input_size: int = option(128, "features of the input", minimum=1)
    popnn: bool = option(False, "the SDK's fused layer instead of single operations", ipu_only=True)

    @property
    def features(self) -> int:
        """Features of the input."""
        return self.input_size


def gru(config: Gru, tf: Any, dtype: Any, fused: bool = False) -> Any:
    """Return the layer: Glorot uniform weights, gates in the order update, reset, candidate.

    The biases of update and reset start at 1, the candidate's at 0, as in the original's cell.
    ``fused`` selects the SDK's equal fused layer.
    """
    size, features, training = config.hidden_size, config.input_size, config.mode == "training"
    form = form_for(config.system, config.use_xla, training)

    class Original(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            (self.kernel,) = gate_weights(tf, dtype, features, size, 2, dynamic=True)
            self.bias = tf.Variable(tf.ones([2 * size], dtype))
            (self.candidate,) = gate_weights(tf, dtype, features, size, 1, dynamic=True)
            self.candidate_bias = tf.Variable(tf.zeros([size], dtype))

        def __call__(self, batch: Dict[str, Any]) -> Any:
            inputs = batch["inputs"]
            start = (tf.zeros([config.batch_size, size], inputs.dtype),)
            weights = (self.kernel, self.bias, self.candidate, self.candidate_bias)
            one = GruCell(tf)
            return dynamic_rnn(tf, one, inputs, start, weights, training=training, form=form)

        def loss(self, output: Any, batch: Dict[str, Any]) -> Any:
            return sequence_loss(tf, output, batch["labels"], form)

    class Layer(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel, self.recurrent = gate_weights(tf, dtype, features, size, 3)
            bias = tf.concat([tf.ones([2 * size]), tf.zeros([size])], 0)
            self.bias = tf.Variable(tf.cast(bias, dtype))

        def __call__(self, batch: Dict[str, Any]) -> Any:
            inputs = batch["inputs"]
            if fused:
                return popnn(
                    tf,
                    "GRU",
                    inputs,
                    (self.kernel, self.recurrent, self.bias),
                    training=training,
                    half_partials=config.half_matmul_partials,
                )
            # One product for all timesteps; only the state's products must wait.
            parts = inputs_part(tf, inputs, self.kernel, self.bias, training, form)
            return recurrence(config, tf, parts, tf.convert_to_tensor(self.recurrent), form)

        def loss(self, output: Any, batch: Dict[str, Any]) -> Any:
            return sequence_loss(tf, output, batch["labels"], form)

    return Original() if form.dynamic and not fused else Layer()


class GruCell(Cell):
    """A timestep in the original's form; its weights are (kernel, bias) of gates and candidate."""

    def __init__(self, tf: Any) -> None:
        self._tf = tf

    def _gates(self, sums: Any, hidden: Any) -> Tuple[Any, Any]:
        """Return the update gate, and the state scaled by the reset gate."""
        z, r = self._tf.split(self._tf.sigmoid(sums), 2, axis=1)
        return z, r * hidden

    def _blend(self, sums: Any, z: Any, hidden: Any) -> Any:
        """Return the next hidden state."""
        return z * hidden + (1 - z) * self._tf.tanh(sums)

    def forward(self, x: Any, state: State, weights: State) -> Tuple[State, State]:
        """Return the next state, and both sums."""
        (hidden,) = state
        sums = affine(self._tf, [x, hidden], *weights[:2])
        z, scaled = self._gates(sums, hidden)
        candidate = affine(self._tf, [x, scaled], *weights[2:])
        return (self._blend(candidate, z, hidden),), (sums, candidate)

    def backward(
        self, x: Any, state: State, kept: State, weights: State, slopes: State
    ) -> Tuple[Any, State, State]:
        """Return the gradients of the inputs, of the state and of the weights."""
        tf, (hidden,), (sums, candidate) = self._tf, state, kept
        with tf.GradientTape() as of_gates:
            of_gates.watch([sums, hidden])
            z, scaled = self._gates(sums, hidden)
        with tf.GradientTape() as of_blend:
            of_blend.watch([candidate, z, hidden])
            after = self._blend(candidate, z, hidden)
        slope, of_z, direct = of_blend.gradient(after, [candidate, z, hidden], slopes[0])
        parts, *of_candidate = slopes_of_affine(tf, [x, scaled], weights[2], slope)
        given, through = of_gates.gradient([z, scaled], [sums, hidden], [of_z, parts[1]])
        (of_x, indirect), *rest = slopes_of_affine(tf, [x, hidden], weights[0], given)
        return of_x + parts[0], (direct + through + indirect,), (*rest, *of_candidate)


def pointwise(tf: Any, size: int) -> Tuple[Callable[..., Any], ...]:
    """Return a timestep's functions except products: gates, next state, gradients of both."""

    def gates_of(part: Any, product: Any, hidden: Any) -> Tuple[Any, Any]:
        """Return the update gate (float32) and the state scaled by the reset gate."""
        z, r = tf.split(tf.sigmoid(tf.cast(part[:, : 2 * size] + product, tf.float32)), 2, axis=1)
        return z, tf.cast(r * tf.cast(hidden, tf.float32), hidden.dtype)

    def blend(part: Any, product: Any, z: Any, hidden: Any) -> Any:
        """Return the next hidden state."""
        candidate = tf.tanh(tf.cast(part[:, 2 * size :] + product, tf.float32))
        return tf.cast(z * tf.cast(hidden, tf.float32) + (1 - z) * candidate, hidden.dtype)

    def slopes_of_blend(part: Any, gates: Any, product: Any, hidden: Any, slope: Any) -> Any:
        """Return the gradients for the candidate's product, the update gate and the state."""
        z, _ = gates_of(part, gates, hidden)
        with tf.GradientTape() as tape:
            tape.watch([product, z, hidden])
            after = blend(part, product, z, hidden)
        return tape.gradient(after, [product, z, hidden], output_gradients=slope)

    def slopes_of_gates(part: Any, gates: Any, hidden: Any, of_z: Any, of_scaled: Any) -> Any:
        """Return the gradients for the gates' product and the state."""
        with tf.GradientTape() as tape:
            tape.watch([gates, hidden])
            after = gates_of(part, gates, hidden)
        return tape.gradient(after, [gates, hidden], output_gradients=[of_z, of_scaled])

    return gates_of, blend, slopes_of_blend, slopes_of_gates


def recurrence(config: Gru, tf: Any, parts: Any, recurrent: Any, form: Form) -> Any:
    """Return the hidden states [T, B, H] for the inputs' part of the gates [T, B, 3H].

    z, r = sigmoid(part + h U), c = tanh(part + (r h) U), h = z h + (1 - z) c: the reset gate scales
    the state before its product (Cho et al., 2014, arXiv 1406.1078v3).
    """
    size = config.hidden_size
    training = config.mode == "training"
    start = tf.zeros([config.batch_size, size], recurrent.dtype)

    first, second, back_second, back_first = (
        one_kernel(tf, function, form) for function in pointwise(tf, size)
    )

    @tf.custom_gradient
    def run(parts: Any, recurrent: Any) -> Tuple[Any, Callable[[Any], Tuple[Any, Any]]]:
        factor = factor_of(tf, recurrent, form)
        of_gates, of_candidate = factor[:, : 2 * size], factor[:, 2 * size :]

        def forward(state: Any, here: Any) -> Any:
            (hidden,), (part,) = state, here
            gates = product(tf, hidden, of_gates, form)
            z, scaled = first(part, gates, hidden)
            summed = product(tf, scaled, of_candidate, form)
            after = second(part, summed, z, hidden)
            return (after,), ((after, scaled, gates, summed, hidden) if training else (after,))

        def backward(state: Any, here: Any) -> Any:
            (later,), (slope, part, gates, summed, hidden) = state, here
            of_product, of_z, direct = back_second(part, gates, summed, hidden, slope + later)
            of_scaled = product(tf, of_product, of_candidate, form, transpose_b=True)
            of_sums, through = back_first(part, gates, hidden, of_z, of_scaled)
            indirect = product(tf, of_sums, of_gates, form, transpose_b=True)
            return (direct + through + indirect,), (tf.concat([of_sums, of_product], 1),)

        _, (hiddens, *saved) = scan(tf, forward, (start,), [parts], form)

        def gradient(slopes: Any) -> Tuple[Any, Any]:
            scaled, *rest = saved
            sequences = [slopes, parts, *rest]
            last = (tf.zeros_like(start),)
            _, (slope,) = scan(tf, backward, last, sequences, form, reverse=True)
            # The state before the first timestep is zero, so it adds nothing.
            of_weights = [
                over_time(tf, hiddens[:-1], slope[1:, :, : 2 * size], form),
                over_time(tf, scaled[1:], slope[1:, :, 2 * size :], form),
            ]
            return slope, tf.concat(of_weights, 1)

        return hiddens, gradient

    return run(parts, recurrent)


@cases(
    Gru(),
    system=("host", "ipu"),
    mode=("inference", "training"),
    data=("synthetic", "generated"),
)
def bench_gru(config: Gru, tensorflow: Any, data: Data, meter: Any) -> None:
    """Time the layer."""
    popnn = partial(gru, config, fused=True) if config.popnn else None
    step = tensorflow.loop(partial(gru, config), config, config.feed(data), popnn)
    meter(
        step,
        items=config.batch_size * config.replicas,
        unit="items",
        flops=config.flops_per_item(),
    )
