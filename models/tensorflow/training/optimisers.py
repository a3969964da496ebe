"""Optimisers on master weights: SGD, momentum, RMSprop, LARS, with the formulas of TensorFlow 1.

They can also keep an average of the weights over a run.

Arithmetic is in float32, and results are rounded once to their dtype. On a host XLA compiles the
update of large variables: for a ResNet-50 on two cores it takes a third of the time of TensorFlow's
plain operations, and half to two thirds of that of its ``ResourceApply...`` operations.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Sequence, Tuple, Type

#: (index of a variable, the tensor that updates it, a value for all) -> None; assigns.
Apply = Callable[[int, Any, Any], None]
# XLA compiles a kernel for each variable, small or large. An EfficientNet-B4 with RMSprop has 418:
# if all are fused, compiling takes 127 s in TensorFlow 2.6.5 (11 s in 2.21). With this limit it
# takes 8 s, including 5 s in TensorFlow itself, and covers 9 of 10 weights.
FUSED_FROM = 1 << 16  # elements


def for_each(tf: Any, apply: Apply, tensors: Sequence[Any], shared: Any, fuse: bool) -> None:
    """Call ``apply(index, tensor, shared)`` for each tensor; with ``fuse`` XLA runs large ones.

    Call it inside a tf.function: called eagerly, it would compile each time.
    """
    large = [i for i, t in enumerate(tensors) if fuse and t.shape.num_elements() >= FUSED_FROM]

    def fused(shared: Any, *chosen: Any) -> None:
        for index, tensor in zip(large, chosen):
            apply(index, tensor, shared)

    if large:
        compiled = tf.function(fused, jit_compile=True, autograph=False)
        compiled(shared, *(tensors[index] for index in large))
    for index in sorted(set(range(len(tensors))) - set(large)):
        apply(index, tensors[index], shared)


#: Variables whose name contains one of these have no weight decay, and under LARS the plain rate.
SKIPPED = ("beta", "gamma", "bias")


class Optimiser:
    """Plain gradient descent (SGD): w -= rate * g. Also the base of all optimisers.

    g = gradient / ``loss_scaling`` + ``weight_decay`` * w, the last term (L2) only for variables
    whose names contain no word of ``skipped``. ``fuse`` is for a host; an IPU's program is compiled
    as a whole.
    """

    #: The initial value of each slot of a variable.
    initial: Tuple[float, ...] = ()
    #: Variables that belong to no weight; made with the slots.
    variables: Sequence[Any] = ()

    def __init__(
        self,
        tf: Any,
        *,
        weight_decay: float = 0.0,
        loss_scaling: float = 1.0,
        skipped: Sequence[str] = SKIPPED,
        fuse: bool = True,
    ) -> None:
        self._tf = tf
        self._weight_decay = weight_decay
        self._loss_scaling = loss_scaling
        self._unscale: Any = 1.0 / loss_scaling
        self._skipped = tuple(skipped)
        self._fuse = fuse

    def slots(self, variables: Sequence[Any]) -> List[List[Any]]:
        """Return new state: for each variable a list of tf.Variable of its shape and dtype."""
        tf = self._tf
        return [
            [
                tf.Variable(tf.fill(v.shape, tf.cast(value, v.dtype)), trainable=False)
                for value in self.initial
            ]
            for v in variables
        ]

    def scaled(self, loss: Any) -> Any:
        """Return the loss to differentiate, a floating scalar: times ``loss_scaling``."""
        return loss * self._loss_scaling

    def update(
        self,
        variables: Sequence[Any],
        gradients: Sequence[Any],
        slots: Sequence[Sequence[Any]],
        rate: Any,
    ) -> None:
        """Assign one update's new variables and slots.

        ``gradients`` are those of the loss times ``loss_scaling``, of any floating dtype. ``rate``
        is a float32 scalar tensor. Call it inside a tf.function.
        """
        tf = self._tf

        def apply(index: int, gradient: Any, rate: Any) -> None:
            variable, own = variables[index], slots[index]
            weight = tf.cast(variable, tf.float32)
            slope = tf.cast(gradient, tf.float32) * self._unscale
            state = [tf.cast(slot, tf.float32) for slot in own]
            decayed = not any(word in variable.name for word in self._skipped)
            weight, *state = self._step(weight, slope, state, rate, decayed)
            for target, value in zip((variable, *own), (weight, *state)):
                target.assign(tf.cast(value, target.dtype))

        for_each(tf, apply, gradients, rate, self._fuse)

    def _step(self, weight: Any, slope: Any, state: List[Any], rate: Any, decayed: bool) -> Any:
        """Return the new weight, then the new state; all float32."""
        return (weight - rate * self._with_decay(weight, slope, decayed),)

    def _with_decay(self, weight: Any, slope: Any, decayed: bool) -> Any:
        return slope + self._weight_decay * weight if decayed and self._weight_decay else slope


class Momentum(Optimiser):
    """a = momentum * a + g; w -= rate * a."""

    initial: Tuple[float, ...] = (0.0,)

    def __init__(self, tf: Any, *, momentum: float, **options: Any) -> None:
        super().__init__(tf, **options)
        self._momentum = momentum

    def _step(self, weight: Any, slope: Any, state: List[Any], rate: Any, decayed: bool) -> Any:
        total = self._momentum * state[0] + self._with_decay(weight, slope, decayed)
        return weight - rate * total, total


class RMSprop(Momentum):
    """s = decay * s + (1 - decay) * g^2; m = momentum * m + rate * g / sqrt(s + epsilon); w -= m.

    As in TensorFlow 1, s starts at 1, and epsilon is inside the root.
    """

    initial: Tuple[float, ...] = (1.0, 0.0)

    def __init__(
        self, tf: Any, *, rmsprop_decay: float, rmsprop_epsilon: float, **options: Any
    ) -> None:
        super().__init__(tf, **options)
        self._decay = rmsprop_decay
        self._epsilon = rmsprop_epsilon

    def _step(self, weight: Any, slope: Any, state: List[Any], rate: Any, decayed: bool) -> Any:
        slope = self._with_decay(weight, slope, decayed)
        square = self._decay * state[0] + (1.0 - self._decay) * slope * slope
        scaled = slope * self._tf.math.rsqrt(square + self._epsilon)
        total = self._momentum * state[1] + rate * scaled
        return weight - total, square, total


class Lars(Momentum):
    """Momentum with a rate per variable: rate * eeta |w| / (|g| + weight_decay |w| + eps).

    |g| is without weight decay. If |w| or |g| is zero, and for skipped names, the rate is the
    plain one (You et al., 2017, arXiv 1708.03888, in the form of TensorFlow 1's LARSOptimizer,
    whose momentum accumulates gradients, not updates).
    """

    def __init__(self, tf: Any, *, lars_eeta: float, lars_epsilon: float, **options: Any) -> None:
        super().__init__(tf, **options)
        self._eeta = lars_eeta
        self._epsilon = lars_epsilon

    def _step(self, weight: Any, slope: Any, state: List[Any], rate: Any, decayed: bool) -> Any:
        if decayed:
            decay, epsilon = self._weight_decay, self._epsilon
            rate = rate * lars_trust(self._tf, weight, slope, self._eeta, decay, epsilon)
        return super()._step(weight, slope, state, rate, decayed)


def lars_trust(
    tf: Any, weight: Any, slope: Any, eeta: float, weight_decay: float, epsilon: float
) -> Any:
    """Return eeta |w| / (|g| + weight_decay |w| + epsilon), or 1 if |w| or |g| is zero."""
    weights, slopes = tf.norm(weight), tf.norm(slope)
    below = slopes + weight_decay * weights + epsilon
    usable = tf.logical_and(weights > 0.0, slopes > 0.0)
    return tf.where(usable, eeta * tf.math.divide_no_nan(weights, below), 1.0)


OPTIMISERS: Dict[str, Type[Optimiser]] = {
    "SGD": Optimiser,
    "momentum": Momentum,
    "RMSprop": RMSprop,
    "LARS": Lars,
}


def default_rmsprop_decay(global_batch: int, exponent: int) -> float:
    """Return 1 - 2^exponent * global batch size, which is a valid decay only in (0, 1)."""
    try:
        return 1.0 - math.ldexp(global_batch, exponent)
    except OverflowError:
        return -math.inf


class WeightAverages:
    """a = decay * a + (1 - decay) * w, in float32; the initial weights are the first average."""

    def __init__(
        self, tf: Any, variables: Sequence[Any], decay: float, *, fuse: bool = True
    ) -> None:
        self._tf = tf
        self._decay = decay
        self._fuse = fuse
        #: One float32 variable for each variable.
        self.averages: List[Any] = [
            tf.Variable(tf.cast(variable, tf.float32), trainable=False) for variable in variables
        ]

    def update(self, variables: Sequence[Any]) -> None:
        """Add the weights to the average. Call it inside a tf.function."""
        tf = self._tf

        def apply(index: int, weight: Any, decay: Any) -> None:
            average = self.averages[index]
            average.assign(decay * average + (1.0 - decay) * tf.cast(weight, tf.float32))

        weights = [tf.convert_to_tensor(variable) for variable in variables]
        for_each(tf, apply, weights, tf.constant(self._decay), self._fuse)
