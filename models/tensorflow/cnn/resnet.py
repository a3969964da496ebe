"""ResNet v1.5 (He et al., arXiv 1512.03385; the stride is on the 3x3 convolution) and ResNeXt.

Imported only where TensorFlow is loaded already.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import tensorflow as tf

from models.tensorflow.cnn.factory import LayerFactory
from models.tensorflow.cnn.layers import Chain, ConvNorm, Layer, Top, Unit
from models.tensorflow.cnn.operations import max_pool
from models.tensorflow.cnn.run import Run

#: Size of the network -> blocks of its four stages.
BASIC: Dict[str, Tuple[int, ...]] = {
    "10": (1, 1, 1, 1),
    "18": (2, 2, 2, 2),
    "34": (3, 4, 6, 3),
}
BOTTLENECK: Dict[str, Tuple[int, ...]] = {
    "14": (1, 1, 1, 1),
    "26": (2, 2, 2, 2),
    "50": (3, 4, 6, 3),
    "101": (3, 4, 23, 3),
    "152": (3, 8, 36, 3),
}
STEM_CHANNELS = 64
EXPANSION = 4  # outputs of a bottleneck block over its filters


class MaxPool(Layer):
    """Maxima of 3 x 3 windows, 2 apart."""

    def __call__(self, images: Any, run: Run) -> Any:
        """Return images of half the size."""
        return max_pool(tf, images)


class ResidualSum(Unit):
    """A block up to its addition; the ReLU behind it is the next unit."""

    def __init__(self, path: str, branch: List[ConvNorm], shortcut: Optional[ConvNorm]) -> None:
        super().__init__(path)
        self.branch = branch
        self.shortcut = shortcut

    def __call__(self, images: Any, run: Run) -> Any:
        """Return the branch's output plus the images, projected where the shape changes."""
        outputs = images
        for layer in self.branch:
            outputs = layer(outputs, run)
        return outputs + (images if self.shortcut is None else self.shortcut(images, run))


class Relu(Unit):
    """The last ReLU of a block."""

    def __call__(self, images: Any, run: Run) -> Any:
        """Return max(x, 0)."""
        return tf.nn.relu(images)


def resnet_units(
    make: LayerFactory, size: str, classes: int, groups: int = 1, group_dim: int = 64
) -> List[Unit]:
    """Return the units of a ResNet, or of a ResNeXt with ``groups`` of ``group_dim`` channels.

    ``group_dim`` counts in the first stage and doubles with each stage.
    """
    blocks = {**BASIC, **BOTTLENECK}[size]
    stem = make.conv_norm("stem", 3, STEM_CHANNELS, 7, 2, activation="relu")
    units: List[Unit] = [Chain("stem", [stem, MaxPool()])]
    channels = STEM_CHANNELS
    for stage, count in enumerate(blocks):
        filters = STEM_CHANNELS << stage
        for block in range(count):
            path = f"b{stage + 1}/{block}"
            stride = 2 if stage > 0 and block == 0 else 1
            # A block that starts as the identity trains better; the first of a stage cannot.
            gamma = 1.0 if block == 0 else 0.0
            if size in BASIC:
                outputs = filters
                branch = [
                    make.conv_norm(f"{path}/conv1", channels, filters, 3, stride, 1, "relu"),
                    make.conv_norm(f"{path}/conv2", filters, outputs, 3, gamma=gamma),
                ]
            else:
                inner, outputs = filters * groups * group_dim // 64, filters * EXPANSION
                branch = [
                    make.conv_norm(f"{path}/conv1", channels, inner, activation="relu"),
                    make.conv_norm(f"{path}/conv2", inner, inner, 3, stride, groups, "relu"),
                    make.conv_norm(f"{path}/conv3", inner, outputs, gamma=gamma),
                ]
            shortcut = None
            if stride > 1 or channels != outputs:
                shortcut = make.conv_norm(f"{path}/shortcut", channels, outputs, 1, stride)
            units += [ResidualSum(path, branch, shortcut), Relu(f"{path}/relu")]
            channels = outputs
    return [*units, Top("top", [], None, make.dense("top/dense", channels, classes))]
