"""The stand-in refuses what the SDK's TensorFlow refuses, and its queues behave alike."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, Dict, List, Type

import pytest

from ipubench.fixtures.poplar.poplar_options import TF_FLAGS
from tests.doubles.tensorflow_ipu import recorder
from tests.support.tensorflow_ipu import SYNTHETIC, install

pytestmark = pytest.mark.framework

MODEL = "--use_ipu_model"
INDEX = "experimental.multi_replica_distribution.process_index"
COUNT = "experimental.multi_replica_distribution.process_count"
GROUP = "norms.experimental.distributed_batch_norm_replica_group_size"


@pytest.fixture(autouse=True)
def tf(monkeypatch: pytest.MonkeyPatch) -> Any:
    return install(monkeypatch)


@pytest.fixture
def ipu() -> Any:
    return sys.modules["tensorflow.python.ipu"]


def settings(ipu: Any, options: Dict[str, Any]) -> Any:
    """Return a configuration with these options, given by path."""
    made = ipu.config.IPUConfig()
    for path, value in options.items():
        part, _, name = path.rpartition(".")
        category = made
        for step in filter(None, part.split(".")):
            category = getattr(category, step)
        setattr(category, name, value)
    return made


def attach(ipu: Any, ipus: int) -> None:
    settings(ipu, {"auto_select_ipus": ipus}).configure_ipu_system()


def runs(ipu: Any, function: Any, *args: Any) -> Any:
    """Return a program's result."""
    strategy = ipu.ipu_strategy.IPUStrategyV1()
    with strategy.scope():
        return strategy.run(function, args=list(args))


# --- configurations and programs -------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "flags", "error"),
    [
        ({"auto_select_ipu": 1}, "", ValueError),
        ({"convolutions": 1}, "", ValueError),
        ({"matmuls.partials_type": "half"}, "", ValueError),
        ({"auto_select_ipus": "1"}, "", TypeError),
        ({"allow_recompute": 1}, "", TypeError),
        ({"auto_select_ipus": 1, "select_ipus": 1}, "", Exception),
        ({COUNT: 2, INDEX: 2}, "", ValueError),
        ({COUNT: 2, INDEX: -1}, "", ValueError),
        ({COUNT: 1}, MODEL, Exception),
        ({"select_ipus": 1}, MODEL, Exception),
        ({GROUP: 0}, "", ValueError),
    ],
    ids=str,
)
def test_unknown_or_contradictory_options_are_refused(
    monkeypatch: pytest.MonkeyPatch,
    ipu: Any,
    options: Dict[str, Any],
    flags: str,
    error: Type[Exception],
) -> None:
    monkeypatch.setenv(TF_FLAGS, flags)
    with pytest.raises(error):
        settings(ipu, options).configure_ipu_system()
    assert not recorder.attached


def test_only_a_different_configuration_resets_the_ipus(ipu: Any) -> None:
    for options, resets in (({"select_ipus": 1}, 0), ({"select_ipus": 1}, 0), ({GROUP: 2}, 1)):
        settings(ipu, options).configure_ipu_system()
        assert (recorder.configured, recorder.attached) == (options, 1)
        assert recorder.names().count("reset_ipu_configuration") == resets


def test_nothing_runs_on_detached_ipus(tf: Any, ipu: Any) -> None:
    program = tf.function(lambda: tf.constant(3.0), jit_compile=True)
    with pytest.raises(AssertionError, match="no IPU"):
        runs(ipu, program)
    options = {"device_connection.type": ipu.config.DeviceConnectionType.PRE_COMPILE}
    with pytest.raises(ValueError, match="version"):
        settings(ipu, options).configure_ipu_system()
    settings(ipu, {**options, "device_connection.version": "ipu2"}).configure_ipu_system()
    with pytest.raises(tf.errors.FailedPreconditionError, match="cache"):
        runs(ipu, program)


