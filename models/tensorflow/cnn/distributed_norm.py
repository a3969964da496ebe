"""Batch norms whose batch is that of several replicas, each of which sees only its own part."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from ipubench.models.tensorflow.cnn.operations import (
    batch_norm,
    batch_statistics,
    channel_sums,
    pixels_of,
)


def group_statistics(
    tf: Any,
    images: Any,
    gamma: Any,
    beta: Any,
    epsilon: float,
    replicas: int,
    reduce: Callable[[Any], Any],
) -> Tuple[Any, Any, Any]:
    """Normalise images by the batch of all ``replicas``; return as batch_statistics does.

    ``reduce`` is the mean over the replicas, whose batches have one size; ``gamma`` and ``beta``
    are float32. The gradient of ``gamma`` and ``beta`` is this replica's share: the mean over the
    replicas is that of the one batch. Only the images that are returned have a gradient.
    """
    count = tf.size(images) // images.shape[3]
    own = tf.cast(count, tf.float32)
    whole = own * replicas

    def statistics(images: Any) -> Tuple[Any, Any]:
        """Return the mean and the biased variance of all replicas, [C] each."""
        # The fused operation takes a sixth of the time of tf.nn.moments; its outputs go unused.
        _, mean, variance = batch_statistics(tf, images, gamma, beta, epsilon)
        of_all = reduce(mean)
        # Squares of differences of means only: no large mean cancels.
        variance = variance * ((own - 1.0) / own) + tf.square(mean - of_all)
        return of_all, reduce(variance)

    @tf.custom_gradient
    def normalise(images: Any, gamma: Any, beta: Any) -> Tuple[Any, Callable[..., Any]]:
        mean, variance = statistics(images)
        outputs = batch_norm(tf, images, gamma, beta, mean, variance, epsilon)

        def gradient(slopes: Any, *_: Any) -> Tuple[Any, Any, Any]:
            inverse = tf.math.rsqrt(variance + epsilon)
            pixels = (tf.cast(pixels_of(tf, images), tf.float32) - mean) * inverse
            slope = tf.cast(pixels_of(tf, slopes), tf.float32)
            of_beta = tf.reduce_sum(channel_sums(tf, slope), 0)
            of_gamma = tf.reduce_sum(channel_sums(tf, slope * pixels), 0)
            along = reduce(tf.stack([of_beta, of_gamma])) / own
            inner = (slope - along[0] - pixels * along[1]) * (gamma * inverse)
            of_images = tf.reshape(tf.cast(inner, images.dtype), tf.shape(images))
            return of_images, of_gamma, of_beta

        return (outputs, mean, variance), gradient

    outputs, mean, variance = normalise(images, gamma, beta)
    return outputs, mean, variance * (whole / tf.maximum(whole - 1.0, 1.0))
