"""cifar_resnet8 to 56: ResNets of 6 n + 2 layers for small images (He et al., arXiv 1512.03385).

Shortcuts that change the shape drop pixels and add channels of zeros: they have no weights.
Imported only where TensorFlow is loaded already.
"""

from __future__ import annotations

from typing import Any, List

import tensorflow as tf

from ipubench.models.tensorflow.cnn.factory import LayerFactory
from ipubench.models.tensorflow.cnn.layers import Chain, Layer, Unit
from ipubench.models.tensorflow.cnn.named_blocks import CIFAR_STEM_CHANNELS, cifar_blocks
from ipubench.models.tensorflow.cnn.named_resnet import top_units
from ipubench.models.tensorflow.cnn.operations import identity_shortcut
from ipubench.models.tensorflow.cnn.resnet import Relu, ResidualSum
from ipubench.models.tensorflow.cnn.run import ForwardPass


class IdentityShortcut(Layer):
    """Every ``stride``-th pixel, and zeros as further ones of all ``channels``."""

    def __init__(self, stride: int, channels: int) -> None:
        super().__init__()
        self.stride = stride
        self.channels = channels

    def __call__(self, images: Any, run: ForwardPass) -> Any:
        """Return the smaller images with more channels."""
        return identity_shortcut(tf, images, self.stride, self.channels)


def cifar_units(make: LayerFactory, model_name: str, channels: int, classes: int) -> List[Unit]:
    """Return the units of a network for images of so many ``channels``."""
    stem = make.conv_norm("conv1", channels, CIFAR_STEM_CHANNELS, 3, activation="relu")
    units: List[Unit] = [Chain("conv1_conv", [stem])]
    blocks = cifar_blocks(model_name)
    for block in blocks:
        path, filters, stride = block.path, block.filters, block.stride
        branch = [
            make.conv_norm(
                f"{path}_layer1",
                block.inputs,
                filters,
                3,
                stride,
                activation="relu",
                padding="SAME",
            ),
            make.conv_norm(f"{path}_layer2", filters, filters, 3),
        ]
        shortcut = None if stride == 1 else IdentityShortcut(stride, filters)
        of_sum, of_relu = block.units
        units += [ResidualSum(of_sum, branch, shortcut), Relu(of_relu)]
    return [*units, *top_units(make, blocks[-1].outputs, classes)]
