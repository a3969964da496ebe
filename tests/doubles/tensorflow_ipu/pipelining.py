"""Pipelines: one stage after another on the CPU, with the SDK's rules for stages.

A stage sees only its inputs and variables. The optimiser must be a TensorFlow 1 one, and its method
``apply_gradients`` must have neither annotations nor keyword-only parameters, because the SDK calls
``inspect.getargspec`` on it.
"""

from __future__ import annotations

import enum
import inspect
from typing import Any, Dict, List, Optional, Tuple

from tests.doubles.tensorflow_ipu.accumulation import (
    GradientAccumulationReductionMethod,
    accumulation_scales,
)
from tests.doubles.tensorflow_ipu.config import check_planned
from tests.doubles.tensorflow_ipu.record import recorded, recorder


class PipelineSchedule(enum.IntEnum):
    Grouped = 0
    Interleaved = 1
    Sequential = 2


class RecomputationMode(enum.Enum):
    Auto = enum.auto()
    RecomputeThenBackpropagate = enum.auto()
    RecomputeAndBackpropagateInterleaved = enum.auto()


class OptimizerFunctionOutput:
    """The return value of an optimiser function; only TensorFlow 1 optimisers are supported."""

    @recorded
    def __init__(
        self,
        opt: Any,
        loss: Any,
        compute_gradients_args: Any = None,
        compute_gradients_kwargs: Any = None,
        apply_gradients_args: Any = None,
        apply_gradients_kwargs: Any = None,
        variables: Any = None,
        tape: Any = None,
        gradient_capture_context: Any = None,
        captured_gradient_outfeed: Any = None,
    ) -> None:
        import tensorflow as tf

        if not isinstance(opt, tf.compat.v1.train.Optimizer):
            raise TypeError("OptimizerFunctionOutput.opt must be a TensorFlow Optimizer")
        if not isinstance(loss, tf.Tensor):
            raise TypeError("OptimizerFunctionOutput.loss must be a TensorFlow Tensor object.")
        assert not variables and tape is None, "these are for optimisers of Keras"
        assert not compute_gradients_args and not apply_gradients_args
        assert not apply_gradients_kwargs
        assert gradient_capture_context is None
        assert captured_gradient_outfeed is None
        self._opt = opt
        self._loss = loss
        self._compute_gradients_kwargs: Dict[str, Any] = compute_gradients_kwargs or {}

    @property
    def opt(self) -> Any:
        return self._opt

    @property
    def loss(self) -> Any:
        return self._loss

    @property
    def compute_gradients_kwargs(self) -> Dict[str, Any]:
        return self._compute_gradients_kwargs


class PipelineStageOptions:
    """Options of Poplar's planners for one stage."""

    def __init__(
        self, convolution_options: Any = None, matmul_options: Any = None, slice_options: Any = None
    ) -> None:
        self._given = {
            "convolutions": convolution_options or {},
            "matmuls": matmul_options or {},
            "slices": slice_options or {},
        }
        for kind in ("convolutions", "matmuls"):
            check_planned(kind, self._given[kind])
        for options in self._given.values():
            assert isinstance(options, dict)
            assert all(isinstance(text, str) for item in options.items() for text in item)

    def get_proto(self) -> Any:
        return self._given


