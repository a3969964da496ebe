"""Pixels to what a network's first convolution takes, on the device.

The constants are those of ImageNet, in the order red, green, blue: MEANS in pixel values, MEAN and
DEVIATION for pixels scaled to 0..1. A pixel is normalised to ``pixel * SCALE - SHIFT``.
"""

from __future__ import annotations

from typing import Any

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
SCALE = tuple(1.0 / (255.0 * deviation) for deviation in DEVIATION)
SHIFT = tuple(mean / deviation for mean, deviation in zip(MEAN, DEVIATION))
MEANS = (123.68, 116.78, 103.94)


def normalise(tf: Any, images: Any, dtype: Any, normalise_input: bool) -> Any:
    """Return images [..., 3] of pixels 0..255, uint8 or floating, as inputs in ``dtype``.

    ``normalise_input``: (x / 255 - MEAN) / DEVIATION, else x - MEANS. The arithmetic is in
    float32: 16 bits round a mean by as much as half a grey level.
    """
    pixels = tf.cast(images, tf.float32)
    if normalise_input:
        return tf.cast(pixels * SCALE - SHIFT, dtype)
    return tf.cast(pixels - MEANS, dtype)


def network_input(tf: Any, images: Any, dtype: Any, normalise_input: bool, normalised: bool) -> Any:
    """Return images as a network takes them: :func:`normalise`, unless ``normalised`` already."""
    if normalised:
        return tf.cast(images, dtype)
    return normalise(tf, images, dtype, normalise_input)
