"""The SDK's fused layers agree with Keras's layers and with our kernels."""

from __future__ import annotations

from typing import Any, Sequence, Tuple

import numpy as np
import pytest

from ipubench.models.tensorflow.popnn import popnn
from tests.doubles.tensorflow_ipu import recorder
from tests.support.tensorflow_ipu import install

pytestmark = pytest.mark.framework

TIMESTEPS, BATCH, INPUTS, UNITS = 4, 3, 5, 6
KINDS = [("LSTM", 4), ("GRU", 3)]


@pytest.fixture(autouse=True)
def tf(monkeypatch: pytest.MonkeyPatch) -> Any:
    return install(monkeypatch)


def arrays(gates: int) -> Tuple[Any, Tuple[Any, Any, Any]]:
    """Return random inputs [T, B, I] and weights of a layer."""
    generator = np.random.RandomState(3)

    def normal(*shape: int) -> Any:
        return generator.normal(0, 0.5, shape).astype(np.float32)

    width = gates * UNITS
    bias = normal(width)
    return normal(TIMESTEPS, BATCH, INPUTS), (normal(INPUTS, width), normal(UNITS, width), bias)


def keras_states(layer: Any, inputs: Any, weights: Sequence[Any]) -> Any:
    """Return the hidden states [T, B, H] of a Keras layer, which is batch-major."""
    batch_major = np.transpose(inputs, [1, 0, 2])
    layer(batch_major)
    layer.set_weights(weights)
    return np.transpose(layer(batch_major).numpy(), [1, 0, 2])


@pytest.mark.parametrize("sequences", [True, False])
@pytest.mark.parametrize(("kind", "gates"), KINDS)
def test_a_fused_layer_agrees_with_keras(tf: Any, kind: str, gates: int, sequences: bool) -> None:
    inputs, weights = arrays(gates)
    options = {"reset_after": False} if kind == "GRU" else {}
    layer = getattr(tf.keras.layers, kind)(UNITS, return_sequences=True, **options)
    expected = keras_states(layer, inputs, weights)
    found = popnn(
        tf,
        kind,
        tf.constant(inputs),
        weights,
        training=False,
        half_partials=sequences,
        sequences=sequences,
    )
    np.testing.assert_allclose(found, expected if sequences else expected[-1], rtol=1e-5, atol=1e-6)
    given = recorder.arguments(f"Popnn{kind}.__init__")
    assert (given["units"], given["time_major"]) == (UNITS, True)
    assert given["partials_dtype"] == (tf.float16 if sequences else tf.float32)


@pytest.mark.parametrize(("kind", "gates"), KINDS)
def test_gradients_reach_the_models_own_weights(tf: Any, kind: str, gates: int) -> None:
    inputs, weights = arrays(gates)
    kernel, recurrent, bias = map(tf.Variable, weights)
    variables = (kernel, recurrent, bias)

    def loss() -> Any:
        return tf.reduce_sum(popnn(tf, kind, tf.constant(inputs), variables, training=True) ** 2)

    with tf.GradientTape() as tape:
        value = loss()
    for variable, slope in zip(variables, tape.gradient(value, variables)):
        step = 1e-3 * slope / tf.norm(slope)
        variable.assign_add(step)
        above = loss()
        variable.assign_sub(2 * step)
        below = loss()
        variable.assign_add(step)
        assert float(above - below) == pytest.approx(2e-3 * float(tf.norm(slope)), rel=0.02)


@pytest.mark.parametrize(("kind", "gates"), KINDS)
def test_the_layers_refuse_wrong_inputs(tf: Any, kind: str, gates: int) -> None:
    inputs, weights = arrays(gates)
    variable = tf.Variable(inputs)
    with tf.GradientTape() as tape:
        output = popnn(tf, kind, tf.convert_to_tensor(variable), weights, training=False)
    with pytest.raises(ValueError, match="is_training"):
        tape.gradient(output, variable)
    half = tf.constant(inputs, tf.float16)
    kernel, recurrent, bias = (tf.constant(weight, tf.float16) for weight in weights)
    found = popnn(tf, kind, half, (kernel, recurrent, bias), training=False)
    assert found.dtype == tf.float16
    with pytest.raises(AssertionError):  # weights must be cast first
        popnn(tf, kind, half, weights, training=False)
