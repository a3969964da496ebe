"""TensorFlow's norms and convolutions, and their gradients, compared with NumPy and float32."""

from __future__ import annotations

from typing import Any, List, Tuple

import numpy as np
import pytest

from ipubench.models.tensorflow.cnn.norms import group_norm
from ipubench.models.tensorflow.cnn.operations import (
    convolve,
    ungrouped,
)
from tests.support.kernels import needs_exact_bfloat16
from tests.support.tensorflow_cnn import (
    compiler,
    error,
    numpy_group_norm,
)

pytestmark = pytest.mark.framework


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow", reason="needs TensorFlow: make setup installs it")


@pytest.mark.numeric
@pytest.mark.parametrize("mean", [0.0, 1000.0])
@pytest.mark.parametrize("size", [7, 56])
def test_a_group_norm_and_its_gradient(tf: Any, mean: float, size: int) -> None:
    random = np.random.default_rng(5)
    values = random.normal(mean, 1.0, (2, size, size - 2, 16)).astype(np.float32)
    values[1] = -2 * values[1]
    slopes = random.normal(0.5, 1.0, values.shape).astype(np.float32)
    gamma, beta = random.normal(1.0, 0.3, (2, 16)).astype(np.float32)
    parts = [tf.constant(part) for part in (values, gamma, beta)]

    def normalised(training: bool) -> Any:
        return group_norm(tf, parts[0], parts[1], parts[2], 4, 1e-5, training)

    with tf.GradientTape() as tape:
        tape.watch(parts)
        found = normalised(True)
    gradients = tape.gradient(found, parts, output_gradients=tf.constant(slopes))
    assert error(found, numpy_group_norm(values, gamma, beta, 4, 1e-5)) < 1e-5
    assert np.array_equal(found, normalised(False))
    for gradient, expected in zip(gradients, numpy_group_norm_slopes(values, gamma, slopes, 4)):
        assert error(gradient, expected) < 1e-5


def numpy_group_norm_slopes(values: Any, gamma: Any, slopes: Any, groups: int) -> List[Any]:
    """Return the gradients of values, gamma and beta of a group norm with epsilon 1e-5."""
    n, h, w, c = values.shape
    grouped = (n, h * w, c // groups, groups)
    unscaled = numpy_group_norm(values, np.ones(c), np.zeros(c), groups, 1e-5)
    slopes = slopes.astype(np.float64)
    along, one = (slopes * gamma).reshape(grouped), unscaled.reshape(grouped)
    deviation = np.sqrt(
        values.astype(np.float64).reshape(grouped).var((1, 2), keepdims=True) + 1e-5
    )
    parts = [(along * part).mean((1, 2), keepdims=True) * part for part in (np.ones(grouped), one)]
    of_values = ((along - parts[0] - parts[1]) / deviation).reshape(values.shape)
    return [of_values, (slopes * unscaled).sum((0, 1, 2)), slopes.sum((0, 1, 2))]


def test_a_group_norm_of_equal_pixels_is_its_beta(tf: Any) -> None:
    beta = np.arange(8, dtype=np.float32)
    found = group_norm(
        tf, tf.fill([2, 5, 5, 8], 1000.1), tf.ones([8]), tf.constant(beta), 2, 1e-5, True
    )
    np.testing.assert_allclose(found, np.broadcast_to(beta, (2, 5, 5, 8)), atol=1e-2)


@pytest.mark.numeric
@pytest.mark.parametrize("kernel_shape", [(3, 3, 1, 16), (1, 1, 16, 24)], ids=["depthwise", "1x1"])
@pytest.mark.parametrize(("size", "stride"), [(8, 1), (8, 2), (7, 2)])
def test_a_bfloat16_gradient_is_the_exact_one_rounded(
    tf: Any, kernel_shape: Tuple[int, ...], size: int, stride: int
) -> None:
    needs_exact_bfloat16()
    random = np.random.default_rng(5)
    values = random.standard_normal((2, size, size, 16))
    kernel = random.standard_normal(kernel_shape)
    outputs = (size - 1) // stride + 1
    slopes = random.standard_normal((2, outputs, outputs, kernel_shape[3]))
    parts = [tf.cast(part, tf.bfloat16) for part in (values, kernel, slopes)]

    def gradients(values: Any, kernel: Any, slopes: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch((values, kernel))
            outputs = convolve(tf, values, kernel, stride, training=True)
        return tape.gradient(outputs, (values, kernel), output_gradients=slopes)

    compiled = tf.function(gradients, jit_compile=compiler(tf), autograph=False)
    # In float32 they are TensorFlow's own.
    exact = gradients(*(tf.cast(part, tf.float32) for part in parts))
    for found, expected in zip(compiled(*parts), exact):
        assert found.dtype == tf.bfloat16
        # With 8 significant bits one rounding changes an element by at most 2^-8 of it. TensorFlow
        # without oneDNN would also round partial sums: has_bfloat16_convolutions rules that out.
        assert error(tf.cast(found, tf.float32), expected) < 2.0**-8


@pytest.mark.numeric
@pytest.mark.parametrize("stride", [1, 2])
def test_an_ungrouped_kernel_convolves_as_the_grouped_one(tf: Any, stride: int) -> None:
    groups, depth, outputs = 3, 4, 6
    random = np.random.default_rng(5)
    values = tf.constant(random.standard_normal((2, 8, 8, groups * depth)), tf.float32)
    kernel = tf.constant(random.standard_normal((3, 3, depth, outputs)), tf.float32)
    slopes = tf.constant(random.standard_normal((2, 8 // stride, 8 // stride, outputs)), tf.float32)

    def by_parts(values: Any, kernel: Any) -> Any:
        pairs = zip(tf.split(values, groups, 3), tf.split(kernel, groups, 3))
        return tf.concat([convolve(tf, *pair, stride, training=True) for pair in pairs], 3)

    def dense(values: Any, kernel: Any) -> Any:
        return convolve(tf, values, ungrouped(tf, kernel, groups), stride, training=True)

    results = []
    for compute in (dense, by_parts):
        with tf.GradientTape() as tape:
            tape.watch((values, kernel))
            found = compute(values, kernel)
        results.append([found, *tape.gradient(found, (values, kernel), output_gradients=slopes)])
    results.append([convolve(tf, values, kernel, stride, training=False)])
    for found, expected in zip(results[0], results[1]):
        assert error(found, expected) < 1e-6
    assert error(results[2][0], results[1][0]) < 1e-6
