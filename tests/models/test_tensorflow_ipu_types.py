"""The float16 results of IPU programs compared with NumPy's float64.

Bounds count roundings: one float16 rounding changes a value by at most HALF of it.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest

from ipubench.bench_kernels.bench_gru import Gru, gru
from ipubench.bench_kernels.bench_lstm import Lstm, lstm
from ipubench.bench_kernels.bench_rnn import Rnn, rnn
from ipubench.models.published import DEVIATION, MEAN
from ipubench.models.tensorflow.cnn.run import ForwardPass
from ipubench.models.tensorflow.training.inputs import preprocess
from tests.doubles.tensorflow_ipu.batch_norms import batch_norms_of_half
from tests.support.kernel_reference import loss_of, output_of
from tests.support.kernels import float64, variables_of_layer

pytestmark = [pytest.mark.framework, pytest.mark.numeric]

HALF = 2.0**-11
EPSILON = 1e-3


@pytest.fixture
def tf() -> Any:
    return pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


def of_half(generator: Any, *shape: int, scale: float = 1.0) -> Any:
    """Return random numbers, already rounded to float16, as float64."""
    return (scale * generator.standard_normal(shape)).astype(np.float16).astype(np.float64)


def normalised(images: Any, gamma: Any, beta: Any, moments: Any = None) -> Any:
    """Return images normalised by given moments or else their own; population variance."""
    own = (images.mean((0, 1, 2)), images.var((0, 1, 2)))
    mean, variance = own if moments is None else moments
    return (images - mean) / np.sqrt(variance + EPSILON) * gamma + beta


def norm_layer(tf: Any, values: List[Any], dtype: Any) -> Any:
    from ipubench.models.tensorflow.cnn.layers import BatchNorm

    gamma, beta, mean, variance = (tf.Variable(tf.constant(value, dtype)) for value in values)
    return BatchNorm(gamma, beta, mean, variance, 0.9, EPSILON)


@pytest.mark.parametrize("variables", ["float16", "float32"])  # 16.16 and 16.32
def test_a_batch_norm_of_half_types(tf: Any, variables: str) -> None:
    choice = np.random.RandomState(5)
    images, slopes = of_half(choice, 4, 6, 6, 5, scale=3.0) + 1.0, of_half(choice, 4, 6, 6, 5)
    values = [of_half(choice, 5), of_half(choice, 5), of_half(choice, 5), np.full(5, 2.5)]
    layer = norm_layer(tf, values, tf.as_dtype(variables))
    given = tf.constant(images, tf.float16)
    images = given.numpy().astype(np.float64)
    gamma, beta, *moments = values
    with batch_norms_of_half(tf):
        asked = layer(given, ForwardPass(False, on_ipu=True, narrow_norms=True))
        run = ForwardPass(True, on_ipu=True, narrow_norms=True)
        with tf.GradientTape() as tape:
            tape.watch(given)
            trained = layer(given, run)
        found = tape.gradient(
            trained, [given, layer.gamma, layer.beta], tf.constant(slopes, tf.float16)
        )
    assert asked.dtype == trained.dtype == tf.float16
    for output, expected in (
        (asked, normalised(images, gamma, beta, moments)),
        (trained, normalised(images, gamma, beta)),
    ):
        # The sums are in float32: only the result is rounded.
        np.testing.assert_allclose(output, expected, rtol=HALF, atol=1e-4)
    ((_, mean, variance),) = run.statistics
    assert mean.dtype == variance.dtype == tf.float16
    np.testing.assert_allclose(mean, images.mean((0, 1, 2)), rtol=HALF, atol=1e-5)
    np.testing.assert_allclose(variance, images.var((0, 1, 2)) * 144 / 143, rtol=2 * HALF)
    for place, slope in enumerate(found):
        assert slope.dtype == (tf.float16 if place == 0 else tf.as_dtype(variables))
        start, direction = [images, gamma, beta], choice.standard_normal(slope.shape)
        ends = []
        for sign in (1e-6, -1e-6):
            moved = list(start)
            moved[place] = start[place] + sign * direction
            ends.append((normalised(*moved) * slopes).sum())
        products = slope.numpy().astype(np.float64) * direction
        bound = HALF * np.abs(products).sum() + 1e-3
        assert products.sum() == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=bound)


CELLS: Dict[str, Tuple[Callable[..., Any], Any]] = {
    "rnn": (rnn, Rnn(batch_size=2, timesteps=4, hidden_size=8)),
    "lstm": (lstm, Lstm(batch_size=2, timesteps=4, hidden_size=8, input_size=3)),
    "gru": (gru, Gru(batch_size=2, timesteps=4, hidden_size=8, input_size=3)),
}


@pytest.mark.parametrize("name", CELLS)
def test_a_recurrent_layer_of_half_types(tf: Any, name: str) -> None:
    model, config = CELLS[name]
    config = dataclasses.replace(config, system="ipu", mode="training", precision="16.16")
    choice = np.random.RandomState(3)
    layer = model(config, tf, tf.float16)
    for variable in layer.trainable_variables:
        variable.assign(tf.constant(of_half(choice, *variable.shape, scale=0.3), tf.float16))
    batch = {
        "inputs": of_half(choice, config.timesteps, 2, config.features),
        "labels": np.full((config.timesteps, 2, 8), 1 / 8),
    }
    given = {key: tf.constant(value, tf.float16) for key, value in batch.items()}

    @tf.function(autograph=False)
    def trained() -> Any:
        with tf.GradientTape() as tape:
            output = layer(given)
            loss = layer.loss(output, given)
        return output, tape.gradient(loss, layer.trainable_variables)

    output, slopes = trained()
    variables = variables_of_layer(tf, layer)
    weights = {key: float64(variable) for key, variable in variables.items()}
    assert output.dtype == tf.float16
    # At each timestep: each of the sums' products and additions, bias, gates, state. No value of a
    # state or a gate is above 1, none of a sum above 2, and no weight amplifies.
    products = config.features + config.hidden_size
    roundings = config.timesteps * (2 * products + 10)
    expected = output_of(config, weights, batch)
    assert np.abs(output - expected).max() < roundings * HALF * 0.5
    assert np.abs(expected).max() > 0.3
    names = {id(variable): key for key, variable in variables.items()}
    for variable, slope in zip(layer.trainable_variables, slopes):
        assert slope.dtype == tf.float16
        key = names[id(variable)]
        direction = choice.standard_normal(slope.shape)
        ends = [
            loss_of(config, {**weights, key: weights[key] + sign * direction}, batch)
            for sign in (1e-6, -1e-6)
        ]
        products_of = slope.numpy().astype(np.float64) * direction
        bound = 2 * roundings * HALF * np.linalg.norm(products_of)
        assert products_of.sum() == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=bound), key


@pytest.mark.parametrize("fused", [False, True])
def test_pixels_are_normalised_in_half(tf: Any, fused: bool) -> None:
    pixels = np.random.RandomState(1).randint(0, 256, (2, 5, 5, 3)).astype(np.uint8)
    graph = tf.function(
        partial(preprocess, tf, dtype=tf.float16, dataset="imagenet", fused=fused, narrow=True),
        autograph=False,
    ).get_concrete_function(tf.TensorSpec(pixels.shape, tf.uint8))
    types = {t.dtype for o in graph.graph.get_operations() for t in o.outputs if t.shape.rank == 4}
    assert types == {tf.uint8, tf.float16}
    found = graph(tf.constant(pixels)).numpy().astype(np.float64)
    scaled, mean, deviation = pixels / 255.0, np.asarray(MEAN), np.asarray(DEVIATION)
    expected = (scaled - mean) / deviation
    # The pixel, the mean and the factor are rounded, then each result.
    bound = HALF * (3 * scaled / deviation + 2 * mean / deviation + 3 * np.abs(expected)) + 1e-6
    assert (np.abs(found - expected) < bound).all()


def test_swish_keeps_one_tensor_for_its_gradient(tf: Any) -> None:
    from ipubench.models.tensorflow.cnn.layers import activate

    values = np.linspace(-6, 6, 97).astype(np.float16)
    wide = values.astype(np.float64)
    sigmoid = 1 / (1 + np.exp(-wide))

    def slope(run: ForwardPass, x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = activate(tf, "swish", x, run)
        return y, tape.gradient(y, x)

    counts = []
    for on_ipu in (False, True):
        run = ForwardPass(True, on_ipu=on_ipu)
        spec = tf.TensorSpec(values.shape, tf.float16)
        graph = tf.function(partial(slope, run), autograph=False).get_concrete_function(spec)
        counts.append(sum(o.type == "Sigmoid" for o in graph.graph.get_operations()))
        y, gradient = graph(tf.constant(values))
        np.testing.assert_allclose(y, wide * sigmoid, rtol=4 * HALF, atol=1e-6)
        expected = sigmoid * (1 + wide * (1 - sigmoid))
        np.testing.assert_allclose(gradient, expected, rtol=8 * HALF, atol=8 * HALF)
    assert counts == [1, 2]  # rounded once more if it is not stored
