"""The base of kernels with one recurrent layer: sequences in, hidden states out, time-major."""

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
    """Return whether XLA ran a layer's whole loop faster on a CPU than TensorFlow did.

    ``weights`` is the number of weights that multiply the state in a timestep. Launching operations
    takes longer than up to 2^20 multiplications, in training 2^19. With more, oneDNN's products are
    faster, except for training in float32 (128 to 512 units, 1 to 32 sequences, 5 and 50 timesteps
    on a CPU with AVX512_BF16: XLA took 0.07 to 1.02 of the time). Without bfloat16 everything is
    float32, and oneDNN's products are no faster than XLA's: XLA took from a twentieth of the time
    (one sequence on a CPU with AVX2) to the same (512).
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
    #: The columns of each weight, as a multiple of hidden_size.
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

        With G gates, each of T timesteps multiplies F features by [F, G H], and except the first,
        whose state is zero, the H features of the state by [H, G H]: 2 G T F H + 2 G (T - 1) H^2.
        Training adds the gradients of both weights and of the state, but not of the inputs: twice
        the first and three times the second.
        """
        columns = 2.0 * self.gates * self.hidden_size
        inputs = columns * self.timesteps * self.features
        state = columns * (self.timesteps - 1) * self.hidden_size
        return 2 * inputs + 3 * state if self.mode == "training" else inputs + state

    def xla_is_faster(self, library: Operations) -> bool:
        """Return whether XLA is faster: for small layers, whose operations are slow to launch."""
        weights, training = self.gates * self.hidden_size**2, self.mode == "training"
        return xla_is_faster(library, weights, self.batch_size, training, self.precision)

    def feed(self, data: Data) -> ArrayFeed:
        """Return the case's batches; only training has labels."""
        inputs = TensorSpec("inputs", (self.timesteps, self.batch_size, self.features))
        labels = TensorSpec("labels", (self.timesteps, self.batch_size, self.hidden_size))
        return self.arrays(data, *([inputs, labels] if self.mode == "training" else [inputs]))
