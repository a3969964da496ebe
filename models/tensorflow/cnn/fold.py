"""Networks for inference: constant weights, and batch norms folded into convolutions."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

from ipubench.models.tensorflow.cnn.operations import (
    ACTIVATIONS,
    convolve,
    fuses_grouped_convolutions,
)
from ipubench.models.tensorflow.cnn.run import ForwardPass
from ipubench.models.tensorflow.copies import copy_with


class FoldedConvolution:
    """``conv`` with a folded kernel, a bias and an activation; fused into one on a CPU."""

    def __init__(self, tf: Any, kernel: Any, bias: Any, conv: Any, activation: str) -> None:
        self._tf = tf
        self._kernel = kernel
        # Not a constant: TensorFlow drops the addition of a zero constant, which biases are
        # initially, and then fuses nothing (ResNet-50: half the speed).
        self._bias = tf.Variable(bias, trainable=False)
        self._stride, self._padding = conv.stride, conv.padding
        self._activation = ACTIVATIONS[activation]
        # Decided here, because no trial can run while TensorFlow traces a call.
        self._fuses_groups = fuses_grouped_convolutions(tf)

    def __call__(self, images: Any, run: ForwardPass) -> Any:
        """Return the activations."""
        tf = self._tf
        sums = convolve(tf, images, tf.constant(self._kernel), self._stride, False, self._padding)
        bias = tf.convert_to_tensor(self._bias)
        if images.shape[3] != self._kernel.shape[2] and not self._fuses_groups:
            # TensorFlow does not fuse a plain addition.
            return self._activation(tf, sums + bias)
        return self._activation(tf, tf.nn.bias_add(sums, bias))


def fold(tf: Any, classifier: Any, dtype: Any) -> Callable[[Any], Any]:
    """Return images [N, H, W, C] of ``dtype`` -> logits, for inference.

    Batch norms are folded in float64, and weights rounded once to ``dtype``; group norms stay. The
    classifier itself is unchanged.
    """

    def folded(part: Any) -> Any:
        if isinstance(part, tf.Variable):
            return tf.constant(_rounded(tf, part.numpy(), dtype))
        if not _folds(part):
            return part
        norm = part.norm
        gamma, beta, mean, variance = (
            np.asarray(value.numpy(), np.float64)
            for value in (norm.gamma, norm.beta, norm.moving_mean, norm.moving_variance)
        )
        scale = gamma / np.sqrt(variance + norm.epsilon)
        kernel = np.asarray(part.conv.kernel.numpy(), np.float64) * scale
        return FoldedConvolution(
            tf,
            _rounded(tf, kernel, dtype),
            _rounded(tf, beta - mean * scale, dtype),
            part.conv,
            part.activation,
        )

    network = copy_with(tf, classifier, folded)
    return lambda images: network(images, ForwardPass(training=False))


def folded_norms(classifier: Any) -> int:
    """Return how many norms of a classifier :func:`fold` folds into convolutions."""
    return sum(_folds(part) for part in classifier.submodules)


def _folds(part: Any) -> bool:
    """Return whether a layer is a convolution with a norm that can be folded into it."""
    from ipubench.models.tensorflow.cnn.layers import BatchNorm, ConvNorm

    return isinstance(part, ConvNorm) and isinstance(part.norm, BatchNorm)


def _rounded(tf: Any, values: Any, dtype: Any) -> Any:
    """Return a NumPy array of TensorFlow's ``dtype``."""
    return np.asarray(values).astype(tf.as_dtype(dtype).as_numpy_dtype)
