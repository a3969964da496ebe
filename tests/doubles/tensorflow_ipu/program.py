"""How a program reaches the device: strategy, loop, and exchanges between replicas.

A program runs on the CPU. Of several replicas only the first computes, on every n-th batch. With
synthetic data XLA compiles it; it takes no batch from the host and has no result.
"""

from __future__ import annotations

import contextlib
import inspect
import shlex
import weakref
from pathlib import Path
from typing import (
    Any,
    Callable,
    ContextManager,
    Dict,
    Iterator,
    List,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from tests.doubles.tensorflow_ipu.batch_norms import batch_norms_of_half
from tests.doubles.tensorflow_ipu.feeds import IPUInfeedQueue
from tests.doubles.tensorflow_ipu.record import recorded, recorder


class Extended:
    """The part that tf.distribute keeps outside a strategy."""

    def __init__(self, strategy: IPUStrategyV1) -> None:
        self._strategy = strategy

    def call_for_each_replica(self, fn: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return a tf.function's graph, traced as in a run."""
        strategy, function = self._strategy, fn.__self__
        assert strategy._depth, "the strategy's scope was left"
        traced = strategy._program(function, args).get_concrete_function(*args, **(kwargs or {}))
        strategy._traced[id(traced)] = (traced, function)
        return traced


class IPUStrategyV1:
    """The strategy of programs that are compiled as one tf.function."""

    #: Whether a program's types are checked, which PopDist's strategy does not do.
    _checks_types = True

    @recorded
    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        cpu_device: str = "/device:CPU:0",
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ) -> None:
        self._programs: Dict[Any, Any] = {}
        self._traced: Dict[int, Tuple[Any, Any]] = {}
        self._depth = 0

    @contextlib.contextmanager
    def _scope(self) -> Any:
        import tensorflow as tf

        self._depth += 1
        try:
            with tf.variable_creator_scope(_held), batch_norms_of_half(tf):
                yield self
        finally:
            self._depth -= 1

    def scope(self) -> ContextManager[Any]:
        context: ContextManager[Any] = self._scope()
        return context

    @property
    def extended(self) -> Extended:
        return Extended(self)

    @recorded
    def run(self, fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        """Run a program and wait for the IPUs, which PopDist's strategy does not do."""
        _, fn = self._traced.get(id(fn), (fn, fn))
        recorder.calls[-1][1]["fn"] = fn  # a graph's text differs each time that it is traced
        if not hasattr(fn, "get_concrete_function"):
            raise ValueError("IPUStrategyV1.run(fn, ...) does not support eager execution")
        result = self._start(fn, args, kwargs or {})
        recorder.wait()
        return result

    def _start(self, fn: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
        """Queue a program; return placeholders for its results until they are fetched.

        If it fails while it runs, the next run or wait raises the error.
        """
        import tensorflow as tf

        assert fn._jit_compile is True, "only a program of XLA is one program on an IPU"
        assert self._depth, "the strategy's scope was left"
        assert recorder.attached, "no IPU is configured"
        recorder.raise_late()
        if recorder.attach_error and recorder.connection == "ON_DEMAND":
            raise tf.errors.InternalError(None, None, recorder.attach_error)
        if recorder.run_error:
            raise tf.errors.ResourceExhaustedError(None, None, recorder.run_error)
        if recorder.connection == "PRE_COMPILE":
            return self._compile(fn, args, kwargs)
        program = self._program(fn, args)
        if self._checks_types:
            _check_types(tf, program.get_concrete_function(*args, **kwargs))
        recorder.queued += 1
        try:
            if recorder.synthetic and not recorder.by_xla:
                result = _zeros(program, args, kwargs)
            else:
                with _as_written(tf):
                    result = program(*args, **kwargs)
        except tf.errors.OpError as error:
            recorder.failed = error
            result = _zeros(program, args, kwargs)
        if recorder.synthetic and result is not None:
            result = tf.nest.map_structure(_nothing, result)
        return None if result is None else tf.nest.map_structure(OnIpus, result)

    def _program(self, fn: Any, args: Any) -> Any:
        """Return the function that implements a program."""
        import tensorflow as tf

        if fn in self._programs:
            return self._programs[fn]
        _store(fn)
        if recorder.synthetic and recorder.by_xla:
            self._programs[fn] = fn
            hlo = fn.experimental_get_compiler_ir(*args)(stage="hlo")
            assert "<=" not in hlo, "a shape that XLA does not know, which an IPU has to"
        else:
            # XLA on a CPU takes no data sets, so the same program runs without one.
            self._programs[fn] = tf.function(fn.python_function, autograph=False)
        recorder.programs.append(self._programs[fn])
        return self._programs[fn]

    def _compile(self, fn: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
        """Compile for IPUs that are not attached; the result is zeros.

        graphcore/tensorflow, compiler/plugin/poplar/driver/poplar_executable.cc.
        """
        import tensorflow as tf

        if not _store(fn):
            raise tf.errors.FailedPreconditionError(None, None, "no executable cache path is set")
        zeros = _zeros(tf.function(fn.python_function, autograph=False), args, kwargs)
        return None if zeros is None else tf.nest.map_structure(OnIpus, zeros)


def _store(fn: Any) -> bool:
    """Store a program's executable in the folder of the flags; return whether there is one."""
    flags = dict(word.partition("=")[::2] for word in shlex.split(recorder.flags))
    folder = flags.get("--executable_cache_path")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{fn.python_function.__qualname__}.poplar_exec").write_bytes(b"executable")
    return bool(folder)


def _check_types(tf: Any, program: Any) -> None:
    """Refuse types that an IPU does not have (ipu/ipu_strategy.py)."""
    for name, tensors in (("input", program.inputs), ("output", program.outputs)):
        if any(tensor.dtype == tf.float64 for tensor in tensors):
            raise TypeError(f"Unsupported data type for {name}: float64")


@contextlib.contextmanager
def _as_written(tf: Any) -> Iterator[None]:
    """Disable graph rewriting, which takes longer than the graphs run here."""
    name = "disable_meta_optimizer"
    before = tf.config.optimizer.get_experimental_options().get(name, False)
    tf.config.optimizer.set_experimental_options({name: True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({name: before})


class OnIpus:
    """A result on the IPUs; reading it waits for them."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def numpy(self) -> Any:
        recorder.wait()
        return self._tensor.numpy()


def _zeros(program: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
    """Return zeros with the shapes and types of a program's results, or None without results."""
    import tensorflow as tf

    outputs = program.get_concrete_function(*args, **kwargs).structured_outputs
    if outputs is None:
        return None
    return tf.nest.map_structure(lambda part: tf.zeros(part.shape, part.dtype), outputs)


def _held(create: Callable[..., Any], **options: Any) -> Any:
    """Create a variable, and record it as one of the IPUs' unless it was placed elsewhere."""
    from tensorflow.python.eager import context

    variable = create(**options)
    if not context.context().device_name:
        recorder.held.append(weakref.ref(variable))
    return variable


def _nothing(part: Any) -> Any:
    """Return an arbitrary value instead of a result that is not transferred."""
    import tensorflow as tf

    if part.dtype.is_floating:
        return tf.zeros_like(part) * float("nan")
    return tf.zeros_like(part) + tf.constant(-7, part.dtype)


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
    """Refuse a body as the SDK does: it counts only positional parameters."""
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
    """Return the first replica's value, the only one computed here. It has no gradient."""
    return without_gradient("IpuCrossReplicaMean", x)


def without_gradient(op_type: str, x: Any) -> Any:
    """Return ``x`` from an operation of a type for which the SDK registers no gradient.

    TensorFlow raises LookupError if it differentiates through it.
    """
    import tensorflow as tf

    if tf.executing_eagerly():
        return tf.identity(x)
    graph = tf.compat.v1.get_default_graph()
    with graph.gradient_override_map({"Identity": op_type}):
        return tf.identity(x)


@recorded
def cross_replica_sum(
    x: Any, replica_group_size: Optional[int] = None, name: Optional[str] = None
) -> Any:
    """Return the first replica's value times the number of replicas in all instances."""
    count = recorder.all_replicas if replica_group_size is None else replica_group_size
    return x * count


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
