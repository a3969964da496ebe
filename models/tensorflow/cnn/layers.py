"""The layers of the convolutional networks.

Variables keep their dtype and are cast to the images' dtype when used. Images are NHWC. Imported
only if TensorFlow is loaded already, because a module class needs it.
"""

from __future__ import annotations

from typing import Any, Callable, List, Optional

import numpy as np
import tensorflow as tf

from ipubench.models.tensorflow.cnn.norms import (
    batch_norm,
    batch_statistics,
    group_norm,
    group_statistics,
)
from ipubench.models.tensorflow.cnn.operations import (
    ACTIVATIONS,
    convolve,
    spatial_mean,
    ungrouped,
)
from ipubench.models.tensorflow.cnn.run import ForwardPass, through

#: (images, gamma [C], beta [C], groups, epsilon) -> images; replaces our group norm.
GroupNormFunction = Callable[[Any, Any, Any, int, float], Any]
#: Distance of the layers' seeds, so that no two layers share a draw at neighbouring seeds.
_SEED_STRIDE = 0x1E3779B1


class Layer(tf.Module):
    """A part of a network: images in, images out."""

    def __call__(self, images: Any, run: ForwardPass) -> Any:
        """Return the layer's output."""
        raise NotImplementedError


class Convolution(Layer):
    """A convolution without bias; ``kernel`` [k, k, inputs / groups, outputs], k odd.

    Padded by k // 2 on all sides, or by TensorFlow's ``padding``, "SAME" or "VALID".
    """

    def __init__(self, kernel: Any, stride: int, padding: str = "") -> None:
        super().__init__()
        self.kernel = kernel
        self.stride = stride
        self.padding = padding

    def __call__(self, images: Any, run: ForwardPass) -> Any:
        """Return the convolution."""
        kernel = cast(self.kernel, images.dtype)
        groups = images.shape[3] // kernel.shape[2]
        if run.dense_groups and 1 < groups < kernel.shape[3]:
            kernel = ungrouped(tf, kernel, groups)
        return convolve(tf, images, kernel, self.stride, run.training, self.padding)


class BatchNorm(Layer):
    """A batch norm; its averages move by 1 - ``decay`` towards a batch's statistics.

    In training, ``replica_group`` replicas form one batch if the run has ``reduce``.
    """

    def __init__(
        self,
        gamma: Any,
        beta: Any,
        mean: Any,
        variance: Any,
        decay: float,
        epsilon: float,
        replica_group: int = 1,
    ) -> None:
        super().__init__()
        self.gamma, self.beta = gamma, beta
        self.moving_mean, self.moving_variance = mean, variance
        self.decay, self.epsilon = decay, epsilon
        self.replica_group = replica_group

    def __call__(self, images: Any, run: ForwardPass) -> Any:
        """Normalise by the batch's statistics in training, otherwise by the moving averages."""
        dtype = images.dtype if run.narrow_norms else tf.float32
        gamma, beta = cast(self.gamma, dtype), cast(self.beta, dtype)
        if not run.training:
            mean, variance = cast(self.moving_mean, dtype), cast(self.moving_variance, dtype)
            return batch_norm(tf, images, gamma, beta, mean, variance, self.epsilon)
        if run.reduce is None or self.replica_group == 1:
            images, mean, variance = batch_statistics(tf, images, gamma, beta, self.epsilon)
        else:
            images, mean, variance = group_statistics(
                tf, images, gamma, beta, self.epsilon, self.replica_group, run.reduce
            )
        run.statistics.append((self, mean, variance))
        return images

    def update_moving_averages(self, mean: Any, variance: Any) -> None:
        """Move the moving averages towards a batch's mean and variance."""
        for moving, value in ((self.moving_mean, mean), (self.moving_variance, variance)):
            now = cast(moving, tf.float32)
            moved = now + (1.0 - self.decay) * (tf.cast(value, tf.float32) - now)
            moving.assign(tf.cast(moved, moving.dtype))


class GroupNorm(Layer):
    """A group norm; ``function``, if given, replaces ours."""

    def __init__(
        self,
        gamma: Any,
        beta: Any,
        groups: int,
        epsilon: float,
        function: Optional[GroupNormFunction],
    ) -> None:
        super().__init__()
        self.gamma, self.beta = gamma, beta
        self.groups, self.epsilon = groups, epsilon
        self._function = function

    def __call__(self, images: Any, run: ForwardPass) -> Any:
        """Return the normalised images."""
        gamma, beta = cast(self.gamma, images.dtype), cast(self.beta, images.dtype)
        if self._function is not None:
            return self._function(images, gamma, beta, self.groups, self.epsilon)
        return group_norm(tf, images, gamma, beta, self.groups, self.epsilon, run.training)


class ConvNorm(Layer):
    """A convolution, its norm and an activation: "relu", "swish" or none ("")."""

    def __init__(self, conv: Convolution, norm: Layer, activation: str) -> None:
        super().__init__()
        self.conv = conv
        self.norm = norm
        self.activation = activation

    def __call__(self, images: Any, run: ForwardPass) -> Any:
        """Return the activations."""
        return activate(tf, self.activation, self.norm(self.conv(images, run), run), run)


