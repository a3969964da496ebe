"""The stand-in refuses configurations and programs that the SDK's TensorFlow refuses."""

from __future__ import annotations

import sys
from typing import Any, Dict, Type

import pytest

from ipubench.fixtures.poplar.options import TF_FLAGS
from tests.doubles.tensorflow_ipu import recorder
from tests.support.tensorflow_ipu import install

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
    """Return a configuration with these options, by their paths."""
    made = ipu.config.IPUConfig()
    for path, value in options.items():
        part, _, name = path.rpartition(".")
        category = made
        for step in filter(None, part.split(".")):
            category = getattr(category, step)
        setattr(category, name, value)
    return made


@pytest.mark.parametrize(
    ("options", "flags", "error", "message"),
    [
        ({"select_ipus": [1, 1]}, "", ValueError, "must be unique"),
        ({COUNT: 2, INDEX: 2}, "", ValueError, r"\[0, process_count\)"),
        ({COUNT: 2, INDEX: -1}, "", ValueError, r"\[0, process_count\)"),
        ({COUNT: 1}, MODEL, Exception, "not supported on the IPU model"),
        ({"ipu_model.version": ""}, MODEL, ValueError, "version must be set"),
        ({"io_tiles.place_ops_on_io_tiles": True}, "", ValueError, "num_io_tiles == 0"),
        ({GROUP: 0}, "", ValueError, "at least 1"),
        ({GROUP: 2, "io_tiles.num_io_tiles": 32}, "", ValueError, "with I/O tiles"),
    ],
    ids=str,
)
def test_options_that_contradict_each_other_are_refused(
    monkeypatch: pytest.MonkeyPatch,
    ipu: Any,
    options: Dict[str, Any],
    flags: str,
    error: Type[Exception],
    message: str,
) -> None:
    monkeypatch.setenv(TF_FLAGS, flags)
    with pytest.raises(error, match=message):
        settings(ipu, options).configure_ipu_system()
    assert not recorder.attached


@pytest.mark.parametrize(
    "options",
    [
        {"select_ipus": 1},
        {COUNT: 2, INDEX: 1},
        {"ipu_model.version": ""},
        {"io_tiles.place_ops_on_io_tiles": True, "io_tiles.num_io_tiles": 32},
        {GROUP: 2},
    ],
    ids=str,
)
def test_options_that_go_together_are_not(ipu: Any, options: Dict[str, Any]) -> None:
    settings(ipu, options).configure_ipu_system()
    assert recorder.configured == options


def test_another_configuration_resets_the_ipus_and_an_equal_one_does_not(ipu: Any) -> None:
    for ipus, resets in ((1, 0), (1, 0), (2, 1)):
        settings(ipu, {"auto_select_ipus": ipus}).configure_ipu_system()
        assert recorder.attached == ipus
        assert recorder.names().count("reset_ipu_configuration") == resets


@pytest.mark.parametrize(("given", "returned"), [("float64", "float32"), ("float32", "float64")])
def test_a_program_of_float64_is_refused(tf: Any, ipu: Any, given: str, returned: str) -> None:
    settings(ipu, {"auto_select_ipus": 1}).configure_ipu_system()
    run = tf.function(lambda value: tf.cast(value, returned), jit_compile=True)
    name = "input" if given == "float64" else "output"
    strategy = ipu.ipu_strategy.IPUStrategyV1()
    with strategy.scope(), pytest.raises(TypeError, match=f"for {name}: float64"):
        strategy.run(run, args=[tf.constant(1.0, given)])


def test_an_optimizer_of_keras_does_not_accumulate(tf: Any, ipu: Any) -> None:
    with pytest.raises(ValueError, match="SGD is no optimizer of tf.compat.v1.train"):
        ipu.optimizers.GradientAccumulationOptimizerV2(tf.keras.optimizers.SGD(), 2)


def test_a_mask_hides_or_shows_each_output_of_the_last_stage(tf: Any, ipu: Any) -> None:
    settings(ipu, {"auto_select_ipus": 2}).configure_ipu_system()
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

    run = tf.function(train, jit_compile=True, autograph=False)
    strategy = ipu.ipu_strategy.IPUStrategyV1()
    with strategy.scope(), pytest.raises(ValueError, match="outfeed_mask must match"):
        strategy.run(run)
