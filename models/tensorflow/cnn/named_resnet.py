"""resnet18, resnet34 and resnet50 in the skeleton of Keras' applications.

They differ from resnet.py: 3 x 3 convolutions with a stride pad at the end only (TensorFlow's
"SAME"), the first block of every stage has a projection, and only bottleneck blocks start as the
identity. Imported only where TensorFlow is loaded already.
"""

from __future__ import annotations

from typing import Any, List

import tensorflow as tf

from ipubench.models.tensorflow.cnn.factory import LayerFactory
from ipubench.models.tensorflow.cnn.layers import Chain, Unit
from ipubench.models.tensorflow.cnn.named_blocks import STEM_CHANNELS, NamedBlock, resnet_blocks
from ipubench.models.tensorflow.cnn.operations import spatial_mean
from ipubench.models.tensorflow.cnn.resnet import MaxPool, Relu, ResidualSum
from ipubench.models.tensorflow.cnn.run import ForwardPass


class ChannelMeans(Unit):
    """The means [N, C] of each image's channels."""

    def __call__(self, images: Any, run: ForwardPass) -> Any:
        """Return the features."""
        return spatial_mean(tf, images)


def top_units(make: LayerFactory, channels: int, classes: int) -> List[Unit]:
    """Return the channel means and the dense layer behind the last block."""
    return [ChannelMeans("avg_pool"), Chain("top", [make.dense("top/dense", channels, classes)])]


def named_resnet_units(
    make: LayerFactory, model_name: str, bottleneck: bool, channels: int, classes: int
) -> List[Unit]:
    """Return the units of a network for images of so many ``channels``."""
    stem = make.conv_norm("conv1", channels, STEM_CHANNELS, 7, 2, activation="relu", glorot=True)
    units: List[Unit] = [Chain("conv1_conv", [stem]), Chain("pool1_pad", [MaxPool()])]
    blocks = resnet_blocks(model_name)
    for block in blocks:
        of_sum, of_relu = block.units
        units += [_residual_sum(make, of_sum, block, bottleneck), Relu(of_relu)]
    return [*units, *top_units(make, blocks[-1].outputs, classes)]


def _residual_sum(
    make: LayerFactory, name: str, block: NamedBlock, bottleneck: bool
) -> ResidualSum:
    path, inputs, filters, outputs = block.path, block.inputs, block.filters, block.outputs
    shortcut = None
    if block.first:
        shortcut = make.conv_norm(f"{path}_0", inputs, outputs, 1, block.stride)
    if not bottleneck:
        branch = [
            make.conv_norm(
                f"{path}_1", inputs, filters, 3, block.stride, activation="relu", padding="SAME"
            ),
            make.conv_norm(f"{path}_2", filters, outputs, 3),
        ]
        return ResidualSum(name, branch, shortcut)
    branch = [
        make.conv_norm(f"{path}_1", inputs, filters, activation="relu"),
        make.conv_norm(
            f"{path}_2", filters, filters, 3, block.stride, activation="relu", padding="SAME"
        ),
        # A block that starts as the identity trains better; one with a projection cannot.
        make.conv_norm(f"{path}_3", filters, outputs, gamma=1.0 if block.first else 0.0),
    ]
    return ResidualSum(name, branch, shortcut)
