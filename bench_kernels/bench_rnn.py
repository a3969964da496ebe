"""One basic RNN layer, time-major, as many inputs as hidden units: h = tanh(x W + h U + b).

inputs [timesteps, batch_size, hidden_size] -> hidden states of every timestep, same shape.
Training minimises the mean softmax cross-entropy of the hidden states against labels of their
shape with SGD at 0.01. An item is one whole sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Dict, Tuple

from ipubench.bench_kernels.kernel import NO_CONVOLUTION, TensorFlowKernel
from ipubench.fixtures.case.cases import cases
from ipubench.fixtures.case.options import option
from ipubench.fixtures.data.feeds import ArrayFeed, TensorSpec
from ipubench.fixtures.data.provider import Data
from ipubench.models.tensorflow.recurrent import (
    form_for,
    inputs_part,
    recurrence,
    sequence_loss,
    xla_is_faster,
)


@dataclass(frozen=True)
class Rnn(TensorFlowKernel):
    """Options of the layer; defaults of the original program."""

    unplanned = NO_CONVOLUTION

    name: str = option("rnn", "first part of the case's identifier")
    batch_size: int = option(1, "sequences of one batch", minimum=1)
    timesteps: int = option(5, "length of a sequence", minimum=1)
    hidden_size: int = option(128, "features of the input and of the hidden state", minimum=1)

    def flops_per_item(self) -> float:
        """Return the FLOP of the matrix products for one sequence, T timesteps, H hidden units.

        Each timestep multiplies the input and the state with [H, H]: 2 * 2 T H^2. Training adds
        the gradients of both weights and that of the state, not that of the inputs: 5 products
        where inference has 2.
        """
        product = 2.0 * self.timesteps * self.hidden_size**2
        return (5 if self.mode == "training" else 2) * product

    def xla_is_faster(self, onednn: bool, vnni: bool) -> bool:
        """Whether XLA runs the case faster: small layers, whose operations cost more to launch."""
        weights, training = self.hidden_size**2, self.mode == "training"
        sizes = weights, self.batch_size, self.timesteps
        return xla_is_faster(onednn and vnni, *sizes, training, self.precision)

    def feed(self, data: Data) -> ArrayFeed:
        """Return the case's batches; only training has labels."""
        names = ("inputs", "labels") if self.mode == "training" else ("inputs",)
        shape = (self.timesteps, self.batch_size, self.hidden_size)
        return self.arrays(data, *(TensorSpec(name, shape) for name in names))


def rnn(config: Rnn, tf: Any, dtype: Any) -> Any:
    """Return the layer: Glorot uniform weights, zero bias (Elman, 1990)."""
    size = config.hidden_size
    glorot = tf.keras.initializers.GlorotUniform

    def cell(part: Any, product: Any) -> Tuple[Any]:
        return (tf.cast(tf.tanh(tf.cast(part + product, tf.float32)), part.dtype),)

    class Layer(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            # Initialisers exist in float32 for every TensorFlow, in 16 bits not for all.
            self.kernel = tf.Variable(tf.cast(glorot()([size, size]), dtype))
            self.recurrent = tf.Variable(tf.cast(glorot()([size, size]), dtype))
            self.bias = tf.Variable(tf.zeros([size], dtype))

        def __call__(self, batch: Dict[str, Any]) -> Any:
            # One product for all timesteps; only the state's product has to wait its turn.
            training = config.mode == "training"
            form = form_for(config.system, config.use_xla)
            return recurrence(
                tf,
                cell,
                inputs_part(tf, batch["inputs"], self.kernel, self.bias, training, form),
                self.recurrent,
                training=training,
                form=form,
            )

        def loss(self, output: Any, batch: Dict[str, Any]) -> Any:
            return sequence_loss(tf, output, batch["labels"])

    return Layer()


@cases(
    Rnn(),
    system=("host", "ipu"),
    mode=("inference", "training"),
    data=("synthetic", "generated"),
)
def bench_rnn(config: Rnn, tensorflow: Any, data: Data, meter: Any) -> None:
    """Time the layer."""
    step = tensorflow.loop(partial(rnn, config), config, config.feed(data))
    meter(
        step,
        items=config.batch_size * config.replicas,
        unit="items",
        flops=config.flops_per_item(),
    )
