"""Optimisers on master weights: SGD, RMSprop, LARS, with the formulas of TensorFlow 1 and of Keras.

They can also keep an average of the weights over a run.

Arithmetic is in float32, and results are rounded once to their dtype. On a host XLA compiles the
update of large variables: for a ResNet-50 on two cores it takes a third of the time of TensorFlow's
plain operations, and half to two thirds of that of its ``ResourceApply...`` operations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Sequence, Tuple

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


@dataclass(frozen=True)
class Momentum:
    """What past gradients add to a weight's change. Without a ``factor``: w -= rate * g.

    v = factor * v + rate * g; w -= v, or unless ``of_changes``: a = factor * a + g; w -= rate * a.
    This makes a difference while the rate changes.
    """

    factor: Optional[float] = None
    of_changes: bool = False

    @property
    def initial(self) -> Tuple[float, ...]:
        """The initial value of v, if there is one."""
        return () if self.factor is None else (0.0,)

    def moved(self, weight: Any, slope: Any, state: List[Any], rate: Any) -> Tuple[Any, ...]:
        """Return (w,) or (w, v) after a gradient; ``state`` ends with v."""
        if self.of_changes or self.factor is None:
            return self.changed(weight, rate * slope, state)
        total = self.factor * state[-1] + slope
        return weight - rate * total, total

    def changed(self, weight: Any, change: Any, state: List[Any]) -> Tuple[Any, ...]:
        """Return the same after a change of the weight, a gradient times the rate."""
        if self.factor is None:
            return (weight - change,)
        total = self.factor * state[-1] + change
        return weight - total, total


class Optimiser:
    """Gradient descent (SGD), with or without momentum. Also the base of all optimisers.

    g = gradient / ``loss_scaling`` + ``l2`` * w + ``weight_decay`` * w, the last term only for
    variables whose names contain no word of ``skipped``. With ``decoupled`` weight decay momentum
    does not accumulate it, and it acts on all variables: w -= rate * weight_decay * w (Loshchilov
    and Hutter, 2019, arXiv 1711.05101, SGDW). ``fuse`` is for a host; an IPU's program is compiled
    as a whole.
    """

    #: The initial value of each slot of a variable.
    initial: Tuple[float, ...]
    #: Variables that belong to no weight; made with the slots.
    variables: Sequence[Any] = ()

    def __init__(
        self,
        tf: Any,
        *,
        momentum: Momentum = Momentum(),
        weight_decay: float = 0.0,
        decoupled: bool = False,
        l2: float = 0.0,
        loss_scaling: float = 1.0,
        skipped: Sequence[str] = SKIPPED,
        fuse: bool = True,
    ) -> None:
        self._tf = tf
        self._momentum = momentum
        self.initial = momentum.initial
        self._weight_decay = weight_decay
        self._decoupled = decoupled
        self._l2 = l2
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
        slope = self._regularised(weight, slope)
        if not self._decoupled:
            slope = self._with_decay(weight, slope, decayed)
            return self._momentum.moved(weight, slope, state, rate)
        change = rate * slope
        if self._weight_decay:
            weight = weight - rate * self._weight_decay * weight
        return self._momentum.changed(weight, change, state)

    def _regularised(self, weight: Any, slope: Any) -> Any:
        return slope + self._l2 * weight if self._l2 else slope

    def _with_decay(self, weight: Any, slope: Any, decayed: bool) -> Any:
        return slope + self._weight_decay * weight if decayed and self._weight_decay else slope


class RMSprop(Optimiser):
    """s = decay * s + (1 - decay) * g^2; then momentum of the changes, rate * g / root.

    As in TensorFlow 1, s starts at 1, and root = sqrt(s + epsilon). With ``as_keras`` it starts at
    0, and without momentum root = sqrt(s) + epsilon.
    """

    def __init__(
        self, tf: Any, *, decay: float, epsilon: float, as_keras: bool = False, **options: Any
    ) -> None:
        super().__init__(tf, **options)
        self._decay = decay
        self._epsilon = epsilon
        self._as_keras = as_keras
        self.initial = (0.0 if as_keras else 1.0, *self.initial)

    def _step(self, weight: Any, slope: Any, state: List[Any], rate: Any, decayed: bool) -> Any:
        slope = self._with_decay(weight, self._regularised(weight, slope), decayed)
        square = self._decay * state[0] + (1.0 - self._decay) * slope * slope
        change = self._change(slope, square, rate)
        weight, *gathered = self._momentum.changed(weight, change, state)
        return (weight, square, *gathered)

    def _change(self, slope: Any, square: Any, rate: Any) -> Any:
        tf = self._tf
        if not self._as_keras:
            return rate * (slope * tf.math.rsqrt(square + self._epsilon))
        has_momentum = self._momentum.factor is not None
        inside, outside = (self._epsilon, 0.0) if has_momentum else (0.0, self._epsilon)
        return rate * slope / (tf.sqrt(square + inside) + outside)


class Lars(Optimiser):
    """Momentum with a rate per variable: rate * eeta |w| / (|g| + weight_decay |w| + epsilon).

    |g| is without weight decay. If |w| or |g| is zero, and for skipped names, the rate is the
    plain one (You et al., 2017, arXiv 1708.03888).
    """

    def __init__(self, tf: Any, *, eeta: float, epsilon: float, **options: Any) -> None:
        super().__init__(tf, **options)
        self._eeta = eeta
        self._epsilon = epsilon

    def _step(self, weight: Any, slope: Any, state: List[Any], rate: Any, decayed: bool) -> Any:
        slope = self._regularised(weight, slope)
        if decayed:
            rate = rate * self._trust(weight, slope)
        return self._momentum.moved(weight, self._with_decay(weight, slope, decayed), state, rate)

    def _trust(self, weight: Any, slope: Any) -> Any:
        """Return eeta |w| / (|g| + weight_decay |w| + epsilon), or 1 if |w| or |g| is zero."""
        tf = self._tf
        weights, slopes = tf.norm(weight), tf.norm(slope)
        below = slopes + self._weight_decay * weights + self._epsilon
        usable = tf.logical_and(weights > 0.0, slopes > 0.0)
        return tf.where(usable, self._eeta * tf.math.divide_no_nan(weights, below), 1.0)


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
