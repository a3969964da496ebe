"""One LSTM layer, time-major, as many inputs as hidden units.

inputs [timesteps, batch_size, hidden_size] -> hidden states of every timestep, same shape.
Training minimises the mean softmax cross-entropy of the hidden states against labels of their
shape with SGD at 0.01. An item is one whole sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Dict, List, Tuple

from bench_kernels.kernel import TensorFlowKernel
from fixtures.config import cases, option
from fixtures.data.feeds import ArrayFeed, TensorSpec
from fixtures.data.provider import Data

# Up to about this many multiplications a timestep, launching operations costs more than running
# them, and one program compiled by XLA is faster; beyond it TensorFlow's matrix products are.
XLA_LIMIT = 1 << 18


@dataclass(frozen=True)
class Lstm(TensorFlowKernel):
    """Options of the layer; defaults of the original program."""

    name: str = option("lstm", "first part of the case's identifier")
    batch_size: int = option(1, "sequences of one batch", minimum=1)
    timesteps: int = option(5, "length of a sequence", minimum=1)
    hidden_size: int = option(128, "features of the input and of the hidden state", minimum=1)
    popnn: bool = option(False, "the SDK's fused layer instead of single operations", ipu_only=True)

    def flops_per_item(self) -> float:
        """Return the FLOP of the matrix products for one sequence, T timesteps, H hidden units.

        Each timestep multiplies the input and the state with [H, 4H]: 2 * 8 T H^2. Training adds
        the gradients of both weights and that of the state, not that of the inputs: 5 products
        where inference has 2.
        """
        product = 8.0 * self.timesteps * self.hidden_size**2
        return (5 if self.mode == "training" else 2) * product

    def xla_is_faster(self) -> bool:
        """Whether XLA runs the case faster: small ones whose whole loop it can compile.

        In 16 bits its gradients lose what the single program gains.
        """
        products = 4 * self.batch_size * self.hidden_size**2
        small = products <= XLA_LIMIT and self.data == "synthetic"
        return small and (self.mode == "inference" or self.precision == "32.32")

    def feed(self, data: Data) -> ArrayFeed:
        """Return the case's batches; only training has labels."""
        names = ("inputs", "labels") if self.mode == "training" else ("inputs",)
        shape = (self.timesteps, self.batch_size, self.hidden_size)
        return self.arrays(data, *(TensorSpec(name, shape) for name in names))


def lstm(config: Lstm, tf: Any, dtype: Any) -> Any:
    """Return the layer: Glorot uniform weights, gates in the order input, forget, cell, output.

    The forget gate's bias starts at 1, the others at 0 (Jozefowicz et al., 2015), which is what
    the original generic cell adds.
    """
    size = config.hidden_size
    glorot = tf.keras.initializers.GlorotUniform()

    class Layer(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            # Initialisers exist in float32 for every TensorFlow, in 16 bits not for all.
            self.kernel = tf.Variable(tf.cast(glorot([size, 4 * size]), dtype))
            self.recurrent = tf.Variable(tf.cast(glorot([size, 4 * size]), dtype))
            bias = tf.concat([tf.zeros([size]), tf.ones([size]), tf.zeros([2 * size])], 0)
            self.bias = tf.Variable(tf.cast(bias, dtype))

        def __call__(self, batch: Dict[str, Any]) -> Any:
            inputs = batch["inputs"]
            # One product for all timesteps; only the state's product has to wait its turn.
            rows = tf.reshape(inputs, [-1, size])
            gates = tf.nn.bias_add(tf.matmul(rows, self.kernel), self.bias)
            gates = tf.reshape(gates, [config.timesteps, config.batch_size, 4 * size])
            return recurrence(tf, gates, tf.convert_to_tensor(self.recurrent))

        def loss(self, output: Any, batch: Dict[str, Any]) -> Any:
            labels, logits = (tf.cast(part, tf.float32) for part in (batch["labels"], output))
            return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, logits))

    return Layer()


def recurrence(tf: Any, gates: Any, weights: Any) -> Any:
    """Return the hidden states [T, B, H] for the inputs' part of the gates [T, B, 4H].

    c = sigmoid(f) c + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c) (Hochreiter and Schmidhuber,
    1997, with forget gates); the cell state is float32.
    """

    def forward(parts: List[Any], weights: Any) -> List[Any]:
        batch_size, size = parts[0].shape[0], weights.shape[0]
        hidden = tf.zeros([batch_size, size], weights.dtype)
        cell = tf.zeros([batch_size, size], tf.float32)
        states = [hidden]
        for part in parts:
            sums = tf.cast(part + tf.matmul(hidden, weights), tf.float32)
            i, f, g, o = tf.split(sums, 4, axis=1)
            cell = tf.sigmoid(f) * cell + tf.sigmoid(i) * tf.tanh(g)
            hidden = tf.cast(tf.sigmoid(o) * tf.tanh(cell), weights.dtype)
            states.append(hidden)
        return states

    @tf.custom_gradient
    def run(gates: Any, weights: Any) -> Tuple[Any, Callable[[Any], Tuple[Any, Any]]]:
        with tf.GradientTape() as tape:
            parts = tf.unstack(gates)
            tape.watch(parts)
            states = forward(parts, weights)

        def gradient(slopes: Any) -> Tuple[Any, Any]:
            slope = tape.gradient(states[1:], parts, output_gradients=tf.unstack(slopes))
            # The weights' gradient as one product over all timesteps instead of a sum of T.
            before = tf.concat(states[:-1], axis=0)
            return tf.stack(slope), tf.matmul(before, tf.concat(slope, axis=0), transpose_a=True)

        return tf.stack(states[1:]), gradient

    return run(gates, weights)


@cases(
    Lstm(),
    system=("host", "ipu"),
    mode=("inference", "training"),
    data=("synthetic", "generated"),
)
def bench_lstm(config: Lstm, tensorflow: Any, data: Data, meter: Any) -> None:
    """Time the layer."""
    step = tensorflow.loop(partial(lstm, config), config, config.feed(data))
    meter(
        step,
        items=config.batch_size * config.replicas,
        unit="items",
        flops=config.flops_per_item(),
    )
