"""Makes the layers of a network: their dtype, their seeded initial weights, their norm.

Imported only if TensorFlow is loaded already.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

import numpy as np
import tensorflow as tf

from ipubench.models.tensorflow.cnn.layers import (
    BatchNorm,
    ConvBias,
    ConvNorm,
    Convolution,
    Dense,
    GroupNorm,
    GroupNormFunction,
    Layer,
)


class LayerFactory:
    """Makes layers with variables of ``dtype``; moving averages are never bfloat16.

    Convolution kernels are drawn from N(0, gain / fan-in), dense ones after Glorot and Bengio
    (2010). ``norm`` is "batch" or "group"; ``group_norm`` replaces ours. ``channels_per_group`` may
    determine a group norm's ``groups``.
    """

    def __init__(
        self,
        dtype: Any,
        seed: int,
        gain: float,
        *,
        norm: str,
        groups: int,
        decay: float,
        epsilon: float,
        group_norm: Optional[GroupNormFunction],
        channels_per_group: int = 0,
        replica_group: int = 1,
    ) -> None:
        self._dtype = dtype
        self._random = np.random.default_rng(seed)
        self._gain = gain
        self._norm = norm
        self._groups = groups
        self._decay = decay
        self._epsilon = epsilon
        self._group_norm = group_norm
        self._channels_per_group = channels_per_group
        self._replica_group = replica_group

    def conv_norm(
        self,
        path: str,
        inputs: int,
        outputs: int,
        size: int = 1,
        stride: int = 1,
        groups: int = 1,
        activation: str = "",
        gamma: float = 1.0,
        padding: str = "",
        glorot: bool = False,
    ) -> ConvNorm:
        """Return a convolution of size x size in ``groups``, its norm and an activation.

        Raises ValueError if groups do not divide the channels.
        """
        if inputs % groups or outputs % groups:
            raise ValueError(
                f"{groups} groups do not divide the {inputs} -> {outputs} channels of the "
                f"convolution {path}; choose another group_dim or convolution_groups"
            )
        shape = (size, size, inputs // groups, outputs)
        if glorot:
            conv = self._glorot_convolution(path, shape, stride, padding)
        else:
            deviation = (self._gain / (shape[0] * shape[1] * shape[2])) ** 0.5
            kernel = deviation * self._random.standard_normal(shape, dtype=np.float32)
            conv = Convolution(self._variable(f"{path}/kernel", kernel), stride, padding)
        return ConvNorm(conv, self.norm(path, outputs, gamma), activation)

    def conv_bias(self, path: str, inputs: int, outputs: int, size: int) -> ConvBias:
        """Return a convolution without padding, a bias and a ReLU, with Glorot's kernel."""
        conv = self._glorot_convolution(path, (size, size, inputs, outputs), 1, "VALID")
        return ConvBias(conv, self._variable(f"{path}/bias", np.zeros(outputs)))

    def dense(self, path: str, inputs: int, outputs: int) -> Dense:
        """Return a dense layer."""
        return Dense(
            self._variable(f"{path}/kernel", self._glorot((inputs, outputs))),
            self._variable(f"{path}/bias", np.zeros(outputs)),
        )

    def norm(self, path: str, channels: int, gamma: float = 1.0) -> Layer:
        """Return a norm. Raises ValueError if groups do not divide the channels."""
        scale = self._variable(f"{path}/gamma", np.full(channels, gamma))
        shift = self._variable(f"{path}/beta", np.zeros(channels))
        if self._norm == "batch":
            mean = self._average(f"{path}/moving_mean", np.zeros(channels))
            variance = self._average(f"{path}/moving_variance", np.ones(channels))
            return BatchNorm(
                scale, shift, mean, variance, self._decay, self._epsilon, self._replica_group
            )
        groups = min(self._groups or channels // self._channels_per_group, channels)
        if channels % groups:
            raise ValueError(
                f"groups={groups} of the group norm do not divide the {channels} channels of {path}"
            )
        return GroupNorm(scale, shift, groups, self._epsilon, self._group_norm)

    def _glorot_convolution(
        self, path: str, shape: Tuple[int, ...], stride: int, padding: str
    ) -> Convolution:
        kernel = self._variable(f"{path}/kernel", self._glorot(shape))
        return Convolution(kernel, stride, padding)

    def _glorot(self, shape: Tuple[int, ...]) -> Any:
        """Return a kernel [..., inputs, outputs] after Glorot and Bengio."""
        pixels = int(np.prod(shape[:-2]))
        limit = (6.0 / (pixels * (shape[-2] + shape[-1]))) ** 0.5
        return self._random.uniform(-limit, limit, shape)

    def _variable(self, name: str, values: Any) -> Any:
        return tf.Variable(tf.cast(np.asarray(values, np.float32), self._dtype), name=name)

    def _average(self, name: str, values: Any) -> Any:
        """Return the variable of a moving average; float32 instead of bfloat16.

        bfloat16 would round changes below 0.2 to 0.4% of a value away, and an average changes by a
        few per cent of its difference.
        """
        dtype = tf.float32 if self._dtype == tf.bfloat16 else self._dtype
        values = tf.cast(np.asarray(values, np.float32), dtype)
        return tf.Variable(values, trainable=False, name=name)
