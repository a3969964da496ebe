"""ResNet v1.5 (He et al., arXiv 1512.03385; the stride is on the 3x3 convolution) and ResNeXt.

Imported only if TensorFlow is loaded already.
"""

from __future__ import annotations

from typing import Any, List, Optional

import tensorflow as tf

from ipubench.models.tensorflow.cnn.blocks import BASIC, RESNET_STEM_CHANNELS, resnet_blocks
from ipubench.models.tensorflow.cnn.factory import LayerFactory
from ipubench.models.tensorflow.cnn.layers import Chain, ConvNorm, Layer, Top, Unit
from ipubench.models.tensorflow.cnn.operations import max_pool
from ipubench.models.tensorflow.cnn.run import ForwardPass, through


class MaxPool(Layer):
    """Maxima of 3 x 3 windows, 2 apart."""

    def __call__(self, images: Any, run: ForwardPass) -> Any:
        """Return images of half the size."""
        return max_pool(tf, images)


class ResidualSum(Unit):
    """A block up to its addition; its ReLU is the next unit."""

    def __init__(self, path: str, branch: List[ConvNorm], shortcut: Optional[Layer]) -> None:
        super().__init__(path)
        self.branch = branch
        self.shortcut = shortcut

    def __call__(self, images: Any, run: ForwardPass) -> Any:
        """Return the branch's output plus the images, projected if the shape changes."""
        outputs = through(self.branch, images, run)
        return outputs + (images if self.shortcut is None else self.shortcut(images, run))


class Relu(Unit):
    """The last ReLU of a block."""

    def __call__(self, images: Any, run: ForwardPass) -> Any:
        """Return max(x, 0)."""
        return tf.nn.relu(images)


def resnet_units(
    make: LayerFactory, size: str, classes: int, groups: int = 1, group_dim: int = 64
) -> List[Unit]:
    """Return the units of a ResNet, or of a ResNeXt with ``groups`` of ``group_dim`` channels.

    ``group_dim`` is that of the first stage and doubles with each stage.
    """
    stem = make.conv_norm("stem", 3, RESNET_STEM_CHANNELS, 7, 2, activation="relu")
    units: List[Unit] = [Chain("stem", [stem, MaxPool()])]
    blocks = resnet_blocks(size)
    for block in blocks:
        path, inputs, filters, outputs = block.path, block.inputs, block.filters, block.outputs
        # A block that starts as the identity trains better; the first of a stage cannot.
        gamma = 1.0 if block.first else 0.0
        if size in BASIC:
            branch = [
                make.conv_norm(f"{path}/conv1", inputs, filters, 3, block.stride, 1, "relu"),
                make.conv_norm(f"{path}/conv2", filters, outputs, 3, gamma=gamma),
            ]
        else:
            inner = filters * groups * group_dim // 64
            branch = [
                make.conv_norm(f"{path}/conv1", inputs, inner, activation="relu"),
                make.conv_norm(f"{path}/conv2", inner, inner, 3, block.stride, groups, "relu"),
                make.conv_norm(f"{path}/conv3", inner, outputs, gamma=gamma),
            ]
        shortcut = None
        if block.stride > 1 or inputs != outputs:
            shortcut = make.conv_norm(f"{path}/shortcut", inputs, outputs, 1, block.stride)
        of_sum, of_relu = block.units
        units += [ResidualSum(of_sum, branch, shortcut), Relu(of_relu)]
    return [*units, Top("top", [], None, make.dense("top/dense", blocks[-1].outputs, classes))]
