"""The units of the application's networks.

resnet18, resnet34 and resnet50 have the structure of Keras' applications. Unlike in resnet.py, 3 x
3 convolutions with a stride pad only at the end (TensorFlow's "SAME"), the first block of each
stage has a projection, and only bottleneck blocks start as the identity.

cifar_resnet8 to 56 are ResNets of 6 n + 2 layers for small images (He et al., arXiv 1512.03385).
Shortcuts that change the shape drop pixels and add channels of zeros, so they have no weights.

toy_model and toy_model_bn are two convolutions, each followed by a maximum of 5 x 5 windows.

Imported only if TensorFlow is loaded already.
"""

from __future__ import annotations

from typing import Any, List, Tuple

import tensorflow as tf

from ipubench.models.tensorflow.cnn.blocks import ResidualBlock
from ipubench.models.tensorflow.cnn.factory import LayerFactory
from ipubench.models.tensorflow.cnn.layers import Chain, Layer, Unit
from ipubench.models.tensorflow.cnn.named_blocks import (
    CIFAR_STEM_CHANNELS,
    STEM_CHANNELS,
    TOY_CHANNELS,
    TOY_KERNEL,
    TOY_POOL,
    cifar_blocks,
    resnet_blocks,
    toy_features,
    unit_names,
)
from ipubench.models.tensorflow.cnn.operations import identity_shortcut, spatial_mean
from ipubench.models.tensorflow.cnn.resnet import MaxPool, Relu, ResidualSum
from ipubench.models.tensorflow.cnn.run import ForwardPass


class ChannelMeans(Unit):
    """The means [N, C] of each image's channels."""

    def __call__(self, images: Any, run: ForwardPass) -> Any:
        """Return the features."""
        return spatial_mean(tf, images, run.on_ipu)


def top_units(make: LayerFactory, channels: int, classes: int) -> List[Unit]:
    """Return the channel means and the dense layer after the last block."""
    return [ChannelMeans("avg_pool"), Chain("top", [make.dense("top/dense", channels, classes)])]


def named_resnet_units(
    make: LayerFactory, model_name: str, bottleneck: bool, channels: int, classes: int
) -> List[Unit]:
    """Return the units of a network for images with ``channels``."""
    stem = make.conv_norm("conv1", channels, STEM_CHANNELS, 7, 2, activation="relu", glorot=True)
    units: List[Unit] = [Chain("conv1_conv", [stem]), Chain("pool1_pad", [MaxPool()])]
    blocks = resnet_blocks(model_name)
    for block in blocks:
        of_sum, of_relu = block.units
        units += [_residual_sum(make, of_sum, block, bottleneck), Relu(of_relu)]
    return [*units, *top_units(make, blocks[-1].outputs, classes)]


def _residual_sum(
    make: LayerFactory, name: str, block: ResidualBlock, bottleneck: bool
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


class IdentityShortcut(Layer):
    """Takes each ``stride``-th pixel, and adds zeros to get ``channels``."""

    def __init__(self, stride: int, channels: int) -> None:
        super().__init__()
        self.stride = stride
        self.channels = channels

    def __call__(self, images: Any, run: ForwardPass) -> Any:
        """Return the smaller images with more channels."""
        return identity_shortcut(tf, images, self.stride, self.channels)


def cifar_units(make: LayerFactory, model_name: str, channels: int, classes: int) -> List[Unit]:
    """Return the units of a network for images with ``channels``."""
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


class WindowMax(Layer):
    """Maxima of windows that do not overlap; incomplete windows are dropped."""

    def __call__(self, images: Any, run: ForwardPass) -> Any:
        """Return the smaller images."""
        return tf.nn.max_pool2d(images, TOY_POOL, TOY_POOL, "VALID")


class Flatten(Layer):
    """All values of an image as its features."""

    def __call__(self, images: Any, run: ForwardPass) -> Any:
        """Return the features [N, H W C]."""
        _, height, width, channels = images.shape
        return tf.reshape(images, [-1, height * width * channels])


def toy_units(
    make: LayerFactory, model_name: str, image_shape: Tuple[int, int, int], classes: int
) -> List[Unit]:
    """Return the units of a network for images [H, W, C]."""
    height, width, channels = image_shape
    narrow, wide = TOY_CHANNELS
    layers: List[Layer] = []
    for index, (inputs, outputs, size) in enumerate(
        ((channels, narrow, TOY_KERNEL), (narrow, wide, 1))
    ):
        layers += [
            make.conv_bias(f"conv2d_{index}", inputs, outputs, size),
            WindowMax(),
        ]
        if model_name == "toy_model_bn":
            layers.append(make.norm(f"bn_{index}", outputs))
    layers += [Flatten(), make.dense("top/dense", toy_features(height, width), classes)]
    return [Chain(name, [layer]) for name, layer in zip(unit_names(model_name), layers)]
