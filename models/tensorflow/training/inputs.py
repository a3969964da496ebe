"""Converts pixels to the input of a network's first convolution, on the device.

MEANS are the means of ImageNet's pixels, per channel.
"""

from __future__ import annotations

import math
from typing import Any, Optional

from ipubench.models.published import DEVIATION, MEAN, SCALE, SHIFT

MEANS = (123.68, 116.78, 103.94)


def normalise(tf: Any, images: Any, dtype: Any, normalise_input: bool, narrow: bool = False) -> Any:
    """Return images [..., 3] of pixels 0..255, uint8 or floating, as inputs in ``dtype``.

    ``normalise_input``: (x / 255 - MEAN) / DEVIATION, otherwise x - MEANS. The arithmetic is in
    float32, because 16 bits round a mean by up to half a grey level. With ``narrow`` it is in
    ``dtype``, as in the original programs on IPUs, which have no memory for images of four bytes a
    value.
    """
    pixels = tf.cast(images, dtype if narrow else tf.float32)
    if normalise_input:
        return tf.cast(pixels * SCALE - SHIFT, dtype)
    return tf.cast(pixels - MEANS, dtype)


def network_input(
    tf: Any,
    images: Any,
    dtype: Any,
    normalise_input: bool,
    normalised: bool,
    narrow: bool = False,
) -> Any:
    """Return images as a network takes them: :func:`normalise`, unless ``normalised`` already."""
    if normalised:
        return tf.cast(images, dtype)
    return normalise(tf, images, dtype, normalise_input, narrow)


def preprocess(
    tf: Any,
    images: Any,
    dtype: Any,
    dataset: str,
    fused: bool = False,
    seed: Optional[Any] = None,
    narrow: bool = False,
) -> Any:
    """Return images [N, H, W, C] of pixels 0..255, uint8 or floating, as inputs in ``dtype``.

    imagenet: (x / 255 - mean) / deviation per channel; with ``fused`` as one product and one
    difference. cifar10: each image mirrored at random, then standardised. mnist: x / 255. An empty
    name: nothing. ``seed``, int32 [2], is for mirroring; without it, as in validation, there is
    none. ``narrow``: the arithmetic is in ``dtype``, as in :func:`normalise`.
    """
    if not dataset:
        return tf.cast(images, dtype)
    if dataset == "imagenet" and fused:
        return normalise(tf, images, dtype, normalise_input=True, narrow=narrow)
    pixels = tf.cast(images, dtype if narrow else tf.float32)
    if dataset == "imagenet":
        return tf.cast((pixels / 255.0 - MEAN) / DEVIATION, dtype)
    if dataset == "cifar10":
        mirrored = pixels if seed is None else mirror(tf, pixels, seed)
        return tf.cast(standardise(tf, mirrored), dtype)
    return tf.cast(pixels * (1.0 / 255.0), dtype)


def mirror(tf: Any, images: Any, seed: Any) -> Any:
    """Return images [N, H, W, C], each mirrored left to right with probability 1/2.

    Equal seeds (int32 [2]) mirror the same images.
    """
    chosen = tf.random.stateless_uniform([images.shape[0], 1, 1, 1], seed) < 0.5
    return tf.where(chosen, tf.reverse(images, [2]), images)


def standardise(tf: Any, images: Any) -> Any:
    """Return images [N, H, W, C] with mean 0 and deviation 1 each, floating.

    The deviation is at least 1 / sqrt(H W C), as in tf.image.per_image_standardization, so that an
    image of one colour, like the padding of a batch, becomes zero and not NaN.
    """
    least = 1.0 / math.sqrt(images.shape[1:].num_elements())
    mean, variance = tf.nn.moments(images, [1, 2, 3], keepdims=True)
    return (images - mean) / tf.maximum(tf.sqrt(variance), least)
