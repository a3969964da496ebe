"""Automatic loss scaling: as large a scale as leaves nearly all gradients in float16's range.

On an IPU it is the SDK's. A host has the same rule, with the values of the SDK's Keras optimiser:
after each UPDATES weight updates the scale is multiplied by LOWER if more than THRESHOLD of all
elements of the scaled gradients since then were near overflow, else by RAISE; it stays at 1 or
above and below MOST. Near overflow is from EDGE on, or not finite. A host differs in two ways: it
counts gradients of every dtype, after the mean over micro batches, so that the scale does not
depend on the precision; and an update with a gradient that is not finite leaves the weights alone,
where an IPU's arithmetic saturates. It counts as any other, and so lowers the scale.
"""

from __future__ import annotations

from typing import Any, List, Sequence

from ipubench.models.tensorflow.training.application_optimisers import Sgd

FIRST = 1.0


UPDATES = 8


RAISE = 2.0


LOWER = 0.5


MOST = 32768.0


THRESHOLD = 1e-5


EDGE = 2.0**13


def sdk_optimizer(ipu: Any, optimizer: Any) -> Any:
    """Return the SDK's automatic loss scaling around a ``tf.compat.v1.train.Optimizer``.

    It multiplies the loss itself and divides the gradients. Gradient accumulation goes around it.
    """
    return ipu.optimizers.AutomaticLossScalingOptimizer(
        optimizer,
        initial_loss_scaling_factor=FIRST,
        update_frequency=UPDATES,
        increase_factor=RAISE,
        decrease_factor=LOWER,
        max_loss_scaling_factor=MOST,
        ratio_threshold=THRESHOLD,
    )


class AutoScaledSgd(Sgd):
    """SGD that chooses the scale of the loss, for a host.

    ``variables``, made with the slots, are the scale, the elements near overflow and all elements
    since its last change, and the updates since: float32 scalars.
    """

    variables: List[Any]

    def slots(self, variables: Sequence[Any]) -> List[List[Any]]:
        """Return the state of the variables; make that of the scale."""
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
        """Assign new variables, unless a gradient is not finite, and the new scale."""
        tf = self._tf
        near = tf.add_n([self._near_overflow(gradient) for gradient in gradients])
        self._unscale = 1.0 / self.scale

        def finite() -> Any:
            return tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for g in gradients])

        def step() -> Any:
            super(AutoScaledSgd, self).update(variables, gradients, slots, rate)
            return tf.constant(0)

        # What is not finite is near overflow: mostly the second look is not needed.
        usable = tf.cond(near > 0.0, finite, lambda: tf.constant(True))
        tf.cond(usable, step, lambda: tf.constant(0))
        self._rescale(near, float(sum(g.shape.num_elements() for g in gradients)))

    def _near_overflow(self, gradient: Any) -> Any:
        """Return how many elements are, a float32 scalar."""
        tf = self._tf
        inside = tf.abs(tf.cast(gradient, tf.float32)) < EDGE
        # Not logical_not: TensorFlow turns that of < into >=, which is false for NaN.
        return tf.reduce_sum(tf.where(inside, 0.0, 1.0))

    def _rescale(self, near: Any, elements: float) -> None:
        tf = self._tf
        scale, nears, seen, updates = self.variables
        near, all_seen, done = nears + near, seen + elements, updates + 1.0
        factor = tf.where(near > THRESHOLD * all_seen, LOWER, RAISE)
        allowed = tf.logical_and(scale * factor >= 1.0, scale * factor < MOST)
        due = done >= UPDATES
        kept = tf.where(due, 0.0, 1.0)
        scale.assign(tf.where(tf.logical_and(due, allowed), scale * factor, scale))
        for variable, value in ((nears, near), (seen, all_seen), (updates, done)):
            variable.assign(kept * value)
