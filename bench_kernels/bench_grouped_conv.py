"""Grouped convolutions in sequence, without bias, normalisation or activation.

inputs [batch_size, S, S, filter_in] -> outputs [batch_size, R, R, filter_out], NHWC, SAME padding;
each convolution divides the image's side by the stride, rounded up. The channels form filter_out /
group_dim groups; the default, one channel per group, is depthwise. Training minimises the mean of
the output with SGD at 1e-30. An item is one image through one convolution.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Dict, List, Tuple

from ipubench.bench_kernels.kernel import TensorFlowKernel
from ipubench.fixtures.case.cases import cases
from ipubench.fixtures.case.options import option
from ipubench.fixtures.data.feeds import ArrayFeed, TensorSpec
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.machine.onednn import Operations
from ipubench.models.tensorflow.cnn.operations import has_grouped_gradient

# Up to about this many values of a batch, two images of the default, launching ten convolutions
# Up to about this many values of a batch (two images of the default), launching ten convolutions
# takes longer than one program compiled by XLA.
XLA_LIMIT = 1 << 19


@dataclass(frozen=True)
class GroupedConv(TensorFlowKernel):
    """Options of the convolutions; defaults of the original program."""

    unplanned = {"matmul_options": "it has no matrix product, set convolution_options"}

    name: str = option("grouped_conv", "first part of the case's identifier")
    batch_size: int = option(1, "images of one batch", minimum=1)
    filter_in: int = option(64, "channels of the input", minimum=1)
    filter_out: int = option(64, "channels that each convolution returns", minimum=1)
    kernel_size: int = option(3, "height and width of the kernels", minimum=1)
    stride: int = option(1, "step of every convolution", minimum=1)
    input_size: int = option(56, "height and width of the input", minimum=1)
    block_repeats: int = option(10, "convolutions, one after the other", minimum=1)
    group_dim: int = option(1, "channels that a group returns", minimum=1)
    learning_rate: float = option(1e-30, "rate of plain gradient descent", minimum=0.0)

    @property
    def groups(self) -> int:
        """Groups of each convolution."""
        return self.filter_out // self.group_dim

    @property
    def layers(self) -> List[Tuple[int, int]]:
        """The inputs of each convolution: (side of the image, channels)."""
        found = [(self.input_size, self.filter_in)]
        while len(found) < self.block_repeats:
            found.append((-(-found[-1][0] // self.stride), self.filter_out))
        return found

    @property
    def shifts(self) -> bool:
        """Whether sums of shifted images can replace the convolutions."""
        return self.filter_in == self.filter_out == self.groups and self.stride == 1

    def check(self) -> None:
        """Raise ValueError if channels do not divide into groups."""
        super().check()
        if self.filter_out % self.group_dim:
            raise ValueError(
                f"filter_out={self.filter_out} does not divide into groups of "
                f"group_dim={self.group_dim} channels"
            )
        if self.filter_in % self.groups:
            raise ValueError(
                f"filter_in={self.filter_in} does not divide into {self.groups} groups, "
                f"filter_out={self.filter_out} / group_dim={self.group_dim}"
            )

    def flops_per_item(self) -> float:
        """Return the mean FLOP of one image through one convolution.

        2 FLOP for each pixel under a kernel (``covered`` in each direction), for each input channel
        of a group and each output channel; padding is not counted. Training adds the gradient of
        the weights, and of the inputs except for the first convolution.
        """
        counts = [
            2.0
            * covered(side, self.kernel_size, self.stride) ** 2
            * (channels // self.groups)
            * self.filter_out
            for side, channels in self.layers
        ]
        training = self.mode == "training"
        return (3 * sum(counts) - counts[0] if training else sum(counts)) / self.block_repeats

    def xla_is_faster(self, library: Operations) -> bool:
        """Return whether XLA is faster: for small depthwise inference, as sums of shifted images.

        XLA's own grouped convolutions are many times slower than oneDNN's, and so is its gradient
        of the sums. Compared with Eigen, the sums are faster in any size and mode (a hundred times
        in inference, ten to thirty in training), and so is the gradient of groups of several
        channels (nine times).
        """
        if library is Operations.EIGEN:
            several = self.mode == "training" and self.filter_in > self.groups
            return self.shifts or several
        values = self.batch_size * self.input_size**2 * self.filter_in
        return self.shifts and self.mode == "inference" and values <= XLA_LIMIT

    def feed(self, data: Data) -> ArrayFeed:
        """Return the case's batches."""
        shape = (self.batch_size, self.input_size, self.input_size, self.filter_in)
        return self.arrays(data, TensorSpec("inputs", shape))


