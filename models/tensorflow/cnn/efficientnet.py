"""EfficientNet (Tan and Le, arXiv 1905.11946), with symmetric padding.

Imported only if TensorFlow is loaded already.
"""

from __future__ import annotations

from typing import Any, List

from ipubench.models.published import STEM_CHANNELS
from ipubench.models.tensorflow.cnn.blocks import (
    EfficientNetBlock,
    Shape,
    efficientnet_blocks,
)
from ipubench.models.tensorflow.cnn.factory import LayerFactory
from ipubench.models.tensorflow.cnn.layers import Chain, Dropout, Layer, SqueezeExcite, Top, Unit
from ipubench.models.tensorflow.cnn.run import ForwardPass, through

SQUEEZE_RATIO = 0.25  # of a block's input channels


class Residual(Unit):
    """A block whose input is added to its output."""

    def __init__(self, path: str, layers: List[Layer], drop: Dropout) -> None:
        super().__init__(path)
        self.layers = layers
        self.drop = drop

    def __call__(self, images: Any, run: ForwardPass) -> Any:
        """Return the branch's output plus the images. Training drops some branches."""
        return self.drop(through(self.layers, images, run), run) + images


def efficientnet_units(make: LayerFactory, shape: Shape, classes: int) -> List[Unit]:
    """Return the units: one for a residual block, otherwise one per layer."""
    channels = shape.channels(STEM_CHANNELS)
    stem = make.conv_norm("stem", 3, channels, 3, 2, activation=shape.activation)
    units: List[Unit] = [Chain("stem", [stem])]
    blocks = efficientnet_blocks(shape)
    for number, block in enumerate(blocks):
        parts = _parts(make, shape, block)
        if block.residual:
            keep = 1.0 - (1.0 - shape.survival) * number / len(blocks)
            units.append(Residual(block.path, parts, Dropout(keep, number, whole=True)))
        else:
            units += [Chain(name, [part]) for name, part in zip(block.units, parts)]
    channels = blocks[-1].outputs
    layers: List[Layer] = []
    if shape.top_width > 0:
        features = shape.channels(shape.top_width)
        layers = [make.conv_norm("top/conv", channels, features, activation=shape.activation)]
        channels = features
    drop = Dropout(1.0 - shape.dropout, len(blocks))
    return [*units, Top("top", layers, drop, make.dense("top/dense", channels, classes))]


def _parts(make: LayerFactory, shape: Shape, block: EfficientNetBlock) -> List[Layer]:
    """Return expansion (if any), grouped convolution, squeeze-excite, projection."""
    path, activation = block.path, shape.activation
    inner = block.inputs * block.expand
    parts: List[Layer] = []
    if block.expand != 1:
        parts.append(make.conv_norm(f"{path}/a", block.inputs, inner, activation=activation))
    groups = max(inner // shape.group_dim, 1)
    size, stride = block.kernel, block.stride
    parts.append(make.conv_norm(f"{path}/b", inner, inner, size, stride, groups, activation))
    if block.squeeze_excite:
        squeezed = max(1, int(block.inputs * SQUEEZE_RATIO))
        squeeze = make.dense(f"{path}/SE/squeeze", inner, squeezed)
        excite = make.dense(f"{path}/SE/excite", squeezed, inner)
        parts.append(SqueezeExcite(squeeze, excite, activation))
    parts.append(make.conv_norm(f"{path}/c", inner, block.outputs))
    return parts
