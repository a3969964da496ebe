"""Optimisers around another: gradient accumulation in a loop, automatic loss scaling."""

from __future__ import annotations

import enum
from typing import Any, Optional

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


class IpuOptimizer:
    """An optimiser around another."""

    def __init__(self, opt: Any, name: Optional[str] = None) -> None:
        self._opt = opt
        self._name = name

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> Any:
        return self._opt.compute_gradients(loss, var_list=var_list, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None
    ) -> Any:
        return self._opt.apply_gradients(grads_and_vars, global_step, name)


class GradientAccumulationOptimizerV2(IpuOptimizer):
    """Applies every ``num_mini_batches``-th time what it was given since."""

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
        method = GradientAccumulationReductionMethod.parse(reduction_method)
        assert method is not GradientAccumulationReductionMethod.RUNNING_MEAN
        mean = method is GradientAccumulationReductionMethod.MEAN
        self._count = num_mini_batches
        self._scale = 1.0 / num_mini_batches if mean else 1.0
        self._dtype = dtype

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None
    ) -> Any:
        import tensorflow as tf

        # A tf.function refuses tf.Variable where it is traced again.
        from tensorflow.python.ops.resource_variable_ops import ResourceVariable

        pairs = list(grads_and_vars)
        with tf.init_scope():
            seen = ResourceVariable(0)
            sums = [ResourceVariable(tf.zeros(v.shape, self._dtype or v.dtype)) for _, v in pairs]
        recorder.kept += [seen, sums]
        added = [
            total.assign_add(tf.cast(gradient * self._scale, total.dtype))
            for total, (gradient, _) in zip(sums, pairs)
        ]

        def update() -> Any:
            given = [(tf.identity(total), v) for total, (_, v) in zip(sums, pairs)]
            done = self._opt.apply_gradients(given, global_step, name)
            with tf.control_dependencies([done]):
                empty = [total.assign(tf.zeros_like(total)) for total in sums]
            with tf.control_dependencies(empty):
                return tf.constant(True)

        with tf.control_dependencies(added):
            number = seen.assign_add(1)
        return tf.cond(number % self._count == 0, update, lambda: tf.constant(False)).op


class AutomaticLossScalingOptimizer(IpuOptimizer):
    """Scales the loss and unscales all gradients; here by the first factor throughout."""

    @recorded
    def __init__(
        self,
        wrapped_optimizer: Any,
        initial_loss_scaling_factor: float = 1.0,
        update_frequency: int = 8,
        increase_factor: float = 2.0,
        decrease_factor: float = 0.5,
        max_loss_scaling_factor: float = 32768,
        accumulate_statistics_over_update_period: bool = True,
        ratio_threshold: float = 10e-6,
        name: str = "AutomaticLossScalingOptimizer",
    ) -> None:
        import tensorflow as tf

        assert isinstance(wrapped_optimizer, tf.compat.v1.train.Optimizer)
        assert tf.executing_eagerly(), "it makes variables, which a program cannot"
        assert increase_factor > decrease_factor > 0 < update_frequency
        assert 0 < ratio_threshold < 1
        assert 0 < initial_loss_scaling_factor * increase_factor < max_loss_scaling_factor
        super().__init__(wrapped_optimizer, name)
        self._scale = initial_loss_scaling_factor

    @recorded
    def compute_gradients(self, loss: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        pairs = self._opt.compute_gradients(loss * self._scale, **kwargs)
        return [(gradient / self._scale, variable) for gradient, variable in pairs]
