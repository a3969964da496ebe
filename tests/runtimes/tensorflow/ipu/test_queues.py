"""The stand-in's queues are as strict as the SDK's, and give what the SDK's give."""

from __future__ import annotations

import sys
from typing import Any, List

import pytest

from tests.doubles.tensorflow_ipu import recorder
from tests.support.tensorflow_ipu import SYNTHETIC, install

pytestmark = pytest.mark.framework


@pytest.fixture(autouse=True)
def tf(monkeypatch: pytest.MonkeyPatch) -> Any:
    return install(monkeypatch)


@pytest.fixture
def ipu() -> Any:
    """The SDK's module, with one IPU attached."""
    module = sys.modules["tensorflow.python.ipu"]
    attach(module, 1)
    return module


def attach(ipu: Any, ipus: int) -> None:
    settings = ipu.config.IPUConfig()
    settings.auto_select_ipus = ipus
    settings.configure_ipu_system()


def outfeed(ipu: Any, mode: str, **options: Any) -> Any:
    queues = ipu.ipu_outfeed_queue
    return queues.IPUOutfeedQueue(queues.IPUOutfeedMode[mode], **options)


def program(tf: Any, ipu: Any, queue: Any) -> Any:
    """Return what enqueues [n] for n = 0, 1, 2 in each run."""

    def body(number: Any) -> Any:
        with tf.control_dependencies([queue.enqueue([tf.reshape(number, [1])])]):
            return number + 1

    run = tf.function(lambda: ipu.loops.repeat(3, body, [0]), jit_compile=True, autograph=False)
    strategy = ipu.ipu_strategy.IPUStrategyV1()

    def call() -> None:
        with strategy.scope():
            strategy.run(run)

    return call


def trace(tf: Any, *queues: Any) -> None:
    """Trace a program that enqueues, and do not run it."""

    def enqueue() -> None:
        for queue in queues:
            queue.enqueue([tf.zeros([2])])

    tf.function(enqueue, autograph=False).get_concrete_function()


def dequeued(queue: Any) -> List[Any]:
    (found,) = queue.dequeue()
    values: List[Any] = found.numpy().tolist()
    return values


# --- results ---------------------------------------------------------------------------------


def test_all_elements_leave_once(tf: Any, ipu: Any) -> None:
    queue = outfeed(ipu, "ALL")
    assert not queue.enqueued
    with pytest.raises(ValueError, match="not been enqueued"):
        queue.dequeue()
    run = program(tf, ipu, queue)
    run()
    assert queue.enqueued
    assert dequeued(queue) == [[0], [1], [2]]
    assert dequeued(queue) == []
    run()
    run()
    assert dequeued(queue) == [[0], [1], [2]] * 2


def test_the_last_element_leaves_once(tf: Any, ipu: Any) -> None:
    queue = outfeed(ipu, "LAST")
    run = program(tf, ipu, queue)
    run()
    assert dequeued(queue) == [2]
    with pytest.raises(AssertionError, match="undefined"):
        queue.dequeue()
    run()
    assert dequeued(queue) == [2]


def test_replicas_have_a_dimension(tf: Any, ipu: Any) -> None:
    attach(ipu, 2)
    assert recorder.replicas == 2
    everything, last = outfeed(ipu, "ALL"), outfeed(ipu, "LAST")
    for queue in (everything, last):
        program(tf, ipu, queue)()
    assert dequeued(everything) == [[[0], [0]], [[1], [1]], [[2], [2]]]
    assert dequeued(last) == [[2], [2]]


@pytest.mark.parametrize("mode", ["ALL", "LAST"])
def test_of_synthetic_data_and_before_a_run_nothing_is_there(
    monkeypatch: pytest.MonkeyPatch, tf: Any, ipu: Any, mode: str
) -> None:
    traced, synthetic = outfeed(ipu, mode), outfeed(ipu, mode)
    trace(tf, traced)
    monkeypatch.setenv("TF_POPLAR_FLAGS", SYNTHETIC)
    attach(ipu, 1)
    program(tf, ipu, synthetic)()
    for queue in (traced, synthetic):
        if mode == "ALL":
            assert dequeued(queue) == []
        else:
            with pytest.raises(tf.errors.FailedPreconditionError):
                queue.dequeue()


def test_a_program_enqueues_once(tf: Any, ipu: Any) -> None:
    queue = outfeed(ipu, "ALL")

    with pytest.raises(ValueError, match="only be enqueued once"):
        trace(tf, queue, queue)
    trace(tf, queue)  # another program may use the queue, too


def test_what_a_queue_of_results_cannot_be_is_refused(ipu: Any) -> None:
    for options in ({"buffer_depth": 0}, {"device_ordinal": -1}, {"device_ordinal": "0"}):
        with pytest.raises(ValueError, match="buffer_depth|ordinal"):
            outfeed(ipu, "ALL", **options)
    with pytest.raises(ValueError, match="IPUOutfeedMode"):
        ipu.ipu_outfeed_queue.IPUOutfeedQueue("ALL")


# --- batches ---------------------------------------------------------------------------------


def test_a_queue_of_batches_begins_anew_each_time(tf: Any, ipu: Any) -> None:
    queue = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.range(9), prefetch_depth=0)

    def first() -> int:
        return int(tf.function(queue._dequeue, autograph=False)().numpy())

    with pytest.raises(AssertionError, match="ends the process"):
        first()
    for _ in range(2):
        _ = queue.initializer
        assert first() == 0
    with pytest.raises(ValueError, match="obsolete"):
        queue.get_next()


def test_synthetic_batches_need_no_data_set_that_was_begun(
    monkeypatch: pytest.MonkeyPatch, tf: Any, ipu: Any
) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", SYNTHETIC)
    attach(ipu, 1)
    dataset = tf.data.Dataset.range(9).batch(3, drop_remainder=True)
    queue = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
    assert queue._dequeue().shape == [3]
    assert queue.dequeued


def test_what_a_queue_of_batches_cannot_be_is_refused(tf: Any, ipu: Any) -> None:
    make, dataset = ipu.ipu_infeed_queue.IPUInfeedQueue, tf.data.Dataset.range(9)
    for options in ({"prefetch_depth": 256}, {"prefetch_depth": -1}, {"device_ordinal": -1}):
        with pytest.raises(ValueError, match="prefetch_depth|ordinal"):
            make(dataset, **options)
    with pytest.raises(ValueError, match="not fully defined"):
        make(dataset.batch(2))
