"""One basic RNN layer, time-major, as many inputs as hidden units: h = tanh(x W + h U + b).

inputs [timesteps, batch_size, hidden_size] -> hidden states of each timestep, same shape. Training
minimises the mean softmax cross-entropy of the hidden states against labels of their shape with SGD
at 0.01. An item is one complete sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Dict, Tuple

from ipubench.bench_kernels.recurrent_kernel import RecurrentKernel
from ipubench.fixtures.case.cases import cases
from ipubench.fixtures.case.options import option
from ipubench.fixtures.data.provider import Data
from ipubench.models.tensorflow.dynamic_rnn import OneProduct, dynamic_rnn
from ipubench.models.tensorflow.recurrent import form_for, gate_weights, layer, sequence_loss


@dataclass(frozen=True)
class Rnn(RecurrentKernel):
    """Options of the layer; defaults of the original program."""

    gates = 1

    name: str = option("rnn", "first part of the case's identifier")
    hidden_size: int = option(128, "features of the input and of the hidden state", minimum=1)


def rnn(config: Rnn, tf: Any, dtype: Any) -> Any:
    """Return the layer: Glorot uniform weights, zero bias (Elman, 1990)."""
    size, training = config.hidden_size, config.mode == "training"
    form = form_for(config.system, config.use_xla, training)

    def state(sums: Any) -> Tuple[Any]:
        return (tf.tanh(sums),)

    def cell(part: Any, product: Any) -> Tuple[Any]:
        return (tf.cast(tf.tanh(tf.cast(part + product, tf.float32)), part.dtype),)

    class Layer(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel, *rest = gate_weights(tf, dtype, size, size, 1, form.dynamic)
            if rest:
                (self.recurrent,) = rest
            self.bias = tf.Variable(tf.zeros([size], dtype))

        def __call__(self, batch: Dict[str, Any]) -> Any:
            inputs = batch["inputs"]
            if form.dynamic:
                start = (tf.zeros([config.batch_size, size], inputs.dtype),)
                weights = (self.kernel, self.bias)
                one = OneProduct(tf, state)
                return dynamic_rnn(tf, one, inputs, start, weights, training=training, form=form)
            variables = (self.kernel, self.bias, self.recurrent)
            return layer(tf, cell, inputs, variables, training=training, form=form)

        def loss(self, output: Any, batch: Dict[str, Any]) -> Any:
            return sequence_loss(tf, output, batch["labels"], form)

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
