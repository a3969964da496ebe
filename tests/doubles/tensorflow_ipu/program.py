"""How a program reaches the device: strategy, loop, and what replicas share.

A program runs on the CPU. Of several replicas only the first computes, on every n-th batch. With
synthetic data it is compiled by XLA, takes no batch from the host and has no result.
"""

from __future__ import annotations

import contextlib
import inspect
import weakref
from typing import Any, Callable, ContextManager, Dict, List, Optional, Sequence, Union

from tests.doubles.tensorflow_ipu.feeds import IPUInfeedQueue
from tests.doubles.tensorflow_ipu.record import recorded, recorder


class IPUStrategyV1:
    """Where programs run that are compiled as one tf.function."""

    @recorded
    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        cpu_device: str = "/device:CPU:0",
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ) -> None:
        self._programs: Dict[Any, Any] = {}
        self._depth = 0

    @contextlib.contextmanager
    def _scope(self) -> Any:
        import tensorflow as tf

        self._depth += 1
        try:
            with tf.variable_creator_scope(_held):
                yield self
        finally:
            self._depth -= 1

    def scope(self) -> ContextManager[Any]:
        context: ContextManager[Any] = self._scope()
        return context

    @recorded
    def run(self, fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        import tensorflow as tf

        if not hasattr(fn, "get_concrete_function"):
            raise ValueError("IPUStrategyV1.run(fn, ...) does not support eager execution")
        assert fn._jit_compile is True, "only a program of XLA is one program on an IPU"
        assert self._depth, "the strategy's scope was left"
        assert recorder.attached, "no IPU is configured"
        if recorder.run_error:
            raise tf.errors.ResourceExhaustedError(None, None, recorder.run_error)
        if recorder.synthetic:
            if fn not in self._programs:
                self._programs[fn] = fn
                hlo = fn.experimental_get_compiler_ir(*args)(stage="hlo")
                assert "<=" not in hlo, "a shape that XLA does not know, which an IPU has to"
            result = fn(*args, **(kwargs or {}))
            if result is None:
                return None
            return tf.nest.map_structure(_nothing, result)
        if fn not in self._programs:
            # XLA on a CPU takes no data sets, so the same program runs without it.
            self._programs[fn] = tf.function(fn.python_function, autograph=False)
        return self._programs[fn](*args, **(kwargs or {}))


def _held(create: Callable[..., Any], **options: Any) -> Any:
    """Return a variable, and remember it as one of the IPUs' unless it was put elsewhere."""
    from tensorflow.python.eager import context

    variable = create(**options)
    if not context.context().device_name:
        recorder.held.append(weakref.ref(variable))
    return variable


def _nothing(part: Any) -> Any:
    """Return what stands where a result would have been transferred."""
    import tensorflow as tf

    return tf.zeros_like(part) * float("nan") if part.dtype.is_floating else tf.zeros_like(part)


@recorded
def repeat(
    n: int,
    body: Callable[..., Any],
    inputs: Optional[List[Any]] = None,
    infeed_queue: Optional[IPUInfeedQueue] = None,
    use_while_v1: bool = True,
) -> Any:
    """Run ``body(*inputs, *batch)`` n times; it returns the next inputs."""
    import tensorflow as tf

    start = [tf.convert_to_tensor(value) for value in inputs or []]
    assert start, "the stand-in has no loops without a carried value"
    _check_arguments(body, len(start), infeed_queue)
    types = [value.dtype for value in start]

    def iteration(*carried: Any) -> Any:
        batch: Union[Sequence[Any], Dict[str, Any]] = ()
        if infeed_queue is not None:
            batch = infeed_queue._dequeue()
        outputs = body(*carried, **batch) if isinstance(batch, dict) else body(*carried, *batch)
        outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        found = [output.dtype for output in outputs]
        if found != types:
            raise TypeError(
                f"Mismatch between input types and output types for loop body: {types} vs {found}"
            )
        return list(outputs)

    ended = tf.while_loop(
        lambda *_: True, iteration, start, maximum_iterations=n, parallel_iterations=1
    )
    return ended[0] if len(ended) == 1 else ended


def _check_arguments(
    body: Callable[..., Any], carried: int, queue: Optional[IPUInfeedQueue]
) -> None:
    """Refuse a body as the SDK does: it counts positional parameters only."""
    given = carried + (queue.number_of_tuple_elements if queue is not None else 0)
    spec = inspect.getfullargspec(body)
    least = len(spec.args) - len(spec.defaults or ())
    if given < least or (spec.varargs is None and given > len(spec.args)):
        raise TypeError(
            "Supplied loop body function cannot be called with the specified inputs: "
            f"{given} given, {len(spec.args)} positional parameters"
        )


@recorded
def cross_replica_mean(
    x: Any, replica_group_size: Optional[int] = None, name: Optional[str] = None
) -> Any:
    """Return the first replica's value: the stand-in computes no other."""
    return x


@recorded
def cross_replica_sum(
    x: Any, replica_group_size: Optional[int] = None, name: Optional[str] = None
) -> Any:
    """Return the first replica's value as often as there are replicas in all instances."""
    replicas = recorder.replicas if replica_group_size is None else replica_group_size
    return x * replicas


@recorded
def reset_ipu_seed(
    seed: int,
    device: str = "/device:IPU:0",
    cpu_device: str = "cpu",
    experimental_identical_replicas: bool = False,
) -> None:
    assert recorder.attached, "no IPU is configured"


@recorded
def get_num_of_ipus_in_device(ipu_device: str, device: str = "cpu") -> int:
    assert ipu_device == "/device:IPU:0"
    return recorder.attached
