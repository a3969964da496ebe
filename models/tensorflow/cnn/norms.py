"""The norms of the networks: over a batch, over the batches of replicas, over groups of channels.

They are chosen for their speed on a CPU. Images are NHWC.
"""

from __future__ import annotations

from typing import Any, Callable, Tuple


def batch_statistics(tf: Any, images: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """Normalise images by their batch; return (images, mean [C], unbiased variance [C]).

    The fused operation takes 16-bit images and float32 ``gamma`` and ``beta`` [C], sums in float32,
    and takes a sixth of the time of tf.nn.moments and tf.nn.batch_normalization. On an IPU
    ``gamma`` and ``beta`` may have the images' type, which is then that of all results.
    """
    empty = tf.zeros([0], gamma.dtype)
    outputs = tf.raw_ops.FusedBatchNormV3(
        x=images, scale=gamma, offset=beta, mean=empty, variance=empty, epsilon=epsilon
    )
    return outputs[:3]


def batch_norm(
    tf: Any, images: Any, gamma: Any, beta: Any, mean: Any, variance: Any, epsilon: float
) -> Any:
    """Normalise images by a given mean [C] and variance [C], of the type of ``gamma``."""
    return tf.raw_ops.FusedBatchNormV3(
        x=images,
        scale=gamma,
        offset=beta,
        mean=mean,
        variance=variance,
        epsilon=epsilon,
        is_training=False,
    )[0]


def group_statistics(
    tf: Any,
    images: Any,
    gamma: Any,
    beta: Any,
    epsilon: float,
    replicas: int,
    reduce: Callable[[Any], Any],
) -> Tuple[Any, Any, Any]:
    """Normalise images by the batch of all ``replicas``. Returns like batch_statistics.

    ``reduce`` is the mean over the replicas, whose batches have one size; ``gamma`` and ``beta``
    are float32. The gradient of ``gamma`` and ``beta`` is this replica's share: its mean over the
    replicas is the gradient of the joint batch. Only the returned images have a gradient.
    """
    count = tf.size(images) // images.shape[3]
    own = tf.cast(count, tf.float32)
    whole = own * replicas

    def statistics(images: Any) -> Tuple[Any, Any]:
        """Return the mean and the biased variance of all replicas, [C] each."""
        # The fused operation takes a sixth of the time of tf.nn.moments; its outputs are unused.
        _, mean, variance = batch_statistics(tf, images, gamma, beta, epsilon)
        of_all = reduce(mean)
        # Squares only of differences of means, so no large mean cancels.
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


def group_norm(
    tf: Any, images: Any, gamma: Any, beta: Any, groups: int, epsilon: float, training: bool
) -> Any:
    """Normalise each image by groups of channels (Wu and He, arXiv 1803.08494).

    Channel c is in group c % groups, as in the SDK's norm: with adjacent channels the network would
    differ from the one on IPUs. ``gamma`` and ``beta`` are [C]; statistics are in float32. Only
    ``training`` needs a gradient.
    """
    norm = _GroupNorm(tf, images.shape, groups, epsilon)
    if not training:
        return norm.forward(images, gamma, beta)[0]

    @tf.custom_gradient
    def normalise(images: Any, gamma: Any, beta: Any) -> Tuple[Any, Callable[[Any], Any]]:
        outputs, mean, inverse = norm.forward(images, gamma, beta)

        def gradient(slopes: Any) -> Tuple[Any, Any, Any]:
            of_images, of_gamma, of_beta = norm.gradient(slopes, images, gamma, mean, inverse)
            return of_images, tf.cast(of_gamma, gamma.dtype), tf.cast(of_beta, beta.dtype)

        return outputs, gradient

    return normalise(images, gamma, beta)


class _GroupNorm:
    """The arithmetic of a group norm of images [N, H, W, C]: means are [N, C], each its group's.

    Sums over pixels as products with ones, and our own gradient, take a quarter of the time of
    tf.nn.moments and its gradient ([16, 56, 56, 256], bfloat16: 83 against 304 ms). Slower: XLA
    (293), reduce_sum (124), avg_pool (87). A batch norm per image is 10% faster but no simpler.

    A pilot, the mean of a group's first row, is subtracted before squaring, so no large mean
    cancels; it takes 5 to 12% of that time. It is at most sqrt(H - 1) deviations from the mean
    (Samuelson's inequality).
    """

    def __init__(self, tf: Any, shape: Any, groups: int, epsilon: float) -> None:
        self._tf = tf
        self._epsilon = epsilon
        self._groups, self._size = groups, shape[3] // groups
        self._height = shape[1]
        self._count = shape[1] * shape[2] * self._size

    def forward(self, images: Any, gamma: Any, beta: Any) -> Tuple[Any, Any, Any]:
        """Return the normalised images, and the means and inverse deviations minus the pilots."""
        tf = self._tf
        pixels = self._shifted(images)
        mean = self._of_groups(channel_sums(tf, pixels))
        squares = self._of_groups(channel_sums(tf, tf.square(pixels)))
        inverse = tf.math.rsqrt(tf.maximum(squares - mean * mean, 0.0) + self._epsilon)
        scale = inverse * tf.cast(gamma, tf.float32)
        shift = tf.cast(beta, tf.float32) - mean * scale
        outputs = pixels * self._of_pixels(scale) + self._of_pixels(shift)
        return tf.reshape(tf.cast(outputs, images.dtype), tf.shape(images)), mean, inverse

    def gradient(
        self, slopes: Any, images: Any, gamma: Any, mean: Any, inverse: Any
    ) -> Tuple[Any, Any, Any]:
        """Return the gradients of the images and, in float32, of ``gamma`` and ``beta``."""
        tf = self._tf
        pixels = self._shifted(images)
        slope = tf.cast(pixels_of(tf, slopes), tf.float32)
        of_beta = channel_sums(tf, slope)
        of_gamma = (channel_sums(tf, slope * pixels) - mean * of_beta) * inverse
        scale = tf.cast(gamma, tf.float32)
        # slope gamma, minus its components along the mean and the normalised images.
        along = -inverse * inverse * self._of_groups(of_gamma * scale)
        constant = -inverse * self._of_groups(of_beta * scale) - along * mean
        inner = slope * self._of_pixels(inverse * scale) + pixels * self._of_pixels(along)
        of_images = tf.cast(inner + self._of_pixels(constant), images.dtype)
        return (
            tf.reshape(of_images, tf.shape(images)),
            tf.reduce_sum(of_gamma, 0),
            tf.reduce_sum(of_beta, 0),
        )

    def _of_groups(self, sums: Any) -> Any:
        """Return the means [N, C] over each channel's group from sums [N, C] over pixels."""
        tf, groups, size = self._tf, self._groups, self._size
        means = tf.reduce_sum(tf.reshape(sums, [-1, size, groups]), 1) / self._count
        return tf.tile(means, [1, size])

    def _of_pixels(self, values: Any) -> Any:
        """Return values [N, C] as [N, 1, C], for all pixels."""
        return self._tf.expand_dims(values, 1)

    def _shifted(self, images: Any) -> Any:
        """Return the pixels [N, H W, C] in float32, minus their pilots."""
        tf = self._tf
        first_row = tf.reduce_sum(tf.cast(images[:, 0], tf.float32), 1)
        pilot = self._height * self._of_groups(first_row)
        return tf.cast(pixels_of(tf, images), tf.float32) - self._of_pixels(pilot)


def pixels_of(tf: Any, images: Any) -> Any:
    """Return images [N, H, W, C] as [N, H W, C]."""
    _, height, width, channels = images.shape
    return tf.reshape(images, [-1, height * width, channels])


def channel_sums(tf: Any, pixels: Any) -> Any:
    """Return the sums [N, C] of pixels [N, P, C], as matrix products."""
    ones = tf.ones([1, pixels.shape[1]], pixels.dtype)
    batch = tf.shape(pixels)[0]
    sums = tf.matmul(tf.broadcast_to(ones, [batch, *ones.shape]), pixels)
    return tf.reshape(sums, [-1, pixels.shape[2]])