@recorded
def pipeline(
    computational_stages: Any,
    gradient_accumulation_count: Any = None,
    gradient_accumulation_dtype: Any = None,
    gradient_accumulation_for_captured_grads: bool = True,
    repeat_count: int = 1,
    batch_serialization_iterations: int = 1,
    inputs: Any = None,
    infeed_queue: Any = None,
    outfeed_queue: Any = None,
    optimizer_function: Any = None,
    device_mapping: Any = None,
    pipeline_schedule: Optional[PipelineSchedule] = None,
    recomputation_mode: Optional[RecomputationMode] = None,
    forward_propagation_stages_poplar_options: Any = None,
    backward_propagation_stages_poplar_options: Any = None,
    weight_update_poplar_options: Any = None,
    offload_weight_update_variables: Optional[bool] = None,
    replicated_optimizer_state_sharding: bool = False,
    offload_activations: Optional[bool] = None,
    offload_gradient_accumulation_buffers: Optional[bool] = None,
    replicated_weight_sharding: Optional[bool] = None,
    offload_weights: Optional[bool] = None,
    continuous_weight_updates: bool = False,
    outfeed_loss: bool = False,
    accumulate_outfeed: bool = False,
    accumulate_outfeed_dtype: Any = None,
    outfeed_mask: Any = None,
    reduction_method: Any = GradientAccumulationReductionMethod.SUM,
    name: Optional[str] = None,
) -> Any:
    """Run all stages ``gradient_accumulation_count`` times, then the update, and repeat.

    The other arguments are checked and recorded.
    """
    import tensorflow as tf

    stages = len(computational_stages)
    assert stages >= 2, "Pipeline requires at least two computational stages."
    assert isinstance(gradient_accumulation_count, int)
    assert pipeline_schedule is None or isinstance(pipeline_schedule, PipelineSchedule)
    assert recomputation_mode is None or isinstance(recomputation_mode, RecomputationMode)
    mapping = list(range(stages)) if device_mapping is None else device_mapping
    assert isinstance(mapping, list)
    assert len(mapping) == stages
    shards = max(mapping) + 1
    assert set(mapping) == set(range(shards)), mapping
    assert recorder.attached % shards == 0, (recorder.attached, shards)
    for options in (
        forward_propagation_stages_poplar_options,
        backward_propagation_stages_poplar_options,
    ):
        if options is not None:
            assert len(options) == stages
            assert all(isinstance(option, PipelineStageOptions) for option in options)
    assert not outfeed_loss
    assert outfeed_mask is None or optimizer_function is not None
    assert outfeed_queue is not None
    training = optimizer_function is not None
    check_count(gradient_accumulation_count, mapping, pipeline_schedule, training)
    recorder.shards = shards
    if recorder.only_arguments:
        return tf.no_op()
    if not training:
        assert offload_weight_update_variables is False, "it warns: no effect in inference"
    traced = _Stages(computational_stages)
    method = GradientAccumulationReductionMethod.parse(reduction_method)

    variables: List[Any] = []

    def micro_batch() -> Tuple[List[Any], List[Any]]:
        """Return the output of the last stage and the gradients of ``variables``."""
        outputs = traced(list(inputs or []) + list(infeed_queue._dequeue()))
        if not training:
            return outputs, []
        _function_of(lambda *values: optimizer_function(*values).loss, outputs)
        pairs = _gradients(optimizer_function(*outputs))
        variables[:] = [variable for _, variable in pairs]
        return outputs, [gradient for gradient, _ in pairs]

    def batches(number: Any) -> Any:
        """Run the pipeline once."""
        shown: List[Any] = []
        sums: List[Any] = []
        # Traced once, however many micro batches there are.
        one = tf.function(micro_batch, autograph=False).get_concrete_function()
        for index in range(1 if recorder.one_micro_batch else gradient_accumulation_count):
            outputs, gradients = one()
            mask = outfeed_mask or [False] * len(outputs)
            if len(mask) != len(outputs):
                raise ValueError("The last stage's outputs and outfeed_mask must match")
            shown.append([output for hidden, output in zip(mask, outputs) if not hidden])
            kept, share = accumulation_scales(method, index, gradient_accumulation_count)
            parts = [
                tf.cast(gradient * share, gradient_accumulation_dtype or variable.dtype)
                for gradient, variable in zip(gradients, variables)
            ]
            sums = [total * kept + part for total, part in zip(sums, parts)] if index else parts
        if accumulate_outfeed:
            sums_shown = [
                tf.cast(part, accumulate_outfeed_dtype or part.dtype) for part in shown[0]
            ]
            for parts in shown[1:]:
                sums_shown = [
                    total + tf.cast(part, total.dtype) for total, part in zip(sums_shown, parts)
                ]
            shown = [sums_shown]
        done = [outfeed_queue.enqueue(shown[0])]
        for parts in shown[1:]:
            with tf.control_dependencies(done):
                done.append(outfeed_queue._put(parts))
        if training:
            optimizer = optimizer_function(*outputs).opt
            done.append(apply_gradients(optimizer, list(zip(sums, variables))))
        with tf.control_dependencies(done):
            return number + 1

    return tf.while_loop(
        lambda number: number < repeat_count, batches, [tf.constant(0)], parallel_iterations=1
    )[0].op


