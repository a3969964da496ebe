"""The application's options as the IPU's TensorFlow runtime calls them, in its units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Tuple

if TYPE_CHECKING:
    from ipubench.bench_training.application.options import Application


@dataclass(frozen=True)
class IpuOptions:
    """What training and validation on IPUs read; proportions of memory are shares, not percent."""

    name: str
    precision: str
    replicas: int
    instances: int
    shards: int
    pipeline_splits: Tuple[str, ...]
    device_mapping: Tuple[int, ...]  # IPU of each stage
    pipeline_schedule: str
    normalise_input: bool
    enable_half_partials: bool
    stable_norm: bool
    internal_exchange_optimisation_target: str
    available_memory_proportion: Tuple[float, ...]
    enable_conv_dithering: bool
    gather_conv_output: bool
    max_cross_replica_buffer_size: int
    max_reduce_many_buffer_size: int
    min_remote_tensor_size: int
    scheduling_algorithm: str
    prefetch_depth: int
    stochastic_rounding: str
    no_stochastic_rounding: bool
    fp_exceptions: bool
    nanoo: bool
    on_demand: bool
    compile_only: bool
    xla_recompute: bool
    disable_variable_offloading: bool
    accelerator_side_reduction: bool
    updates_per_call: int

    @classmethod
    def of(cls, config: Application) -> IpuOptions:
        """Return the options of a configuration in training."""
        return cls(
            name=config.name,
            precision=config.precision,
            replicas=config.replicas,
            instances=config.instances,
            shards=config.shards,
            pipeline_splits=config.pipeline_splits,
            device_mapping=config.device_mapping or tuple(range(config.stages)),
            pipeline_schedule=config.pipeline_schedule,
            normalise_input=config.accelerator_side_preprocess,
            enable_half_partials=config.half_partials,
            stable_norm=config.stable_norm,
            internal_exchange_optimisation_target=config.internal_exchange_optimization_target,
            available_memory_proportion=tuple(
                percent / 100 for percent in config.available_memory_proportion
            ),
            enable_conv_dithering=config.conv_dithering,
            gather_conv_output=config.gather_conv_output,
            max_cross_replica_buffer_size=config.max_cross_replica_buffer_size,
            max_reduce_many_buffer_size=config.max_reduce_many_buffer_size,
            min_remote_tensor_size=config.min_remote_tensor_size,
            scheduling_algorithm=config.scheduling_algorithm,
            prefetch_depth=config.prefetch_depth,
            stochastic_rounding=config.stochastic_rounding,
            no_stochastic_rounding=config.stochastic_rounding == "OFF",
            fp_exceptions=config.fp_exceptions,
            nanoo=config.nanoo,
            on_demand=config.on_demand,
            compile_only=config.compile_only,
            xla_recompute=config.recomputation,
            disable_variable_offloading=not config.optimizer_state_offloading,
            accelerator_side_reduction=config.accelerator_side_reduction,
            updates_per_call=config.updates_per_call,
        )
