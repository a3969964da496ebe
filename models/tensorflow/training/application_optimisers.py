"""Optimisers of the TensorFlow 2 CNN application: SGD, LARS, RMSprop, with the formulas of Keras.

Unlike in models/tensorflow/training/optimisers.py, momentum accumulates gradients times the
learning rate, which makes a difference while the rate changes, and L2 regularisation acts on all
variables. Before the formulas below a gradient is divided by the loss scaling, then ``l2`` * w is
added.
"""

from __future__ import annotations

from typing import Any, List

from ipubench.models.tensorflow.training.optimisers import SKIPPED, Optimiser, lars_trust

# Keras' epsilon, which the original uses if LARS has none.
KERAS_EPSILON = 1e-7


class ApplicationOptimiser(Optimiser):
    """The base of these optimisers: L2 regularisation and momentum v.

    Without momentum there is no slot for it.
    """

    def __init__(
        self,
        tf: Any,
        *,
        weight_decay: float = 0.0,
        l2: float = 0.0,
        momentum: float = 0.0,
        loss_scaling: float = 1.0,
        fuse: bool = True,
    ) -> None:
        super().__init__(
            tf, weight_decay=weight_decay, loss_scaling=loss_scaling, skipped=SKIPPED, fuse=fuse
        )
        self._l2 = l2
        self._momentum = momentum
        self.initial = (0.0,) if momentum else ()

    def _regularised(self, weight: Any, slope: Any) -> Any:
        return slope + self._l2 * weight if self._l2 else slope

    def _moved(self, weight: Any, change: Any, state: List[Any]) -> Any:
        """Return (w - v, v) after v = momentum * v + change; without momentum (w - change,)."""
        if not self._momentum:
            return (weight - change,)
        total = self._momentum * state[-1] + change
        return weight - total, total


class Sgd(ApplicationOptimiser):
    """v = momentum * v + rate * g; w -= v + rate * weight_decay * w.

    Weight decay is decoupled: momentum does not accumulate it (Loshchilov and Hutter, 2019, arXiv
    1711.05101, SGDW). It acts on all variables.
    """

    def _step(self, weight: Any, slope: Any, state: List[Any], rate: Any, decayed: bool) -> Any:
        change = rate * self._regularised(weight, slope)
        kept = weight - rate * self._weight_decay * weight if self._weight_decay else weight
        return self._moved(kept, change, state)


class Lars(ApplicationOptimiser):
    """v = momentum * v + rate * trust * (g + weight_decay * w); w -= v.

    trust = eeta |w| / (|g| + weight_decay |w| + epsilon), or 1 if |w| or |g| is zero (You et al.,
    2017, arXiv 1708.03888). Variables named beta, gamma or bias have a trust of 1 and no weight
    decay. An ``epsilon`` of 0 means 1e-7, as in the original.
    """

    def __init__(
        self, tf: Any, *, eeta: float = 1e-3, epsilon: float = 0.0, **options: Any
    ) -> None:
        super().__init__(tf, **options)
        self._eeta = eeta
        self._epsilon = epsilon or KERAS_EPSILON

    def _step(self, weight: Any, slope: Any, state: List[Any], rate: Any, decayed: bool) -> Any:
        slope = self._regularised(weight, slope)
        if decayed:
            decay, epsilon = self._weight_decay, self._epsilon
            rate = rate * lars_trust(self._tf, weight, slope, self._eeta, decay, epsilon)
        return self._moved(weight, rate * self._with_decay(weight, slope, decayed), state)


class RMSprop(ApplicationOptimiser):
    """s = decay * s + (1 - decay) * g^2; v = momentum * v + rate * g / root; w -= v.

    As in Keras, root = sqrt(s + epsilon) with momentum and sqrt(s) + epsilon without. s starts at
    0.
    """

    def __init__(self, tf: Any, *, decay: float, epsilon: float = 1e-7, **options: Any) -> None:
        super().__init__(tf, **options)
        self._decay = decay
        self._epsilon = epsilon
        self.initial = (0.0, *self.initial)

    def _step(self, weight: Any, slope: Any, state: List[Any], rate: Any, decayed: bool) -> Any:
        tf = self._tf
        slope = self._regularised(weight, slope)
        square = self._decay * state[0] + (1.0 - self._decay) * slope * slope
        inside, outside = (self._epsilon, 0.0) if self._momentum else (0.0, self._epsilon)
        change = rate * slope / (tf.sqrt(square + inside) + outside)
        weight, *gathered = self._moved(weight, change, state)
        return (weight, square, *gathered)
