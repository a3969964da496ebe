"""Helpers for tests of the TensorFlow kernels: steps on a stand-in device, weights, slopes."""

from __future__ import annotations

import dataclasses
import importlib
from functools import partial
from typing import Any, Callable, Dict, Iterator, Tuple

import numpy as np
import pytest

from ipubench.fixtures.case.options import CaseConfig
from ipubench.fixtures.data.images.feed import ImageFolder
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.machine.onednn import tensorflow_has_onednn
from ipubench.fixtures.runtimes.tensorflow.host.loop import TensorFlowStep
from ipubench.fixtures.runtimes.tensorflow.host.tensorflow_host import TensorFlowHost

Array = Any  # float64 np.ndarray
Weights = Dict[str, Array]
Loss = Callable[[Weights], float]


class StandIn(CpuDevice):
    """A CPU with two threads and instructions for bfloat16."""

    def __init__(self) -> None:
        super().__init__(pin=False)
        self.threads, self.half = 2, "bfloat16"


def no_images() -> ImageFolder:
    raise AssertionError("kernels need no images")


DATA = Data(no_images)


def needs_exact_bfloat16() -> None:
    """Skip if the suite itself computes in float32, because oneDNN's bfloat16 is worse here."""
    if tensorflow_has_onednn() and CpuDevice().half != "bfloat16":
        pytest.skip(
            "TensorFlow computes with oneDNN, which needs AVX512_BF16 or AMX for bfloat16; "
            "TF_ENABLE_ONEDNN_OPTS=0 runs this with TensorFlow's own operations"
        )


def built(config: CaseConfig, **changes: Any) -> TensorFlowStep:
    """Return a configuration's built step, in float32 unless ``changes`` set another precision."""
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    config = dataclasses.replace(config, **{"precision": "32.32", **changes})
    if config.precision != "32.32" and tf.__version__.startswith("2.6."):
        pytest.skip("TensorFlow 2.6 lacks bfloat16 operations on a CPU")
    kernel = type(config).__module__.split("bench_")[-1]
    module = importlib.import_module(type(config).__module__)
    model = getattr(module, kernel, None)
    assert model is not None, f"{module.__file__} has no function {kernel}: name its layer so"
    feed = config.feed(DATA)  # type: ignore[attr-defined]
    step = TensorFlowHost(StandIn()).loop(partial(model, config), config, feed)  # type: ignore[arg-type]
    step.build()
    return step


def variables_of(step: TensorFlowStep) -> Dict[str, Any]:
    """Return the layer's variables by the path of their attribute: ``layers.0.kernel``."""
    return variables_of_layer(step._tf, step.layer)


def variables_of_layer(tf: Any, layer: Any) -> Dict[str, Any]:
    """Return a layer's variables by the path of their attribute."""
    return dict(_variables(tf, layer, ""))


def _variables(tf: Any, part: Any, path: str) -> Iterator[Tuple[str, Any]]:
    if isinstance(part, tf.Variable):
        yield path, part
    elif isinstance(part, (list, tuple)):
        for number, item in enumerate(part):
            yield from _variables(tf, item, f"{path}.{number}")
    elif isinstance(part, tf.Module):
        for name, value in vars(part).items():
            if not name.startswith("_"):
                yield from _variables(tf, value, f"{path}.{name}" if path else name)


def weights_of(step: TensorFlowStep) -> Weights:
    """Return the values of the layer's variables in float64."""
    return {name: float64(variable) for name, variable in variables_of(step).items()}


def copy_weights(source: TensorFlowStep, target: TensorFlowStep) -> None:
    """Copy one step's weights and synthetic batches to another, each in its own dtype."""
    tf, targets = target._tf, variables_of(target)
    for name, variable in variables_of(source).items():
        targets[name].assign(tf.cast(variable, targets[name].dtype))
    target.ring = {
        name: tf.cast(source.ring[name], ring.dtype) for name, ring in target.ring.items()
    }


def batches_of(step: TensorFlowStep) -> Iterator[Dict[str, Array]]:
    """Yield the synthetic batches in float64, in the order of the loop."""
    rings = {name: float64(ring) for name, ring in step.ring.items()}
    for index in range(len(next(iter(rings.values())))):
        yield {name: ring[index] for name, ring in rings.items()}


def float64(tensor: Any) -> Array:
    """Return a tensor's values as float64."""
    return tensor.numpy().astype(np.float64)


def one_update(step: TensorFlowStep) -> Weights:
    """Train on the first batch; return the gradient that this implies, by weight."""
    before = weights_of(step)
    step.compile()
    after = weights_of(step)
    rate = step._learning_rate
    return {name: (value - after[name]) / rate for name, value in before.items()}


#: The step of central differences in float64: with longer ones, the kink of one of hundreds of
#: ReLUs sometimes lies within.
STEP = 1e-7


def check_slopes(found: Weights, weights: Weights, loss: Loss) -> None:
    """Compare gradients with central differences of a loss, in some directions of every weight.

    All elements of a weight move at once, so an error in any gradient that exceeds the bound shows.
    """
    choice = np.random.RandomState(0)
    for name, value in weights.items():
        # The larger the gradient of a weight, the larger its rounding in float32; errors of many
        # elements add up like noise.
        floor = 1e-5 * max(1e-2, float(np.abs(found[name]).max())) * value.size**0.5
        for _ in range(3):
            direction = choice.standard_normal(value.shape)
            ends = [loss({**weights, name: value + sign * STEP * direction}) for sign in (1, -1)]
            slope, expected = float((found[name] * direction).sum()), (ends[0] - ends[1]) / 2 / STEP
            assert slope == pytest.approx(expected, rel=1e-4, abs=floor), name


def probabilities(step: TensorFlowStep) -> None:
    """Turn the synthetic labels into probabilities, as TensorFlow's cross-entropy expects."""
    tf = step._tf
    labels = step.ring["labels"]
    step.ring["labels"] = tf.cast(tf.nn.softmax(tf.cast(labels, tf.float32)), labels.dtype)


def cross_entropy(logits: Array, labels: Array) -> float:
    """Return the mean softmax cross-entropy over all but the last dimension."""
    log_softmax = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return float(-(labels * log_softmax).sum(axis=-1).mean())


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))
