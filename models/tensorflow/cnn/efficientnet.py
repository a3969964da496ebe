"""EfficientNet (Tan and Le, arXiv 1905.11946), with symmetric padding.

Imported only where TensorFlow is loaded already.
"""

from __future__ import annotations

import math
from string import ascii_lowercase
from typing import Any, List, NamedTuple

from models.tensorflow.cnn.factory import LayerFactory
from models.tensorflow.cnn.layers import Chain, Dropout, Layer, SqueezeExcite, Top, Unit
from models.tensorflow.cnn.run import Run


class Stage(NamedTuple):
    """One row of table 1 of the paper; the first block has the stride, the others 1."""

    blocks: int
    kernel: int
    stride: int
    channels: int
    expands: bool = True  # the first stage's blocks are no wider inside


STAGES = (
    Stage(1, 3, 1, 16, expands=False),
    Stage(2, 3, 2, 24),
    Stage(2, 5, 2, 40),
    Stage(3, 3, 2, 80),
    Stage(3, 5, 1, 112),
    Stage(4, 5, 2, 192),
    Stage(1, 3, 1, 320),
)
STEM_CHANNELS = 32
SQUEEZE_RATIO = 0.25  # of a block's input channels


class Shape(NamedTuple):
    """What makes one EfficientNet differ from another."""

    width: float  # multiplies the channels
    depth: float  # multiplies the blocks of a stage
    dropout: float
    expand_ratio: int
    group_dim: int  # channels per group of what are depthwise convolutions with 1
    squeeze_excite: bool
    survival: float  # of the last block's branch in training; the first one's is 1
    depth_divisor: int  # of all numbers of channels
    top_width: int
    activation: str

    def channels(self, count: int) -> int:
        """Return the scaled channels: a multiple of the divisor, at most 10% less."""
        wanted, divisor = count * self.width, self.depth_divisor
        rounded = max(divisor, int(wanted + divisor / 2) // divisor * divisor)
        return rounded if rounded >= 0.9 * wanted else rounded + divisor


class Residual(Unit):
    """A block whose input is added to its output."""

    def __init__(self, path: str, layers: List[Layer], drop: Dropout) -> None:
        super().__init__(path)
        self.layers = layers
        self.drop = drop

    def __call__(self, images: Any, run: Run) -> Any:
        """Return the branch's output, for some images dropped in training, plus the images."""
        outputs = images
        for layer in self.layers:
            outputs = layer(outputs, run)
        return self.drop(outputs, run) + images


def efficientnet_units(make: LayerFactory, shape: Shape, classes: int) -> List[Unit]:
    """Return the units: a residual block is one, the parts of another block are one each."""
    channels = shape.channels(STEM_CHANNELS)
    stem = make.conv_norm("stem", 3, channels, 3, 2, activation=shape.activation)
    units: List[Unit] = [Chain("stem", [stem])]
    repeats = [math.ceil(stage.blocks * shape.depth) for stage in STAGES]
    number = 0
    for index, stage in enumerate(STAGES):
        outputs = shape.channels(stage.channels)
        for block in range(repeats[index]):
            path = f"block{index + 1}{ascii_lowercase[block]}"
            stride = stage.stride if block == 0 else 1
            expand = shape.expand_ratio if stage.expands else 1
            parts = _block(make, shape, path, channels, outputs, stage.kernel, stride, expand)
            if stride == 1 and channels == outputs:
                keep = 1.0 - (1.0 - shape.survival) * number / sum(repeats)
                drop = Dropout(keep, number, whole=True)
                units.append(Residual(path, [part.layer for part in parts], drop))
            else:
                units += [Chain(part.name, [part.layer]) for part in parts]
            channels = outputs
            number += 1
    layers: List[Layer] = []
    if shape.top_width > 0:
        features = shape.channels(shape.top_width)
        layers = [make.conv_norm("top/conv", channels, features, activation=shape.activation)]
        channels = features
    drop = Dropout(1.0 - shape.dropout, number)
    return [*units, Top("top", layers, drop, make.dense("top/dense", channels, classes))]


class _Part(NamedTuple):
    name: str
    layer: Layer


def _block(
    make: LayerFactory,
    shape: Shape,
    path: str,
    inputs: int,
    outputs: int,
    kernel: int,
    stride: int,
    expand: int,
) -> List[_Part]:
    """Return expansion (where there is one), grouped convolution, squeeze-excite, projection."""
    inner, activation = inputs * expand, shape.activation
    parts: List[_Part] = []
    if expand != 1:
        parts.append(_Part(path, make.conv_norm(f"{path}/a", inputs, inner, activation=activation)))
    groups = max(inner // shape.group_dim, 1)
    conv = make.conv_norm(f"{path}/b", inner, inner, kernel, stride, groups, activation)
    parts.append(_Part(f"{path}/b", conv))
    if shape.squeeze_excite:
        squeezed = max(1, int(inputs * SQUEEZE_RATIO))
        squeeze = make.dense(f"{path}/SE/squeeze", inner, squeezed)
        excite = make.dense(f"{path}/SE/excite", squeezed, inner)
        parts.append(_Part(f"{path}/SE", SqueezeExcite(squeeze, excite, activation)))
    parts.append(_Part(f"{path}/c", make.conv_norm(f"{path}/c", inner, outputs)))
    return parts