class ConvBias(Layer):
    """A convolution, a ``bias`` [outputs] and a ReLU."""

    def __init__(self, conv: Convolution, bias: Any) -> None:
        super().__init__()
        self.conv = conv
        self.bias = bias

    def __call__(self, images: Any, run: ForwardPass) -> Any:
        """Return the activations."""
        sums = self.conv(images, run)
        return tf.nn.relu(tf.nn.bias_add(sums, cast(self.bias, images.dtype)))


class Dense(Layer):
    """A fully connected layer: features [N, inputs] -> [N, outputs]."""

    def __init__(self, kernel: Any, bias: Any) -> None:
        super().__init__()
        self.kernel, self.bias = kernel, bias

    def __call__(self, images: Any, run: ForwardPass) -> Any:
        """Return the products plus the bias."""
        products = tf.matmul(images, cast(self.kernel, images.dtype))
        return tf.nn.bias_add(products, cast(self.bias, images.dtype))


class SqueezeExcite(Layer):
    """Scales each channel by a factor that two dense layers compute from the channels' means."""

    def __init__(self, squeeze: Dense, excite: Dense, activation: str) -> None:
        super().__init__()
        self.squeeze, self.excite = squeeze, excite
        self.activation = activation

    def __call__(self, images: Any, run: ForwardPass) -> Any:
        """Return the scaled images."""
        squeezed = self.squeeze(spatial_mean(tf, images, run.on_ipu), run)
        squeezed = activate(tf, self.activation, squeezed, run)
        scales = tf.sigmoid(self.excite(squeezed, run))
        return images * scales[:, None, None, :]


class Dropout(Layer):
    """Zeroes elements in training and scales the rest, to keep the expectation.

    With ``whole``, it zeroes whole images (drop-connect, Huang et al., arXiv 1603.09382).
    ``number`` identifies a layer of the network, so that each draws different random numbers.
    """

    def __init__(self, keep: float, number: int, whole: bool = False) -> None:
        super().__init__()
        self.keep = keep
        self.number = number
        self.whole = whole

    def __call__(self, images: Any, run: ForwardPass) -> Any:
        """Return the images; in training with a seed, some of their elements zeroed."""
        if not run.random or self.keep >= 1.0:
            return images
        shape = tf.shape(images)
        if self.whole:
            shape = tf.concat([shape[:1], tf.ones_like(shape[1:])], 0)
        # The product wraps around, like the sum; only their difference matters.
        offset = np.array([self.number * _SEED_STRIDE % (1 << 31), 0], np.int32)
        draws = tf.random.stateless_uniform(shape, run.seed + offset)
        scales = tf.where(draws < self.keep, 1.0 / self.keep, 0.0)
        return images * tf.cast(scales, images.dtype)


class Unit(Layer):
    """A part of a network at which pipelines can be split; one tensor in, one tensor out."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    @property
    def name(self) -> str:
        """The unit's name; unlike a tf.Module's it may have slashes."""
        return self._path


class Chain(Unit):
    """Layers in sequence."""

    def __init__(self, path: str, layers: List[Layer]) -> None:
        super().__init__(path)
        self.layers = layers

    def __call__(self, images: Any, run: ForwardPass) -> Any:
        """Return the last layer's output."""
        return through(self.layers, images, run)


class Top(Unit):
    """The classifier proper: optional layers on images, channel means, dropout, dense layer."""

    def __init__(
        self, path: str, layers: List[Layer], dropout: Optional[Layer], dense: Dense
    ) -> None:
        super().__init__(path)
        self.layers = layers
        self.dropout = dropout
        self.dense = dense

    def __call__(self, images: Any, run: ForwardPass) -> Any:
        """Return the logits [N, classes]."""
        images = through(self.layers, images, run)
        features = spatial_mean(tf, images, run.on_ipu)
        if self.dropout is not None:
            features = self.dropout(features, run)
        return self.dense(features, run)


class Classifier(tf.Module):
    """A network: images [N, H, W, C] -> logits [N, classes], unit after unit.

    It computes in the images' dtype.
    """

    def __init__(self, units: List[Unit]) -> None:
        super().__init__()
        self.units = units

    def __call__(self, images: Any, run: ForwardPass) -> Any:
        """Return the logits."""
        return through(self.units, images, run)


def activate(tf: Any, name: str, images: Any, run: ForwardPass) -> Any:
    """Return an activation: "relu", "swish" or none ("").

    TensorFlow's own swish keeps one tensor for its gradient, the product with the sigmoid two.
    """
    if name == "swish" and run.on_ipu:
        return tf.nn.swish(images)
    return ACTIVATIONS[name](tf, images)


def cast(variable: Any, dtype: Any) -> Any:
    """Return a variable's value as a tensor of ``dtype``."""
    return tf.cast(tf.convert_to_tensor(variable), dtype)
