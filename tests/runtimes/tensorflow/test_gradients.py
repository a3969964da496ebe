"""A closed step leaves none of its graphs in memory."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from ipubench.fixtures.runtimes.tensorflow.graphs import TracedGradients
from tests.support.tensorflow_cases import small, trained

pytestmark = pytest.mark.framework
tf = pytest.importorskip("tensorflow", reason="pip install '.[tensorflow]' adds TensorFlow")


doubled: Any = tf.custom_gradient(lambda values: (2 * values, lambda slopes: 2 * slopes))


def traced() -> Any:
    """Return a function with such a gradient, and its graph."""

    def slope(values: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(values)
            result = doubled(values)
        return tape.gradient(result, values)

    function = tf.function(slope, autograph=False)
    return function, function.get_concrete_function(tf.TensorSpec([], tf.float32)).graph


def test_a_traced_gradient_can_be_dropped() -> None:
    earlier, _ = traced()
    gradients = TracedGradients()
    function, graph = traced()
    left = weakref.ref(graph)
    del graph
    gradients.forget()
    assert float(function(tf.constant(3.0))) == 2  # traced graphs still run
    assert float(earlier(tf.constant(3.0))) == 2
    assert float(traced()[0](tf.constant(3.0))) == 2
    del function
    gc.collect()
    assert left() is None


def test_a_closed_step_leaves_no_graph() -> None:
    """Group norms have custom gradients."""
    step = trained(small(abs_learning_rate=0.1))
    step.compile()
    left = weakref.ref(step._run.get_concrete_function().graph)
    step.close()
    gc.collect()
    assert left() is None
