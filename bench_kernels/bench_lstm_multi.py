"""Stacked LSTM layers, time-major, and a dense layer that maps the last hidden state to one number.

inputs [timesteps, batch_size, input_size] -> outputs [batch_size, 1]. Training minimises the mean
squared error against labels of that shape with SGD at 0.01. An item is one complete sequence.

The sweep is the published one: generated data, batch sizes 1 to 512 (--sweep for all of them),
latency as 1000 x batch size / throughput, in milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Dict

from ipubench.bench_kernels.kernel import NO_CONVOLUTION, TensorFlowKernel
from ipubench.bench_kernels.recurrent_kernel import xla_is_faster
from ipubench.fixtures.case.cases import Sweep, cases
from ipubench.fixtures.case.options import option
from ipubench.fixtures.data.feeds import ArrayFeed, TensorSpec
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.machine.onednn import Operations
from ipubench.models.tensorflow.lstm import lstm_layer
from ipubench.models.tensorflow.recurrent import form_for


@dataclass(frozen=True)
class LstmMulti(TensorFlowKernel):
    """Options of the network; defaults of the original program."""

    unplanned = NO_CONVOLUTION

    name: str = option("lstm_multi", "first part of the case's identifier")
    batch_size: int = option(1, "sequences of one batch", minimum=1)
    timesteps: int = option(200, "length of a sequence", minimum=1)
    input_size: int = option(16, "features of the input", minimum=1)
    hidden_size: int = option(256, "features of each hidden state", minimum=1)
    num_layers: int = option(2, "LSTM layers, one after the other", minimum=1)

    def flops_per_item(self) -> float:
        """Return the FLOP of the matrix products for one sequence: T timesteps, I to H features.

        Each timestep of a layer multiplies its input (I features in the first layer, H in the
        others) by 4H columns, and except in the first timestep, when it is zero, also its state.
        Training adds the gradients of all weights, of the states, and of all layers' inputs except
        the first.
        """
        first = 8.0 * self.timesteps * self.input_size * self.hidden_size
        states = 8.0 * (self.timesteps - 1) * self.hidden_size**2 * self.num_layers
        later = 8.0 * self.timesteps * self.hidden_size**2 * (self.num_layers - 1)
        dense = 2.0 * self.hidden_size
        if self.mode == "training":
            return 2 * first + 3 * (states + later + dense)
        return first + states + later + dense

    def xla_is_faster(self, library: Operations) -> bool:
        """Return whether XLA is faster: for small layers, whose operations are slow to launch."""
        weights, training = 4 * self.hidden_size**2, self.mode == "training"
        return xla_is_faster(library, weights, self.batch_size, training, self.precision)

    def feed(self, data: Data) -> ArrayFeed:
        """Return the case's batches; only training has labels."""
        inputs = TensorSpec("inputs", (self.timesteps, self.batch_size, self.input_size))
        labels = TensorSpec("labels", (self.batch_size, 1))
        return self.arrays(data, *([inputs, labels] if self.mode == "training" else [inputs]))


def lstm_multi(config: LstmMulti, tf: Any, dtype: Any, fused: bool = False) -> Any:
    """Return the network: LSTMs as in the lstm kernel, Glorot uniform weights throughout.

    ``fused`` selects the SDK's equal fused layers, the only form in the original.
    """
    size, training = config.hidden_size, config.mode == "training"
    glorot = tf.keras.initializers.GlorotUniform

    def layer(number: int) -> Any:
        features = size if number else config.input_size
        return lstm_layer(
            tf,
            dtype,
            features,
            size,
            training=training,
            form=form_for(config.system, config.use_xla, training),
            fused=fused,
            half_partials=config.half_matmul_partials,
            of_inputs=number > 0,
        )

    class Network(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [layer(number) for number in range(config.num_layers)]
            self.dense = tf.Variable(tf.cast(glorot()([size, 1]), dtype))
            self.bias = tf.Variable(tf.zeros([1], dtype))

        def __call__(self, batch: Dict[str, Any]) -> Any:
            hidden = batch["inputs"]
            for number, layer in enumerate(self.layers, start=1):
                hidden = layer(hidden, sequences=number < config.num_layers)
            return tf.nn.bias_add(tf.matmul(hidden, self.dense), self.bias)

        def loss(self, output: Any, batch: Dict[str, Any]) -> Any:
            labels, found = (tf.cast(part, tf.float32) for part in (batch["labels"], output))
            return tf.reduce_mean(tf.square(found - labels))

    return Network()


@cases(
    LstmMulti(),
    system=("host", "ipu"),
    mode=("inference", "training"),
    data=("synthetic", "generated"),
)
@cases(
    Sweep(LstmMulti(), "batch_size", tuple(2**n for n in range(10))),
    system=("host", "ipu"),
    data=("generated",),
)
def bench_lstm_multi(config: LstmMulti, tensorflow: Any, data: Data, meter: Any) -> None:
    """Time the network."""
    popnn = partial(lstm_multi, config, fused=True)
    step = tensorflow.loop(partial(lstm_multi, config), config, config.feed(data), popnn)
    meter(
        step,
        items=config.batch_size * config.replicas,
        unit="items",
        flops=config.flops_per_item(),
        latency_from_throughput=True,
    )
