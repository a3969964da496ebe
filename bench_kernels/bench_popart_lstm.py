"""One LSTM layer as an ONNX graph, time-major, no biases, as many inputs as hidden units.

inputs [timesteps, batch_size, hidden_size] -> hidden states of each timestep [timesteps, 1,
batch_size, hidden_size]. Evaluation adds the negative log likelihood of labels 0 or 1 under the
softmax of the hidden states, summed; training minimises it with SGD at 0.01. An item is one
complete sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ipubench.bench_kernels.kernel import NO_CONVOLUTION
from ipubench.bench_kernels.popart_kernel import PopartKernel
from ipubench.fixtures.case.cases import cases
from ipubench.fixtures.case.options import option
from ipubench.fixtures.data.feeds import ArrayFeed, TensorSpec
from ipubench.fixtures.data.provider import Data

LABELS = 2  # 0 and 1


@dataclass(frozen=True)
class PopartLstm(PopartKernel):
    """Options of the layer; defaults of the original program."""

    unplanned = NO_CONVOLUTION

    name: str = option("popart-lstm", "first part of the case's identifier")
    batch_size: int = option(1, "sequences of one batch", minimum=1)
    timesteps: int = option(1, "length of a sequence", minimum=1)
    hidden_size: int = option(32, "features of the input and of the hidden state", minimum=1)

    def check(self) -> None:
        """Raise ValueError if a label is not the number of a hidden unit."""
        super().check()
        if self.hidden_size < LABELS and self.mode != "inference":
            raise ValueError(
                f"hidden_size={self.hidden_size}: the labels of {self.mode}, 0 or 1, are numbers "
                f"of hidden units; set hidden_size={LABELS} or more"
            )

    def flops_per_item(self) -> float:
        """Return the FLOP of the matrix products for one sequence, T timesteps, H hidden units.

        Each is a row by [H, 4H], 8 H^2. Inference: T with the inputs, T - 1 with the state, which
        starts at zero. Training adds the gradients of both weights, as many, and T - 1 for that of
        the state; the inputs need none.
        """
        products = 2 * self.timesteps - 1
        if self.mode == "training":
            products += (2 * self.timesteps - 1) + (self.timesteps - 1)
        return 8.0 * products * self.hidden_size**2

    def feed(self, data: Data) -> ArrayFeed:
        """Return the case's batches; inference has no labels."""
        sequence = (self.timesteps, self.batch_size)
        inputs = TensorSpec("inputs", (*sequence, self.hidden_size), uniform=(-1.0, 1.0))
        labels = TensorSpec("labels", (self.timesteps, 1, self.batch_size), "int32", classes=LABELS)
        return self.arrays(data, *([inputs] if self.mode == "inference" else [inputs, labels]))


def lstm(config: PopartLstm, dtype: str) -> Any:
    """Return the network; ``dtype`` of its tensors is float16 or float32."""
    from ipubench.models.onnx.network import lstm_network

    return lstm_network(
        config.batch_size,
        config.timesteps,
        config.hidden_size,
        dtype,
        zeros=config.use_zero_values,
    )


@cases(
    PopartLstm(),
    system=("host", "ipu"),
    mode=("inference", "evaluation", "training"),
    data=("synthetic", "generated"),
)
def bench_popart_lstm(config: PopartLstm, popart: Any, data: Data, meter: Any) -> None:
    """Time the layer."""
    step = popart.loop(lambda dtype: lstm(config, dtype), config, config.feed(data))
    meter(
        step,
        items=config.batch_size * config.replicas,
        unit="items",
        flops=config.flops_per_item(),
    )
