"""One fully connected layer with bias, square, optional ReLU.

inputs [batch_size, size] -> outputs [batch_size, size]. Training minimises the mean of the output
with SGD at 0.01. An item is one batch element.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Dict

from ipubench.bench_kernels.kernel import NO_CONVOLUTION, TensorFlowKernel
from ipubench.fixtures.case.cases import cases
from ipubench.fixtures.case.options import option
from ipubench.fixtures.data.feeds import ArrayFeed, TensorSpec
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.machine.onednn import Operations


@dataclass(frozen=True)
class Dense(TensorFlowKernel):
    """Options of the layer; defaults of the original program."""

    unplanned = NO_CONVOLUTION

    name: str = option("dense", "first part of the case's identifier")
    batch_size: int = option(32, "items of one batch", minimum=1)
    size: int = option(1024, "features of the input and of the output", minimum=1)
    include_activation: bool = option(False, "end with a ReLU")
    batches_per_step: int = option(5000, "batches run on the device per host call", minimum=1)

    def flops_per_item(self) -> float:
        """Return the FLOP of the matrix products for one item.

        Inference: 2 size^2. Training adds the weights' gradient, which takes the same; the inputs
        need no gradient.
        """
        forward = 2.0 * self.size**2
        return 2 * forward if self.mode == "training" else forward

    def xla_is_faster(self, library: Operations) -> bool:
        """Return whether XLA is faster: by a tenth to a quarter without oneDNN.

        With oneDNN but without VNNI it is faster only in training.
        """
        least = Operations.ONEDNN_VNNI if self.mode == "training" else Operations.ONEDNN
        return library < least

    def feed(self, data: Data) -> ArrayFeed:
        """Return the case's batches."""
        return self.arrays(data, TensorSpec("inputs", (self.batch_size, self.size)))


def dense(config: Dense, tf: Any, dtype: Any) -> Any:
    """Return the layer: Glorot uniform weights, zero bias."""
    on_host = config.system == "host"

    class Layer(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            glorot = tf.keras.initializers.GlorotUniform()
            self.kernel = tf.Variable(tf.cast(glorot([config.size, config.size]), dtype))
            self.bias = tf.Variable(tf.zeros([config.size], dtype))

        def __call__(self, batch: Dict[str, Any]) -> Any:
            output = tf.nn.bias_add(tf.matmul(batch["inputs"], self.kernel), self.bias)
            return tf.nn.relu(output) if config.include_activation else output

        def loss(self, output: Any, batch: Dict[str, Any]) -> Any:
            # XLA sums in float32, so an IPU needs no copy of the outputs.
            return tf.reduce_mean(tf.cast(output, tf.float32) if on_host else output)

    return Layer()


@cases(
    Dense(),
    Dense(name="dense-relu", include_activation=True),
    system=("host", "ipu"),
    mode=("inference", "training"),
    data=("synthetic", "generated"),
)
def bench_dense(config: Dense, tensorflow: Any, data: Data, meter: Any) -> None:
    """Time the layer."""
    step = tensorflow.loop(partial(dense, config), config, config.feed(data))
    meter(
        step,
        items=config.batch_size * config.replicas,
        unit="items",
        flops=config.flops_per_item(),
    )