def covered(side: int, kernel_size: int, stride: int) -> int:
    """Return the number of a row's pixels under the kernel, summed over its positions."""
    positions = -(-side // stride)
    padding = max(0, (positions - 1) * stride + kernel_size - side)
    starts = (number * stride - padding // 2 for number in range(positions))
    return sum(min(side, start + kernel_size) - max(0, start) for start in starts)


def grouped_conv(config: GroupedConv, tf: Any, dtype: Any) -> Any:
    """Return the convolutions: variance scaling weights [k, k, channels / groups, filter_out]."""
    initial = tf.keras.initializers.VarianceScaling
    convolve, on_host = convolution(config, tf), config.system == "host"

    class Layers(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            size, groups = config.kernel_size, config.groups
            shapes = [
                [size, size, channels // groups, config.filter_out] for _, channels in config.layers
            ]
            # Every TensorFlow has initialisers in float32, but not all in 16 bits.
            self.kernels = [tf.Variable(tf.cast(initial()(shape), dtype)) for shape in shapes]

        def __call__(self, batch: Dict[str, Any]) -> Any:
            images = batch["inputs"]
            for kernel in self.kernels:
                images = convolve(images, tf.convert_to_tensor(kernel))
            return images

        def loss(self, output: Any, batch: Dict[str, Any]) -> Any:
            # XLA sums in float32, so an IPU needs no copy of the outputs.
            return tf.reduce_mean(tf.cast(output, tf.float32) if on_host else output)

    return Layers()


def convolution(config: GroupedConv, tf: Any) -> Callable[[Any, Any], Any]:
    """Return the fastest function (images, kernel) -> images of this TensorFlow."""

    def grouped(images: Any, kernel: Any) -> Any:
        # The kernel's shape determines the groups.
        return tf.nn.conv2d(images, kernel, config.stride, "SAME")

    if config.system != "host":
        return grouped
    if config.shifts and config.use_xla:
        return partial(shifted_sum, tf)
    if config.mode == "training" and not has_grouped_gradient(tf):
        compiled: Callable[[Any, Any], Any] = tf.function(
            grouped, jit_compile=True, autograph=False
        )
        return compiled
    return grouped


def shifted_sum(tf: Any, images: Any, kernel: Any) -> Any:
    """Return a depthwise convolution of stride 1 as a sum of shifted images, in float32.

    The rows of an image are contiguous, including padding, so that each shift is one slice. XLA
    makes one kernel of it; with slices of single rows it would recompute the previous convolution
    for each shift.
    """
    batch_size, side, _, channels = images.shape
    size = kernel.shape[0]
    before, width = (size - 1) // 2, side + size - 1
    # One more row below, because the last row's largest shift reads past its end.
    edges = [[0, 0], [before, size - before], [before, size - 1 - before], [0, 0]]
    padded = tf.pad(tf.cast(images, tf.float32), edges)
    pixels = tf.reshape(padded, [batch_size, -1, channels])
    weights = tf.cast(kernel[:, :, 0], tf.float32)
    total = tf.add_n(
        [
            pixels[:, row * width + column : (row + side) * width + column] * weights[row, column]
            for row in range(size)
            for column in range(size)
        ]
    )
    rows = tf.reshape(total, [batch_size, side, width, channels])
    return tf.cast(rows[:, :, :side], images.dtype)


@cases(
    GroupedConv(),
    system=("host", "ipu"),
    mode=("inference", "training"),
    data=("synthetic", "generated"),
)
def bench_grouped_conv(config: GroupedConv, tensorflow: Any, data: Data, meter: Any) -> None:
    """Time the convolutions."""
    step = tensorflow.loop(partial(grouped_conv, config), config, config.feed(data))
    meter(
        step,
        items=config.batch_size * config.block_repeats * config.replicas,
        unit="items",
        flops=config.flops_per_item(),
    )
