"""What the kernels of one recurrent layer share: sequences in, hidden states out, time-major."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ipubench.bench_kernels.kernel import NO_CONVOLUTION, TensorFlowKernel
from ipubench.fixtures.case.options import option
from ipubench.fixtures.data.feeds import ArrayFeed, TensorSpec
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.machine.onednn import Operations


def xla_is_faster(
    library: Operations, weights: int, batch_size: int, training: bool, precision: str
) -> bool:
    """Whether XLA was measured to run a layer's whole loop faster on a CPU than TensorFlow does.

    ``weights``: how many a timestep multiplies the state by. Launching operations takes longer than
    up to 2^20 multiplications do, in training 2^19; with more, oneDNN's products are faster, but
    not in training in float32 (128 to 512 units, 1 to 32 sequences, 5 and 50 timesteps on a CPU
    with AVX512_BF16: XLA took 0.07 to 1.02 of the time). Without bfloat16 all is float32 and
    oneDNN's products are no faster than XLA's: XLA took from a twentieth of the time (one sequence
    on a CPU with AVX2) to as much (512).
    """
    if library is not Operations.ONEDNN_BFLOAT16:
        return True
    if not training:
        return batch_size * weights <= 1 << 20
    return precision == "32.32" or batch_size * weights < 1 << 19


@dataclass(frozen=True)
class RecurrentKernel(TensorFlowKernel):
    """Options of the layer; defaults of the original programs."""

    unplanned = NO_CONVOLUTION
    #: How many times hidden_size columns each weight has.
    gates: ClassVar[int]

    batch_size: int = option(1, "sequences of one batch", minimum=1)
    timesteps: int = option(5, "length of a sequence", minimum=1)
    hidden_size: int = option(128, "features of the hidden state", minimum=1)

    @property
    def features(self) -> int:
        """Features of the input."""
        return self.hidden_size

    def flops_per_item(self) -> float:
        """Return the FLOP of the matrix products for one sequence.

        Each of T timesteps multiplies F features with [F, G H], G being the gates, and each but
        the first, whose state is zero, the H of the state with [H, G H]:
        2 G T F H + 2 G (T - 1) H^2. Training adds the gradients of both weights and that of the
        state, not that of the inputs: twice the first and three times the second.
        """
        columns = 2.0 * self.gates * self.hidden_size
        inputs = columns * self.timesteps * self.features
        state = columns * (self.timesteps - 1) * self.hidden_size
        return 2 * inputs + 3 * state if self.mode == "training" else inputs + state

    def xla_is_faster(self, library: Operations) -> bool:
        """Whether XLA runs the case faster: small layers, whose operations cost more to launch."""
        weights, training = self.gates * self.hidden_size**2, self.mode == "training"
        return xla_is_faster(library, weights, self.batch_size, training, self.precision)

    def feed(self, data: Data) -> ArrayFeed:
        """Return the case's batches; only training has labels."""
        inputs = TensorSpec("inputs", (self.timesteps, self.batch_size, self.features))
        labels = TensorSpec("labels", (self.timesteps, self.batch_size, self.hidden_size))
        return self.arrays(data, *([inputs, labels] if self.mode == "training" else [inputs]))
