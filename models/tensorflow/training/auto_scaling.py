"""Automatic loss scaling: the largest scale that keeps nearly all gradients in float16's range.

The rule and its values are those of the SDK's Keras optimiser, on a host and on IPUs: after each
UPDATES weight updates the scale is multiplied by LOWER if more than THRESHOLD of all elements of
the scaled gradients since then were near overflow, otherwise by RAISE; it stays at 1 or above and
below MOST. Near overflow means from EDGE on, or not finite. There are two differences from the
SDK's. It counts gradients of each dtype, after the mean over micro batches and replicas, so that
the scale does not depend on the precision, and all replicas have the same scale. And an update with
a gradient that is not finite does not change the weights; it counts like any other, and so lowers
the scale.

On an IPU, float16 saturates at 65504 unless nanoo is on: the update is finite and changes the
weights, and with eight or more micro batches a single overflow may leave the mean below EDGE.
"""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

from ipubench.models.tensorflow.training.optimisers import Optimiser

FIRST = 1.0
UPDATES = 8
RAISE = 2.0
LOWER = 0.5
MOST = 32768.0
THRESHOLD = 1e-5
EDGE = 2.0**13


class AutoScaledSgd(Optimiser):
    """SGD that chooses the scale of the loss.

    ``variables``, made with the slots, are float32 scalars: the scale; the elements near overflow,
    all elements and the updates since its last change. Only :meth:`update` changes them, so all
    micro batches of an update have the same scale.
    """

    def slots(self, variables: Sequence[Any]) -> List[List[Any]]:
        """Return the state of the variables, and make that of the scale."""
        tf = self._tf
        first = (FIRST, 0.0, 0.0, 0.0)
        self.variables = [tf.Variable(v, trainable=False, dtype=tf.float32) for v in first]
        return super().slots(variables)

    @property
    def scale(self) -> Any:
        """The scale of the next loss, a float32 variable."""
        return self.variables[0]

    def scaled(self, loss: Any) -> Any:
        """Return the loss to differentiate."""
        return loss * self._tf.cast(self.scale, loss.dtype)

    def update(
        self,
        variables: Sequence[Any],
        gradients: Sequence[Any],
        slots: Sequence[Sequence[Any]],
        rate: Any,
    ) -> None:
        """Assign the new scale, and new variables unless a gradient is not finite."""
        tf = self._tf
        # Read once: the gradients are divided by the same scale that multiplied the loss.
        scale = tf.identity(self.scale)
        near = tf.add_n([self._near_overflow(gradient) for gradient in gradients])

        def finite() -> Any:
            return tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for g in gradients])

        # Whatever is not finite is near overflow, so the second check is rarely needed.
        self._usable = tf.cond(near > 0.0, finite, lambda: tf.constant(True))
        self._unscale = 1.0 / scale
        super().update(variables, gradients, slots, rate)
        self._rescale(scale, near, float(sum(g.shape.num_elements() for g in gradients)))

    def _step(self, weight: Any, slope: Any, state: List[Any], rate: Any, decayed: bool) -> Any:
        # Selects values, not branches: a program on an IPU assigns outside of branches.
        (moved,) = super()._step(weight, slope, state, rate, decayed)
        return (self._tf.where(self._usable, moved, weight),)

    def _near_overflow(self, gradient: Any) -> Any:
        """Return the number of elements near overflow, a float32 scalar."""
        tf = self._tf
        inside = tf.abs(tf.cast(gradient, tf.float32)) < EDGE
        # Not logical_not: TensorFlow turns that of < into >=, which is false for NaN.
        return tf.reduce_sum(tf.where(inside, 0.0, 1.0))

    def _rescale(self, scale: Any, near: Any, elements: float) -> None:
        """Assign all variables after an update at ``scale``."""
        tf = self._tf
        _, nears, seen, updates = self.variables
        near, all_seen, done = nears + near, seen + elements, updates + 1.0
        factor = tf.where(near > THRESHOLD * all_seen, LOWER, RAISE)
        allowed = tf.logical_and(scale * factor >= 1.0, scale * factor < MOST)
        due = done >= UPDATES
        kept = tf.where(due, 0.0, 1.0)
        self.scale.assign(tf.where(tf.logical_and(due, allowed), scale * factor, scale))
        for variable, value in ((nears, near), (seen, all_seen), (updates, done)):
            variable.assign(kept * value)


def scale_counter(optimiser: Optimiser) -> Dict[str, float]:
    """Return the current scale of the loss, if the optimiser chooses it."""
    if isinstance(optimiser, AutoScaledSgd):
        return {"loss_scale": float(optimiser.scale.numpy())}
    return {}
