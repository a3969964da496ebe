"""Gradient accumulation: its methods, and the optimiser that accumulates in a loop."""

from __future__ import annotations

import enum
from typing import Any, Optional, Tuple

from tests.doubles.tensorflow_ipu.record import recorded, recorder


class GradientAccumulationReductionMethod(enum.Enum):
    SUM = 0
    MEAN = 1
    RUNNING_MEAN = 2

    @classmethod
    def parse(cls, reduction_method: Any) -> GradientAccumulationReductionMethod:
        if isinstance(reduction_method, cls):
            return reduction_method
        return cls[reduction_method.upper()]


def accumulation_scales(
    method: GradientAccumulationReductionMethod, number: Any, count: int
) -> Tuple[Any, Any]:
    """Return the factors of the sum so far and of micro batch ``number``'s gradient."""
    if method is GradientAccumulationReductionMethod.RUNNING_MEAN:
        return number / (number + 1.0), 1.0 / (number + 1.0)
    if method is GradientAccumulationReductionMethod.MEAN:
        return 1.0, 1.0 / count
    return 1.0, 1.0


class IpuOptimizer:
    """A TensorFlow 1 optimiser around another one; Keras's are refused, as in the SDK."""

    def __init__(self, opt: Any, name: Optional[str] = None) -> None:
        import tensorflow as tf

        if not isinstance(opt, (tf.compat.v1.train.Optimizer, IpuOptimizer)):
            raise ValueError(f"{type(opt).__name__} is no optimizer of tf.compat.v1.train")
        self._opt = opt
        self._name = name

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> Any:
        return self._opt.compute_gradients(loss, var_list=var_list, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None
    ) -> Any:
        return self._opt.apply_gradients(grads_and_vars, global_step, name)


class GradientAccumulationOptimizerV2(IpuOptimizer):
    """Applies the accumulated gradients on every ``num_mini_batches``-th call."""

    @recorded
    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        offload_weight_update_variables: Optional[bool] = None,
        replicated_optimizer_state_sharding: bool = False,
        dtype: Any = None,
        reduction_method: Any = GradientAccumulationReductionMethod.SUM,
        name: str = "GradientAccumulationOptimizerV2",
    ) -> None:
        super().__init__(opt, name)
        if num_mini_batches < 1:
            raise ValueError("num_mini_batches must be a positive number.")
        self._method = GradientAccumulationReductionMethod.parse(reduction_method)
        self._count = num_mini_batches
        self._dtype = dtype

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None
    ) -> Any:
        import tensorflow as tf

        # A tf.function refuses to create a tf.Variable when it is traced again.
        from tensorflow.python.ops.resource_variable_ops import ResourceVariable

        pairs = list(grads_and_vars)
        with tf.init_scope():
            seen = ResourceVariable(0)
            sums = [ResourceVariable(tf.zeros(v.shape, self._dtype or v.dtype)) for _, v in pairs]
        recorder.kept += [seen, sums]
        number = tf.cast(seen % self._count, tf.float32)
        kept, share = accumulation_scales(self._method, number, self._count)

        def grown(total: Any, gradient: Any) -> Any:
            """Return the new sum in the accumulator's dtype, as on the IPU."""
            new = tf.cast(gradient * tf.cast(share, gradient.dtype), total.dtype)
            return total * tf.cast(kept, total.dtype) + new

        added = [total.assign(grown(total, gradient)) for total, (gradient, _) in zip(sums, pairs)]

        def update() -> Any:
            given = [(tf.identity(total), v) for total, (_, v) in zip(sums, pairs)]
            done = self._opt.apply_gradients(given, global_step, name)
            with tf.control_dependencies([done]):
                empty = [total.assign(tf.zeros_like(total)) for total in sums]
            with tf.control_dependencies(empty):
                return tf.constant(True)

        with tf.control_dependencies(added):
            micro_batches = seen.assign_add(1)
        return tf.cond(micro_batches % self._count == 0, update, lambda: tf.constant(False)).op