def check_count(
    count: int, mapping: List[int], schedule: Optional[PipelineSchedule], training: bool
) -> None:
    """Refuse a number of micro batches that does not fill a pipeline, as the SDK's compiler does.

    driver/visitors/pipeline_visitor.cc; the SDK's default is Grouped.
    """
    import tensorflow as tf

    stages = mapping + mapping[::-1] if training else mapping
    schedule = PipelineSchedule.Grouped if schedule is None else schedule
    length = len(stages) if schedule is PipelineSchedule.Grouped else 1
    if schedule is PipelineSchedule.Interleaved:
        if training and len(set(mapping)) < len(mapping):
            raise NotImplementedError("Interleaved: several pipeline stages are on one IPU")
        rotations = [stages]
        for turn in range(1, len(stages)):
            one = stages[turn:] + stages[:turn]
            if not any(a == b for other in rotations for a, b in zip(one, other)):
                rotations.append(one)
        length = len(rotations)
    if count % length:
        raise tf.errors.FailedPreconditionError(
            None, None, f"The pipeline depth must be a multiple of {length}, but it is {count}"
        )


def apply_gradients(optimizer: Any, pairs: Any) -> Any:
    """Call an optimiser like the SDK; return its operation."""
    import tensorflow as tf

    spec = inspect.getfullargspec(type(optimizer).apply_gradients)
    if spec.kwonlyargs or spec.annotations:
        raise ValueError("Function has keyword-only parameters or annotations")
    done = optimizer.apply_gradients(pairs)
    assert isinstance(done, tf.Operation)
    return done


def _gradients(found: OptimizerFunctionOutput) -> List[Tuple[Any, Any]]:
    """Return each variable with its gradient."""
    pairs: List[Tuple[Any, Any]] = found.opt.compute_gradients(
        found.loss, **found.compute_gradients_kwargs
    )
    for gradient, variable in pairs:
        assert gradient is not None, f"{variable.name} has no gradient"
    return pairs


class _Stages:
    """The stages, each a separate function whose only tensors are its inputs."""

    def __init__(self, functions: Any) -> None:
        self._functions = functions
        self._traced: List[Any] = []

    def __call__(self, values: List[Any]) -> List[Any]:
        for number, function in enumerate(self._functions):
            if len(self._traced) == number:
                self._traced.append(_function_of(function, values, f"stage{number}"))
            values = list(self._traced[number](*values))
        return values


def _function_of(function: Any, values: List[Any], name: str = "optimizer_function") -> Any:
    """Return a pipeline's function, which reads only its inputs, and its variables."""
    import tensorflow as tf

    def named(*inputs: Any) -> Any:
        return function(*inputs)

    named.__name__ = name
    specs = [tf.TensorSpec(value.shape, value.dtype) for value in values]
    traced = tf.function(named, autograph=False).get_concrete_function(*specs)
    for tensor in traced.captured_inputs:
        if tensor.dtype != tf.resource:
            raise ValueError(
                f"Trying to capture the tensor {tensor} which is not a resource. This tensor "
                "needs to be passed as either part of the `input` or `infeed_queue`"
            )
    assigned = [op.name for op in traced.graph.get_operations() if "Assign" in op.type]
    assert not assigned, f"only the optimiser changes variables in a pipeline: {assigned}"
    return traced
