"""One LSTM layer, time-major, by default with as many inputs as hidden units.

inputs [timesteps, batch_size, features] -> hidden states [timesteps, batch_size, hidden_size].
Training minimises the mean softmax cross-entropy of the hidden states against labels of their
shape with SGD at 0.01. An item is one whole sequence.
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
from ipubench.models.tensorflow.lstm import lstm_layer
from ipubench.models.tensorflow.recurrent import form_for, sequence_loss, xla_is_faster


@dataclass(frozen=True)
class Lstm(TensorFlowKernel):
    """Options of the layer; defaults of the original program."""

    unplanned = NO_CONVOLUTION

    name: str = option("lstm", "first part of the case's identifier")
    batch_size: int = option(1, "sequences of one batch", minimum=1)
    timesteps: int = option(5, "length of a sequence", minimum=1)
    hidden_size: int = option(128, "features of the hidden state", minimum=1)
    input_size: int = option(
        0, "features of the input; 0: as many as hidden_size", minimum=0, later=True
    )
    popnn: bool = option(False, "the SDK's fused layer instead of single operations", ipu_only=True)

    @property
    def features(self) -> int:
        """Features of the input."""
        return self.input_size or self.hidden_size

    def flops_per_item(self) -> float:
        """Return the FLOP of the matrix products for one sequence.

        Each of T timesteps multiplies F features with [F, 4H] and H hidden units with [H, 4H]:
        8 T F H + 8 T H^2. Training adds the gradients of both weights and that of the state, not
        that of the inputs: twice the first and three times the second.
        """
        inputs = 8.0 * self.timesteps * self.features * self.hidden_size
        state = 8.0 * self.timesteps * self.hidden_size**2
        return 2 * inputs + 3 * state if self.mode == "training" else inputs + state

    def xla_is_faster(self, onednn: bool, vnni: bool) -> bool:
        """Whether XLA runs the case faster: small layers, whose operations cost more to launch."""
        weights, training = 4 * self.hidden_size**2, self.mode == "training"
        sizes = weights, self.batch_size, self.timesteps
        return xla_is_faster(onednn and vnni, *sizes, training, self.precision)

    def feed(self, data: Data) -> ArrayFeed:
        """Return the case's batches; only training has labels."""
        names = ("inputs", "labels") if self.mode == "training" else ("inputs",)
        sizes = {"inputs": self.features, "labels": self.hidden_size}
        shape = (self.timesteps, self.batch_size)
        return self.arrays(data, *(TensorSpec(name, (*shape, sizes[name])) for name in names))


def lstm(config: Lstm, tf: Any, dtype: Any, fused: bool = False) -> Any:
    """Return the layer with its loss; ``fused``: on the SDK's fused layer, which is the same."""

    class Layer(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = lstm_layer(
                tf,
                dtype,
                config.features,
                config.hidden_size,
                training=config.mode == "training",
                form=form_for(config.system, config.use_xla),
                fused=fused,
                half_partials=config.half_matmul_partials,
            )

        def __call__(self, batch: Dict[str, Any]) -> Any:
            return self.lstm(batch["inputs"])

        def loss(self, output: Any, batch: Dict[str, Any]) -> Any:
            return sequence_loss(tf, output, batch["labels"])

    return Layer()


@cases(
    Lstm(),
    system=("host", "ipu"),
    mode=("inference", "training"),
    data=("synthetic", "generated"),
)
def bench_lstm(config: Lstm, tensorflow: Any, data: Data, meter: Any) -> None:
    """Time the layer."""
    popnn = partial(lstm, config, fused=True) if config.popnn else None
    step = tensorflow.loop(partial(lstm, config), config, config.feed(data), popnn)
    meter(
        step,
        items=config.batch_size * config.replicas,
        unit="items",
        flops=config.flops_per_item(),
    )
