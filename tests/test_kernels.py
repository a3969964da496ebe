"""The kernels' layers against NumPy: outputs, gradients, operation counts."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any, Dict, Tuple

import numpy as np
import pytest

from bench_kernels.bench_dense import Dense, dense
from bench_kernels.bench_lstm import Lstm, lstm
from fixtures.data.folder import ImageFolder
from fixtures.data.provider import Data
from fixtures.runtimes.tensorflow_host import TensorFlowHost, TensorFlowStep

pytestmark = pytest.mark.framework

RATE = 0.01
Array = Any  # float64 np.ndarray
MODELS: Dict[type, Any] = {Dense: dense, Lstm: lstm}
DENSES = [
    Dense(batch_size=4, size=16),
    Dense(batch_size=3, size=40, include_activation=True),
]
LSTMS = [
    Lstm(batch_size=1, timesteps=5, hidden_size=8),
    Lstm(batch_size=3, timesteps=4, hidden_size=16),
]


@dataclass
class StandIn:
    """As much of a device as the runtime reads."""

    kind: str = "cpu"
    threads: int = 2
    fast_bfloat16: bool = True


def no_images() -> ImageFolder:
    raise AssertionError("kernels need no images")


DATA = Data(no_images)


def built(config: Any, precision: str = "32.32", xla: bool = False) -> TensorFlowStep:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    step = TensorFlowHost(StandIn()).loop(  # type: ignore[arg-type]
        partial(MODELS[type(config)], config),
        config.feed(DATA),
        training=config.mode == "training",
        precision=precision,
        learning_rate=RATE,
        xla=xla,
    )
    step.build()
    return step


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def weights_of(step: TensorFlowStep) -> Dict[str, Array]:
    return {
        name: getattr(step.layer, name).numpy().astype(np.float64)
        for name in ("kernel", "recurrent", "bias")
        if hasattr(step.layer, name)
    }


def numpy_dense(config: Dense, w: Dict[str, Array], x: Array) -> Array:
    output = x @ w["kernel"] + w["bias"]
    return np.maximum(output, 0) if config.include_activation else output


def dense_gradients(config: Dense, w: Dict[str, Array], x: Array) -> Dict[str, Any]:
    """Gradients of mean(output), derived by hand."""
    slope = np.full((config.batch_size, config.size), 1 / (config.batch_size * config.size))
    if config.include_activation:
        slope = slope * (x @ w["kernel"] + w["bias"] > 0)
    return {"kernel": x.T @ slope, "bias": slope.sum(axis=0)}


def numpy_lstm(w: Dict[str, Array], x: Array) -> Array:
    """One LSTM, written from its equations: a gate at a time, a timestep at a time."""
    size = x.shape[2]
    hidden, cell = np.zeros(x.shape[1:]), np.zeros(x.shape[1:])
    states = []
    for inputs in x:
        sums = inputs @ w["kernel"] + hidden @ w["recurrent"] + w["bias"]
        i, f, g, o = (sums[:, n * size : (n + 1) * size] for n in range(4))
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        hidden = sigmoid(o) * np.tanh(cell)
        states.append(hidden)
    return np.stack(states)


def lstm_loss(w: Dict[str, Array], x: Array, labels: Array) -> float:
    logits = numpy_lstm(w, x)
    log_softmax = logits - np.log(np.exp(logits).sum(axis=2, keepdims=True))
    return float(-(labels * log_softmax).sum(axis=2).mean())


def slope_along(
    w: Dict[str, Array], name: str, index: Tuple[int, ...], x: Array, labels: Array
) -> float:
    """Central difference of the loss along one weight."""
    losses = []
    for change in (1e-5, -1e-5):
        moved = {key: value.copy() for key, value in w.items()}
        moved[name][index] += change
        losses.append(lstm_loss(moved, x, labels))
    return (losses[0] - losses[1]) / 2e-5


@pytest.mark.parametrize(("precision", "tolerance"), [("32.32", 1e-5), ("16.16", 2e-2)])
@pytest.mark.parametrize("config", [*DENSES, *LSTMS])
def test_output_is_numpys(config: Any, precision: str, tolerance: float) -> None:
    # 2e-2: a bfloat16 has 8 significant bits, so one rounding of a value near 2 costs 2^-8; a
    # dense output is rounded twice, an LSTM's gates at each timestep.
    step = built(config, precision)
    for batch in range(2):
        inputs = step.ring["inputs"][batch]
        output = step.layer({"inputs": inputs})
        x, w = inputs.numpy().astype(np.float64), weights_of(step)
        expected = numpy_lstm(w, x) if isinstance(config, Lstm) else numpy_dense(config, w, x)
        assert output.dtype == inputs.dtype
        found = output.numpy().astype(np.float64)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize("config", [*DENSES, *LSTMS])
def test_the_loop_computes_the_same_outputs(config: Any, xla: bool) -> None:
    step = built(config, xla=xla)
    step.compile()
    assert step.describe()["constant_weights"] is True
    x, w = step.ring["inputs"].numpy().astype(np.float64), weights_of(step)
    outputs = [
        numpy_lstm(w, b) if isinstance(config, Lstm) else numpy_dense(config, w, b) for b in x
    ]
    expected = sum(o.sum() if xla else o.flat[0] for o in outputs)
    assert step.run(len(outputs)) == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize("config", DENSES)
def test_training_a_dense_layer_follows_the_gradient(config: Dense, xla: bool) -> None:
    step = built(dataclasses.replace(config, mode="training"), xla=xla)
    w, x = weights_of(step), step.ring["inputs"].numpy().astype(np.float64)
    step.compile()  # one update, on the first batch
    step.run(3)
    for batch in (0, 0, 1, 2):
        slopes = dense_gradients(config, w, x[batch])
        w = {name: value - RATE * slopes[name] for name, value in w.items()}
    for name, value in weights_of(step).items():
        np.testing.assert_allclose(value, w[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize("config", LSTMS)
def test_training_an_lstm_follows_the_gradient(config: Lstm, xla: bool) -> None:
    step = built(dataclasses.replace(config, mode="training"), xla=xla)
    # TensorFlow's gradient of the cross-entropy holds for labels that are probabilities.
    raw = np.exp(step.ring["labels"].numpy())
    labels_of_ring = raw / raw.sum(axis=-1, keepdims=True)
    step.ring["labels"] = step._tf.constant(labels_of_ring)
    before = weights_of(step)
    x = step.ring["inputs"].numpy()[0].astype(np.float64)
    labels = labels_of_ring[0].astype(np.float64)
    step.compile()  # one update, on the first batch
    after = weights_of(step)
    picks = np.random.RandomState(0)
    for name, value in before.items():
        for _ in range(12):
            index = tuple(int(picks.randint(0, length)) for length in value.shape)
            slope = slope_along(before, name, index, x, labels)
            # The weight is float32: its rounding, 6e-8 at 1, over the rate is the error's floor.
            found = (value[index] - after[name][index]) / RATE
            assert found == pytest.approx(slope, rel=1e-3, abs=2e-5), (name, index)


@pytest.mark.parametrize("config", [Dense(batch_size=4, size=16), LSTMS[1]])
@pytest.mark.parametrize("precision", ["16.16", "16.32"])
def test_training_in_bfloat16_stays_near_float32(config: Any, precision: str) -> None:
    config = dataclasses.replace(config, mode="training")
    half, full = built(config, precision), built(config)
    for name in weights_of(half):
        getattr(full.layer, name).assign(getattr(half.layer, name).numpy().astype(np.float32))
    full.ring = {name: half._tf.cast(half.ring[name], "float32") for name in half.ring}
    half.compile()
    full.compile()
    for name, value in weights_of(full).items():
        # One update changes a weight by less than 1e-2; variables in bfloat16 round by 2^-8.
        np.testing.assert_allclose(weights_of(half)[name], value, rtol=2**-7, atol=1e-3)


def test_variables_start_as_the_original_programs_do() -> None:
    step = built(Dense(size=64))
    assert np.abs(weights_of(step)["kernel"]).max() <= np.sqrt(6 / 128)
    assert not weights_of(step)["bias"].any()
    bias = weights_of(built(LSTMS[0]))["bias"].reshape(4, -1)
    np.testing.assert_array_equal(bias[:, 0], [0, 1, 0, 0])


def test_labels_are_fed_for_training_only() -> None:
    assert [spec.name for spec in LSTMS[0].feed(DATA).specs] == ["inputs"]
    training = dataclasses.replace(LSTMS[0], mode="training").feed(DATA)
    assert [spec.name for spec in training.specs] == ["inputs", "labels"]


def test_zero_values_are_asked_for() -> None:
    for config in (Dense(use_zero_values=True), Lstm(use_zero_values=True)):
        assert config.feed(DATA).zero_values
    assert not Dense().feed(DATA).zero_values


def test_defaults_and_periods_are_the_original_programs() -> None:
    assert (Dense().batch_size, Dense().size, Dense().batches_per_step) == (32, 1024, 5000)
    assert (Lstm().batch_size, Lstm().timesteps, Lstm().hidden_size) == (1, 5, 128)
    assert Dense().feed(DATA).period == 7 * 5000
    assert Lstm().feed(DATA).period == 7 * 1000


def test_operations_per_item() -> None:
    assert Dense(size=10).flops_per_item() == 200
    assert Dense(size=10, mode="training").flops_per_item() == 400
    # Two products [1, 3] x [3, 12] a timestep; training adds one and a half times as many.
    assert Lstm(timesteps=2, hidden_size=3).flops_per_item() == 2 * 2 * (2 * 3 * 12)
    assert Lstm(timesteps=2, hidden_size=3, mode="training").flops_per_item() == 2 * 5 * (
        2 * 3 * 12
    )


def test_xla_is_for_small_layers() -> None:
    assert Lstm().xla
    assert not Lstm(batch_size=64, hidden_size=512).xla
    assert not Lstm(data="generated").xla
    assert not Lstm(mode="training").xla
    assert Lstm(mode="training", precision="32.32").xla
