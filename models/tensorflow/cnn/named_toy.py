"""toy_model and toy_model_bn: two convolutions, each with a maximum of 5 x 5 windows behind it.

Imported only where TensorFlow is loaded already.
"""

from __future__ import annotations

from typing import Any, List, Tuple

import tensorflow as tf

from ipubench.models.tensorflow.cnn.factory import LayerFactory
from ipubench.models.tensorflow.cnn.layers import Chain, Layer, Unit
from ipubench.models.tensorflow.cnn.named_blocks import (
    TOY_CHANNELS,
    TOY_KERNEL,
    TOY_POOL,
    toy_features,
    unit_names,
)
from ipubench.models.tensorflow.cnn.run import ForwardPass


class WindowMax(Layer):
    """Maxima of windows that do not overlap; what fills no window is left out."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def __call__(self, images: Any, run: ForwardPass) -> Any:
        """Return the smaller images."""
        return tf.nn.max_pool2d(images, self.size, self.size, "VALID")


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
            make.conv_bias(f"conv2d_{index}", inputs, outputs, size, "relu", "VALID"),
            WindowMax(TOY_POOL),
        ]
        if model_name == "toy_model_bn":
            layers.append(make.norm(f"bn_{index}", outputs))
    layers += [Flatten(), make.dense("top/dense", toy_features(height, width), classes)]
    return [Chain(name, [layer]) for name, layer in zip(unit_names(model_name), layers)]
