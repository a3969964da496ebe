"""Mixup and cutmix: blend the images of a batch with each other, and paste them into each other.

Mixup: Zhang et al., 2018, arXiv 1710.09412; cutmix: Yun et al., 2019, arXiv 1905.04899. As in
Graphcore's TensorFlow CNN training program, an image's partner is a neighbour in the batch (mixup
one place away, cutmix two), the base image has the larger share of a blend, and cutmix keeps a
fixed share of each image, not a random one.

Labels are mixed like the images: ``labels`` [N, K] are the classes in image n, and ``shares`` [N,
K], float32, their shares; its rows sum to 1. K doubles with each kind of mixing.
"""

from __future__ import annotations

import math
from typing import Any, Optional, Tuple

Mixed = Tuple[Any, Any, Any]


def mixup_coefficients(tf: Any, batch_size: int, alpha: float, seed: Any) -> Any:
    """Return float32 [batch_size], the share that each image keeps: max(b, 1 - b), b ~ beta(a, a).

    ``seed``: int32 [2]; the same seed gives the same shares. For the host only, because XLA has no
    such distribution.
    """
    # The log of a gamma variable is x = log gamma(alpha + 1) + log(u) / alpha, and b = sigmoid(x -
    # y). A gamma variable of a small alpha itself would underflow to 0, and b would be 0 / 0.
    first, second = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
    gammas = tf.random.stateless_gamma([2, batch_size], first, alpha + 1.0, dtype=tf.float32)
    uniform = tf.random.stateless_uniform([2, batch_size], second)
    logs = tf.math.log(gammas) + tf.math.log1p(-uniform) / alpha
    return tf.sigmoid(tf.abs(logs[0] - logs[1]))


def mix(
    tf: Any,
    images: Any,
    labels: Any,
    coefficients: Optional[Any] = None,
    cutmix_lambda: float = 1.0,
    seed: Optional[Any] = None,
) -> Mixed:
    """Return images, labels and shares after mixup by ``coefficients`` [N], then cutmix.

    ``images`` [N, H, W, C], at least two, keep their dtype; ``labels`` are integers [N]. Without
    coefficients there is no mixup, with ``cutmix_lambda`` 1 no cutmix; ``seed`` int32 [2] is for
    cutmix.
    """
    mixed: Mixed = (images, labels[:, tf.newaxis], tf.ones([images.shape[0], 1]))
    if coefficients is not None:
        mixed = mixup(tf, mixed, coefficients)
    if cutmix_lambda < 1.0:
        mixed = cutmix(tf, mixed, cutmix_lambda, seed)
    return mixed


def mixup(tf: Any, mixed: Mixed, coefficients: Any) -> Mixed:
    """Return each image times its coefficient, plus the previous image times the rest."""
    images, labels, shares = mixed
    # The shares are rounded to the images' dtype; from 0.5 on, 1 - kept is exact.
    kept = tf.cast(coefficients, images.dtype)
    factor = tf.reshape(kept, [-1, 1, 1, 1])
    blended = factor * images + (1.0 - factor) * tf.roll(images, 1, axis=0)
    kept = tf.cast(kept, tf.float32)[:, tf.newaxis]
    return blended, *_joined(tf, labels, shares, kept, 1)


def cutmix(tf: Any, mixed: Mixed, cutmix_lambda: float, seed: Any) -> Mixed:
    """Return images with a box pasted from the image two places before.

    The box has the images' proportions and 1 - ``cutmix_lambda`` of their area, to whole pixels. It
    is the same for the whole batch. Its centre is drawn from the whole image and moved until the
    box is inside, so boxes at an edge are more likely.
    """
    images, labels, shares = mixed
    _, height, width, _ = images.shape
    side = math.sqrt(1.0 - cutmix_lambda)
    box = (round(height * side), round(width * side))
    # Not one place: a mixup partner would be both blended and pasted in.
    places = 2 if images.shape[0] > 2 else 1
    centre = tf.random.stateless_uniform([2], seed)
    rows = _inside(tf, centre[0], height, box[0])
    columns = _inside(tf, centre[1], width, box[1])
    mask = tf.logical_and(rows[:, tf.newaxis], columns)[tf.newaxis, ..., tf.newaxis]
    pasted = tf.where(mask, tf.roll(images, places, axis=0), images)
    kept = tf.constant(1.0 - box[0] * box[1] / (height * width), tf.float32)
    return pasted, *_joined(tf, labels, shares, kept, places)


def _inside(tf: Any, centre: Any, length: int, part: int) -> Any:
    """Return bool [length], true for ``part`` places around a centre in [0, 1)."""
    start = tf.cast(tf.round(centre * float(length) - part / 2), tf.int32)
    start = tf.clip_by_value(start, 0, length - part)
    places = tf.range(length)
    return tf.logical_and(places >= start, places < start + part)


def _joined(tf: Any, labels: Any, shares: Any, kept: Any, places: int) -> Tuple[Any, Any]:
    """Return labels and shares joined with those of the images ``places`` before."""
    labels = tf.concat([labels, tf.roll(labels, places, axis=0)], axis=1)
    others = tf.roll(shares, places, axis=0)
    return labels, tf.concat([kept * shares, (1.0 - kept) * others], axis=1)
