"""The operations of the networks, chosen for their speed on a CPU. Images are NHWC."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Callable, Dict, Tuple


def convolve(
    tf: Any, images: Any, kernel: Any, stride: int, training: bool, padding: str = ""
) -> Any:
    """Convolve images [N, H, W, C] with a kernel [k, k, C / groups, outputs], k odd.

    Padded by k // 2 on all four sides, or by TensorFlow's ``padding``, "SAME" or "VALID". Only
    ``training`` needs a gradient.
    """
    size, _, depth, outputs = kernel.shape
    if not padding:
        images, padding = _padded(tf, images, size, stride)
    if training and depth == 1 and images.shape[3] == outputs:
        return _depthwise(tf, images, kernel, stride, padding)
    if size == 1 and depth == images.shape[3] and training and images.dtype == tf.bfloat16:
        return _pointwise(tf, images, kernel, stride)
    return tf.nn.conv2d(images, kernel, stride, padding)


def has_grouped_gradient(tf: Any) -> bool:
    """Return whether TensorFlow can differentiate grouped convolutions: on a CPU with oneDNN it
    can.

    Elsewhere only XLA has their gradient (TensorFlow 2.6, processors without oneDNN).
    """
    kernel = tf.ones([1, 1, 1, 2])
    try:
        with tf.GradientTape() as tape:
            tape.watch(kernel)
            output = tf.nn.conv2d(tf.ones([1, 1, 1, 2]), kernel, 1, "SAME")
        tape.gradient(output, kernel)
    except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError):
        return False
    return True


@lru_cache(maxsize=None)
def fuses_grouped_convolutions(tf: Any) -> bool:
    """Return whether a grouped convolution works when TensorFlow fuses it with a bias.

    On a CPU only oneDNN has such an operation, and without it the fused convolution fails.
    TensorFlow uses oneDNN by default since version 2.9 on CPUs with VNNI, bfloat16 or AMX;
    TF_ENABLE_ONEDNN_OPTS overrides that. So this tries it, once per process.
    """
    return _runs_grouped_and_biased(tf, tf.float32)


@lru_cache(maxsize=None)
def has_bfloat16_convolutions(tf: Any) -> bool:
    """Return whether TensorFlow convolves bfloat16 images with float32 sums, as oneDNN does.

    Without oneDNN, TensorFlow 2.6 fails or never returns, and later versions round partial sums to
    bfloat16, with an error that grows with the channels (256: 2%). oneDNN fails on CPUs without
    bfloat16 instructions.
    """
    return fuses_grouped_convolutions(tf) and _runs_grouped_and_biased(tf, tf.bfloat16)


def _runs_grouped_and_biased(tf: Any, dtype: Any) -> bool:
    """Return whether a fused convolution with two groups and a bias works (30 ms)."""

    @tf.function(autograph=False)
    def convolution(images: Any, kernel: Any, bias: Any) -> Any:
        return tf.nn.bias_add(tf.nn.conv2d(images, kernel, 1, "SAME"), bias)

    try:
        convolution(*(tf.ones(shape, dtype) for shape in ([1, 1, 1, 2], [1, 1, 1, 2], [2])))
    except tf.errors.OpError:
        return False
    return True


def ungrouped(tf: Any, kernel: Any, groups: int) -> Any:
    """Return a grouped kernel [k, k, C / groups, outputs] as a dense one with zeros."""
    _, _, depth, outputs = kernel.shape
    of_input = tf.repeat(tf.range(groups), depth)
    of_output = tf.repeat(tf.range(groups), outputs // groups)
    mask = tf.cast(of_input[:, None] == of_output[None, :], kernel.dtype)
    return tf.tile(kernel, [1, 1, groups, 1]) * mask


def max_pool(tf: Any, images: Any) -> Any:
    """Return the maxima of 3 x 3 windows, 2 apart, of images without negative values."""
    images, padding = _padded(tf, images, 3, 2)
    return tf.nn.max_pool2d(images, 3, 2, padding)


def identity_shortcut(tf: Any, images: Any, stride: int, channels: int) -> Any:
    """Return each ``stride``-th row and column, with zeros added to get ``channels``."""
    missing = channels - images.shape[3]
    return tf.pad(_every(tf, images, stride), [[0, 0], [0, 0], [0, 0], [0, missing]])


def spatial_mean(tf: Any, images: Any, on_ipu: bool) -> Any:
    """Return the means [N, C] of each image's channels, rounded once.

    A CPU sums bfloat16 in float32, and XLA, also on an IPU, does so for float16. Plain TensorFlow
    sums float16 in float16, which overflows.
    """
    if images.dtype == tf.float16 and not on_ipu:
        return tf.cast(tf.reduce_mean(tf.cast(images, tf.float32), [1, 2]), tf.float16)
    return tf.reduce_mean(images, [1, 2])


ACTIVATIONS: Dict[str, Callable[[Any, Any], Any]] = {
    "": lambda tf, images: images,
    "relu": lambda tf, images: tf.nn.relu(images),
    "swish": lambda tf, images: images * tf.sigmoid(images),
}


def _depthwise(tf: Any, images: Any, kernel: Any, stride: int, padding: str) -> Any:
    """Convolve each channel alone; XLA turns it into a grouped convolution.

    TensorFlow 2.21's grouped convolution is faster forwards (EfficientNet-B0: 12%), but has no fast
    gradient, and in TensorFlow 2.6 no gradient.
    """
    size, channels = kernel.shape[0], kernel.shape[3]
    shape, strides = [size, size, channels, 1], [1, stride, stride, 1]

    def forward(images: Any, kernel: Any) -> Any:
        return tf.nn.depthwise_conv2d(images, tf.reshape(kernel, shape), strides, padding)

    if images.dtype != tf.bfloat16:
        return forward(images, kernel)

    # TensorFlow's own gradient takes 3 to 6 times as long in bfloat16 as in float32.
    @tf.custom_gradient
    def convolution(images: Any, kernel: Any) -> Tuple[Any, Callable[[Any], Any]]:
        def gradient(slopes: Any) -> Tuple[Any, Any]:
            wide, slopes = tf.cast(images, tf.float32), tf.cast(slopes, tf.float32)
            filters = tf.cast(tf.reshape(kernel, shape), tf.float32)
            of_images = tf.raw_ops.DepthwiseConv2dNativeBackpropInput(
                input_sizes=tf.shape(wide),
                filter=filters,
                out_backprop=slopes,
                strides=strides,
                padding=padding,
            )
            of_kernel = tf.raw_ops.DepthwiseConv2dNativeBackpropFilter(
                input=wide,
                filter_sizes=shape,
                out_backprop=slopes,
                strides=strides,
                padding=padding,
            )
            of_kernel = tf.reshape(of_kernel, tf.shape(kernel))
            return tf.cast(of_images, images.dtype), tf.cast(of_kernel, kernel.dtype)

        return forward(images, kernel), gradient

    return convolution(images, kernel)


def _pointwise(tf: Any, images: Any, kernel: Any, stride: int) -> Any:
    """Convolve with a kernel [1, 1, C, outputs], whose gradient is a matrix product.

    In bfloat16 on a CPU it takes a half to a quarter of the time of the convolution's own gradient.
    """
    strides = [1, stride, stride, 1]

    @tf.custom_gradient
    def convolution(images: Any, kernel: Any) -> Tuple[Any, Callable[[Any], Any]]:
        def gradient(slopes: Any) -> Tuple[Any, Any]:
            of_images = tf.raw_ops.Conv2DBackpropInput(
                input_sizes=tf.shape(images),
                filter=kernel,
                out_backprop=slopes,
                strides=strides,
                padding="SAME",
            )
            _, _, inputs, outputs = kernel.shape
            seen = tf.reshape(_every(tf, images, stride), [-1, inputs])
            of_kernel = tf.matmul(seen, tf.reshape(slopes, [-1, outputs]), transpose_a=True)
            return of_images, tf.reshape(of_kernel, kernel.shape)

        return tf.nn.conv2d(images, kernel, stride, "SAME"), gradient

    return convolution(images, kernel)


def _every(tf: Any, images: Any, stride: int) -> Any:
    """Return each ``stride``-th row and column, starting with the first.

    A slice of a reshaped image copies whole pixels; one with strides takes ten times as long.
    """
    _, height, width, channels = images.shape
    if stride == 1:
        return images
    if height % stride or width % stride:
        return images[:, ::stride, ::stride]
    rows, columns = height // stride, width // stride
    shape = [-1, rows, stride, columns, stride * channels]
    return tf.reshape(images, shape)[:, :, 0, :, :channels]


def _padded(tf: Any, images: Any, size: int, stride: int) -> Tuple[Any, str]:
    """Return images and the padding that makes windows start k // 2 before the image.

    "SAME" does so with stride 1. Explicit padding as an argument of the convolution has no gradient
    with groups.
    """
    if stride == 1 or size == 1:
        return images, "SAME"
    sides = [size // 2, size // 2]
    return tf.pad(images, [[0, 0], sides, sides, [0, 0]]), "VALID"
