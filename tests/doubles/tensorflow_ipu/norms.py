"""The SDK's group norm in plain operations."""

from __future__ import annotations

from typing import Any

from tests.doubles.tensorflow_ipu.program import without_gradient
from tests.doubles.tensorflow_ipu.record import ONE_OPERATION, recorded


@recorded
def group_norm(
    inputs: Any,
    groups: int = 2,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1.53e-05,
    param_initializers: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    training: bool = True,
    trainable: bool = True,
    scope: Any = None,
    strided_channel_grouping: bool = True,
) -> Any:
    """Normalise images [N, H, W, C]; if strided, group g has the channels g, g + groups, ..."""
    import tensorflow as tf

    assert channels_axis == -1 and center and scale and param_initializers is None
    if epsilon < 1.53e-5:
        tf.get_logger().warning("The epsilon value of group_norm is too low")
    _, height, width, channels = inputs.shape
    given = {}
    with tf.compat.v1.variable_scope(scope, "GroupNorm", [inputs], reuse=reuse):
        for name in ("beta", "gamma"):
            given[name] = tf.compat.v1.get_variable(
                name, shape=[channels], dtype=inputs.dtype, trainable=trainable
            )
            assert given[name].dtype == inputs.dtype
    size = channels // groups
    split = [size, groups] if strided_channel_grouping else [groups, size]

    def norm(inputs: Any, gamma: Any, beta: Any) -> Any:
        pixels = tf.reshape(tf.cast(inputs, tf.float32), [-1, height, width, *split])
        axes = [1, 2, 3 if strided_channel_grouping else 4]
        mean, variance = tf.nn.moments(pixels, axes, keepdims=True)
        normal = tf.reshape((pixels - mean) * tf.math.rsqrt(variance + epsilon), tf.shape(inputs))
        return tf.cast(normal, inputs.dtype) * gamma + beta

    norm.__name__ = f"GroupNorm{ONE_OPERATION}"
    result = tf.function(norm, autograph=False)(inputs, given["gamma"], given["beta"])
    # Only the training operation has a gradient (ipu/ops/normalization_ops_grad.py).
    return result if training else without_gradient("PopnnGroupNormInference", result)
