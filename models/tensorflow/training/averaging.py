"""An exponential average of weights over a run."""

from __future__ import annotations

from typing import Any, List, Sequence

from ipubench.models.tensorflow.training.fusion import for_each


class WeightAverages:
    """a = decay * a + (1 - decay) * w, in float32; the weights at first are the first average."""

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
        """Take the weights in. Call it inside a tf.function."""
        tf = self._tf

        def apply(index: int, weight: Any, decay: Any) -> None:
            average = self.averages[index]
            average.assign(decay * average + (1.0 - decay) * tf.cast(weight, tf.float32))

        weights = [tf.convert_to_tensor(variable) for variable in variables]
        for_each(tf, apply, weights, tf.constant(self._decay), self._fuse)
