"""One 2D convolution with bias as an ONNX graph, channels first.

inputs [batch_size, channel_size, input_height, input_width] -> [batch_size, filter_number,
out_height, out_width], where an output size is (size + 2 padding - kernel) // stride + 1.
Evaluation adds the sum of squared differences between the softmax of each image's outputs and
labels 0 or 1; training minimises it with SGD at 0.01. An item is one image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Tuple

from ipubench.bench_kernels.popart_kernel import PopartKernel
from ipubench.fixtures.case.cases import cases
from ipubench.fixtures.case.options import option
from ipubench.fixtures.data.feeds import ArrayFeed, TensorSpec
from ipubench.fixtures.data.provider import Data


@dataclass(frozen=True)
class PopartConv(PopartKernel):
    """Options of the layer; defaults of the original program."""

    # oneDNN's convolution, in bfloat16 2.3 times as fast as ONNX Runtime's in float32.
    inference_engine = "torch"

    name: str = option("popart-conv", "first part of the case's identifier")
    batch_size: int = option(1, "images of one batch", minimum=1)
    input_width: int = option(1920, "pixels of a row", minimum=1)
    input_height: int = option(1080, "rows of an image", minimum=1)
    channel_size: int = option(4, "channels of the input", minimum=1)
    filter_number: int = option(64, "channels of the output", minimum=1)
    kernel_size: int = option(4, "width and height of the filters", minimum=1)
    padding: int = option(3, "zeros around the input", minimum=0)
    stride: int = option(2, "pixels from one output to the next", minimum=1)

    @property
    def output_shape(self) -> Tuple[int, int, int, int]:
        """Shape of the output, channels first."""
        height, width = map(self._output_size, (self.input_height, self.input_width))
        return (self.batch_size, self.filter_number, height, width)

    def _output_size(self, size: int) -> int:
        return (size + 2 * self.padding - self.kernel_size) // self.stride + 1

    def check(self) -> None:
        """Raise ValueError for an image smaller than the filter or what the driver refuses."""
        super().check()
        for name in ("input_height", "input_width"):
            size = getattr(self, name) + 2 * self.padding
            if size < self.kernel_size:
                raise ValueError(
                    f"kernel_size {self.kernel_size}: {name} with its padding has {size} pixels"
                )

    def flops_per_item(self) -> float:
        """Return the FLOP of the convolution of one image, except those on the padding's zeros.

        Inference: 2 per filter value and output for which it covers a pixel. Training adds the
        filters' gradient, which takes the same; the inputs need no gradient.
        """
        taps = self._taps(self.input_height) * self._taps(self.input_width)
        forward = 2.0 * self.channel_size * self.filter_number * taps
        return 2 * forward if self.mode == "training" else forward

    def _taps(self, size: int) -> int:
        """Return the number of pixels that all outputs along one dimension cover in total."""
        starts = (output * self.stride - self.padding for output in range(self._output_size(size)))
        return sum(max(0, min(start + self.kernel_size, size) - max(start, 0)) for start in starts)

    def feed(self, data: Data) -> ArrayFeed:
        """Return the case's batches; inference has no labels."""
        shape = (self.batch_size, self.channel_size, self.input_height, self.input_width)
        inputs = TensorSpec("inputs", shape, uniform=(-1.0, 1.0))
        labels = TensorSpec("labels", self.output_shape, classes=2)
        return self.arrays(data, *([inputs] if self.mode == "inference" else [inputs, labels]))


def conv(config: PopartConv, dtype: str) -> Any:
    """Return the network; ``dtype`` of its tensors is float16 or float32."""
    from ipubench.models.onnx.network import conv_network

    return conv_network(
        config.batch_size,
        config.channel_size,
        config.input_height,
        config.input_width,
        config.filter_number,
        config.kernel_size,
        config.padding,
        config.stride,
        dtype,
        zeros=config.use_zero_values,
    )


@cases(
    PopartConv(),
    system=("host", "ipu"),
    mode=("inference", "evaluation", "training"),
    data=("synthetic", "generated"),
)
def bench_popart_conv(config: PopartConv, popart: Any, data: Data, meter: Any) -> None:
    """Time the layer."""
    step = popart.loop(lambda dtype: conv(config, dtype), config, config.feed(data))
    meter(
        step,
        items=config.batch_size * config.replicas,
        unit="items",
        flops=config.flops_per_item(),
    )
