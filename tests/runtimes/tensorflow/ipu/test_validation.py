"""Validation on IPUs: its counts, its configurations, its cleanup.

The SDK is the stand-in of ``tests/doubles``, over the TensorFlow that is installed.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any, Dict

import numpy as np
import pytest

from ipubench.bench_inference.bench_cnn_tensorflow import IPU, M2000
from ipubench.bench_inference.validation import Validation
from ipubench.fixtures.poplar.poplar_options import TF_FLAGS
from ipubench.fixtures.runtimes.tensorflow.ipu.program import group_norm_function
from ipubench.fixtures.runtimes.tensorflow.ipu.tensorflow_ipu import TensorFlowIpu
from ipubench.fixtures.runtimes.tensorflow.ipu.validation import ValidationProgram
from ipubench.models.tensorflow.cnn.run import ForwardPass
from ipubench.models.tensorflow.training.inputs import normalise
from tests.doubles.tensorflow_ipu import recorder
from tests.support.tensorflow_cnn import draw_nothing, network
from tests.support.tensorflow_ipu import (
    BATCH,
    HARDWARE,
    SPLITS,
    SYNTHETIC,
    batches,
    feed,
    given,
    install,
    start_instance,
    use_batches,
)

pytestmark = pytest.mark.framework


@pytest.fixture(autouse=True)
def tf(monkeypatch: pytest.MonkeyPatch) -> Any:
    return install(monkeypatch)


def options(shards: int = 1, **changes: Any) -> Validation:
    """Return a configuration with a few batches per call."""
    config = Validation(
        name="small",
        system="ipu",
        data="generated",
        precision="32.32",
        shards=shards,
        pipeline=shards > 1,
        pipeline_splits=SPLITS[shards],
        micro_batch_size=BATCH,
        normalise_input=True,
        batches_per_step=6,
    )
    return replace(config, **changes)


def step(config: Validation, norm: str = "batch", mode: str = "generated") -> ValidationProgram:
    return TensorFlowIpu(HARDWARE).validation(network(norm), config, feed(mode))


def ready(*args: Any, **kwargs: Any) -> ValidationProgram:
    made = step(*args, **kwargs)
    made.build()
    assert made.compile() is True
    return made


# --- counts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("norm", "shards"), [("batch", 1), ("batch", 4), ("group", 2)])
def test_the_correct_predictions_of_each_call_are_counted(
    monkeypatch: pytest.MonkeyPatch, tf: Any, norm: str, shards: int
) -> None:
    use_batches(monkeypatch)
    made = step(options(shards), norm)
    made.build()
    assert made.describe()["variables"] == "float32"
    count = made.batches_per_step
    right = []
    for pixels, labels in zip(*batches(2 * count)):
        logits = made.classifier(
            normalise(tf, pixels, tf.float32, True), ForwardPass(training=False)
        )
        right.append(int((np.argmax(logits, axis=1) == labels).sum()))
    made.compile()
    assert made.correct == sum(right[:count]) > 0
    made()
    assert made.correct == sum(right[count:])
    loop, pipeline = (recorder.names().count(name) for name in ("repeat", "pipeline"))
    assert (loop > 0, pipeline > 0) == (shards == 1, shards > 1)
    made.close()


def test_images_normalised_by_the_host_are_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    made = TensorFlowIpu(HARDWARE).validation(
        network(), options(), replace(feed(), eight_bit=False, hostside_norm=True)
    )
    images = np.ones([1, 2, 2, 3], np.float32)
    np.testing.assert_array_equal(made._normalised(images), images)
    assert np.abs(step(options())._normalised(images)).max() > 1.5


def test_replicas_read_separate_batches() -> None:
    made = ready(options(2, replicas=2, precision="16.32"))
    (queue,) = recorder.queues
    assert int(queue._taken.numpy()) == 2 * made.batches_per_step
    assert "cross_replica_mean" not in recorder.names()
    # Nothing is trained, so weights have the type of the operations.
    facts = made.describe()
    assert facts["precision"] == facts["variables"] == "float16"
    assert {v.dtype.name for v in made.classifier.variables} == {"float16"}


def test_synthetic_data_compiles_for_xla_and_takes_nothing_from_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(TF_FLAGS, SYNTHETIC)
    ready(options(data="synthetic"), mode="synthetic")
    (queue,) = recorder.queues
    assert int(queue._taken.numpy()) == 0
    assert recorder.flags == SYNTHETIC


@pytest.mark.parametrize(
    ("dtype", "given_epsilon", "epsilon", "tolerance"),
    [
        ("float32", 1e-6, 1e-6, 1e-4),
        ("float16", 1e-6, 1.53e-5, 1e-2),
        ("float16", 1e-3, 1e-3, 1e-2),
    ],
)
def test_a_group_norm_gets_the_networks_scale_and_offset(
    tf: Any, dtype: str, given_epsilon: float, epsilon: float, tolerance: float
) -> None:
    """And its epsilon; in float16 the SDK warns about less than 1.53e-5."""
    generator = np.random.RandomState(0)
    images = generator.normal(3, 2, (2, 3, 3, 6)).astype(dtype)
    gamma, beta = generator.normal(size=(2, 6)).astype(dtype)
    function = group_norm_function(tf, sys.modules["tensorflow.python.ipu"], True)
    arguments = (images, tf.constant(gamma), tf.constant(beta), 2, given_epsilon)
    found = tf.function(lambda: function(*arguments))()
    images = images.astype(np.float32)
    parts = [images[..., group::2] for group in range(2)]  # channels a stride apart
    normal = np.empty_like(images)
    for group, part in enumerate(parts):
        mean, variance = (f(part, axis=(1, 2, 3), keepdims=True) for f in (np.mean, np.var))
        normal[..., group::2] = (part - mean) / np.sqrt(variance + epsilon)
    expected = normal * gamma + beta
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance / 10)
    assert given("group_norm")["training"] is True
    assert given("group_norm")["epsilon"] == epsilon


# --- published configurations ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "batch", "calls"),
    [
        (IPU["resnet50"], 1, 1000),
        (IPU["resnext101"], 16, 1041),
        (M2000["efficientnet-b0"], 8, 781),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_a_published_configuration_becomes_a_loop(
    monkeypatch: pytest.MonkeyPatch, config: Validation, batch: int, calls: int
) -> None:
    draw_nothing(monkeypatch)  # the network never runs
    config = replace(config, micro_batch_size=batch)
    config.check()
    chosen: Dict[str, Any] = {}
    if config.instances > 1:
        start_instance(monkeypatch, 2, config.instances, config.replicas, config.shards)
        chosen = {
            "select_ipus": 7,
            "experimental.multi_replica_distribution.process_index": 2,
            "experimental.multi_replica_distribution.process_count": 4,
        }
    else:
        chosen = {"auto_select_ipus": 1}
    config = replace(config, data="generated")
    made = TensorFlowIpu(HARDWARE).validation(config.classifier(), config, feed())
    made.build()
    assert made.batches_per_step == calls
    half = {"partialsType": "half"}
    stable = {} if config.model == "resnet" else {"norms.use_stable_statistics": True}
    assert recorder.configured == {
        **chosen,
        **stable,
        "convolutions.poplar_options": half,
        "matmuls.poplar_options": half,
        "compilation_poplar_options": {"target.deterministicWorkers": "false"},
        "optimizations.maximum_cross_replica_sum_buffer_size": 10 << 20,
        "floating_point_behaviour.nanoo": True,
    }
    assert recorder.attached == 1
    assert made.describe()["options"]["instances"] == config.instances
    made.close()
    assert not recorder.attached
