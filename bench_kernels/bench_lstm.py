"""One LSTM layer, time-major, by default with as many inputs as hidden units.

inputs [timesteps, batch_size, features] -> hidden states [timesteps, batch_size, hidden_size].
Training minimises the mean softmax cross-entropy of the hidden states against labels of their shape
with SGD at 0.01. An item is one complete sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Dict

from ipubench.bench_kernels.recurrent_kernel import RecurrentKernel
from ipubench.fixtures.case.cases import cases
from ipubench.fixtures.case.options import option
from ipubench.fixtures.data.provider import Data
from ipubench.models.tensorflow.lstm import lstm_layer
from ipubench.models.tensorflow.recurrent import form_for, sequence_loss


@dataclass(frozen=True)
class Lstm(RecurrentKernel):
    """Options of the layer; defaults of the original program."""

    gates = 4

    name: str = option("lstm", "first part of the case's identifier")
    input_size: int = option(
        0, "features of the input; 0: as many as hidden_size", minimum=0, later=True
    )
    popnn: bool = option(False, "the SDK's fused layer instead of single operations", ipu_only=True)

    @property
    def features(self) -> int:
        """Features of the input."""
        return self.input_size or self.hidden_size


def lstm(config: Lstm, tf: Any, dtype: Any, fused: bool = False) -> Any:
    """Return the layer with its loss. ``fused`` selects the SDK's equal fused layer."""
    training = config.mode == "training"
    form = form_for(config.system, config.use_xla, training)

    class Layer(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = lstm_layer(
                tf,
                dtype,
                config.features,
                config.hidden_size,
                training=training,
                form=form,
                fused=fused,
                half_partials=config.half_matmul_partials,
            )

        def __call__(self, batch: Dict[str, Any]) -> Any:
            return self.lstm(batch["inputs"])

        def loss(self, output: Any, batch: Dict[str, Any]) -> Any:
            return sequence_loss(tf, output, batch["labels"], form)

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
