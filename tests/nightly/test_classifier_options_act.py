"""Options of TensorFlow's classifiers on an IPU act, or are refused or declared idle.

As in tests/nightly/test_options_act.py. The stand-in traces a small network with the options of the
case. The arguments for the network, the recipe and the instances are compared unchanged.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Generator

import pytest

from ipubench.bench_inference.bench_cnn_tensorflow import IPU
from ipubench.bench_inference.validation import Validation
from ipubench.bench_training.bench_cnn_tensorflow import M2000
from ipubench.bench_training.training import Training
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.instances.plan import plan
from ipubench.fixtures.runtimes.tensorflow.ipu.tensorflow_ipu import TensorFlowIpu
from tests.doubles.tensorflow_ipu import recorder
from tests.nightly.options_act import plain, without_effect
from tests.support.kernels import no_images
from tests.support.recipes import recipe_of
from tests.support.tensorflow_cnn import network
from tests.support.tensorflow_ipu import HARDWARE, SPLITS, feed, install

pytestmark = pytest.mark.framework

#: Used by the meter only: the runtime is not involved in compiling without measuring.
OF_THE_METER = {"compile_only"}


@pytest.fixture(autouse=True)
def tf(monkeypatch: pytest.MonkeyPatch) -> Any:
    return install(monkeypatch)


def asked(config: Any, make: Callable[[TensorFlowIpu], Any]) -> Generator[str, None, None]:
    """Yield the arguments of network, recipe and data; then requests to the SDK's TensorFlow."""
    recorder.reset()
    data = config.feed(Data(no_images))
    shared = plan(config, "ipu", frozenset({0, 1}))
    handed = [config.classifier(), recipe_of(config) if isinstance(config, Training) else None]
    handed += [data.describe(), data.image_shape]
    yield plain(*handed, shared)
    step = make(TensorFlowIpu(HARDWARE))
    try:
        step.build()
        yield plain(recorder.calls, recorder.configured)
        step.compile()
        yield plain(recorder.calls, recorder.configured, step.describe())
    finally:
        step.close()


def small(config: Any, **changes: Any) -> Any:
    """Return a case that the stand-in traces quickly."""
    return dataclasses.replace(config, precision="32.32", data="generated", **changes)


def test_every_option_of_a_validation_acts() -> None:
    config: Validation = small(IPU["resnet50"], batches_per_step=2)

    def request(one: Validation) -> Generator[str, None, None]:
        return asked(one, lambda ipu: ipu.validation(network("batch"), one, feed(one.data)))

    assert without_effect(config, request, OF_THE_METER) == set()


@pytest.mark.parametrize("shards", [1, 4])
def test_every_option_of_a_training_acts(shards: int) -> None:
    config: Training = small(
        M2000["resnet50"],
        shards=shards,
        replicas=1,
        pipeline=shards > 1,
        pipeline_splits=SPLITS[shards],
        gradient_accumulation_count=8,
        batches_per_step=2,
        available_memory_proportion=(),
    )

    def request(one: Training) -> Generator[str, None, None]:
        return asked(
            one,
            lambda ipu: ipu.training(network("group"), one, feed(training=True)),
        )

    assert without_effect(config, request, OF_THE_METER) == set()