def test_refused_programs(tf: Any, ipu: Any) -> None:
    attach(ipu, 1)
    with pytest.raises(ValueError, match="eager"):
        runs(ipu, lambda: None)
    for given, returned in (("float64", "float32"), ("float32", "float64")):
        cast = tf.function(lambda value, to=returned: tf.cast(value, to), jit_compile=True)
        with pytest.raises(TypeError, match="float64"):
            runs(ipu, cast, tf.constant(1.0, given))
    with pytest.raises(ValueError, match="SGD"):
        ipu.optimizers.GradientAccumulationOptimizerV2(tf.keras.optimizers.SGD(), 2)
    queue = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.range(3).map(lambda i: (i, i)))
    with pytest.raises(TypeError, match="3 given, 1 positional"):
        ipu.loops.repeat(2, lambda last: last, [0], queue)
    with pytest.raises(TypeError, match="Mismatch"):
        ipu.loops.repeat(2, lambda last: 1.0 * tf.cast(last, tf.float32), [0])
    with pytest.raises(AssertionError, match="not started"):
        ipu.loops.repeat(2, lambda last, *batch: last, [0], queue)


def test_a_mask_hides_or_shows_each_output_of_the_last_stage(tf: Any, ipu: Any) -> None:
    attach(ipu, 2)
    batches = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors((1.0,)).repeat())
    _ = batches.initializer
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    weight = tf.Variable(1.0)

    def update(loss: Any, *_: Any) -> Any:
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
        return ipu.pipelining_ops.OptimizerFunctionOutput(
            optimizer, loss, compute_gradients_kwargs={"var_list": [weight]}
        )

    def train() -> Any:
        return ipu.pipelining_ops.pipeline(
            [lambda value: [value], lambda value: [value * weight, value]],
            gradient_accumulation_count=4,
            infeed_queue=batches,
            outfeed_queue=queue,
            optimizer_function=update,
            outfeed_mask=[False],
        )

    with pytest.raises(ValueError, match="outfeed_mask must match"):
        runs(ipu, tf.function(train, jit_compile=True, autograph=False))


# --- queues ----------------------------------------------------------------------------------


def program(tf: Any, ipu: Any, queue: Any) -> Any:
    """Return a function that enqueues [n] for n = 0, 1, 2 in each run."""

    def body(number: Any) -> Any:
        with tf.control_dependencies([queue.enqueue([tf.reshape(number, [1])])]):
            return number + 1

    run = tf.function(lambda: ipu.loops.repeat(3, body, [0]), jit_compile=True, autograph=False)
    return partial(runs, ipu, run)


def dequeued(queue: Any) -> List[Any]:
    (found,) = queue.dequeue()
    values: List[Any] = found.numpy().tolist()
    return values


def test_all_elements_are_dequeued_once(tf: Any, ipu: Any) -> None:
    for ipus in (1, 2):  # replicas add a dimension
        attach(ipu, ipus)
        queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        with pytest.raises(ValueError, match="not been enqueued"):
            queue.dequeue()
        run = program(tf, ipu, queue)
        wanted = [[0], [1], [2]] if ipus == 1 else [[[n], [n]] for n in range(3)]
        run()
        assert dequeued(queue) == wanted
        assert dequeued(queue) == []
        run()
        run()
        assert dequeued(queue) == wanted * 2


def test_a_program_enqueues_once(tf: Any, ipu: Any) -> None:
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def enqueue(times: int) -> None:
        for _ in range(times):
            queue.enqueue([tf.zeros([2])])

    with pytest.raises(ValueError, match="enqueued once"):
        tf.function(enqueue, autograph=False).get_concrete_function(2)
    # Another program may use the queue, too.
    tf.function(enqueue, autograph=False).get_concrete_function(1)
    assert dequeued(queue) == []


def test_a_queue_of_batches_restarts_each_time(tf: Any, ipu: Any) -> None:
    attach(ipu, 1)
    make, dataset = ipu.ipu_infeed_queue.IPUInfeedQueue, tf.data.Dataset.range(9)
    queue = make(dataset, prefetch_depth=0)

    def first() -> int:
        return int(tf.function(queue._dequeue, autograph=False)().numpy())

    with pytest.raises(AssertionError, match="ends the process"):
        first()
    for _ in range(2):
        _ = queue.initializer
        assert first() == 0
    for depth in (256, -1):
        with pytest.raises(ValueError, match="prefetch_depth"):
            make(dataset, prefetch_depth=depth)
    with pytest.raises(ValueError, match="not fully defined"):
        make(dataset.batch(2))


def test_synthetic_data_needs_no_started_data_set_and_returns_nothing(
    monkeypatch: pytest.MonkeyPatch, tf: Any, ipu: Any
) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", SYNTHETIC)
    attach(ipu, 1)
    dataset = tf.data.Dataset.range(9).batch(3, drop_remainder=True)
    assert ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)._dequeue().shape == [3]
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    program(tf, ipu, queue)()
    assert dequeued(queue) == []
