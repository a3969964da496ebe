"""The data flow of a program is that of another order of the same operations, and of no other."""

from __future__ import annotations

from typing import Any, Callable, List

import pytest

from scripts.data_flow import data_flow
from scripts.image_programs import graph_lines

Body = Callable[[Any, Any, Any], Any]


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


@pytest.fixture
def lines(tf: Any) -> Callable[[Body], List[str]]:
    """The text of a function of an input and two variables, called by another function."""
    first, second = tf.Variable([1.0, 2.0]), tf.Variable([3.0, 4.0])

    def traced(body: Body) -> List[str]:
        inner = tf.function(lambda values: body(values, first, second), autograph=False)
        outer = tf.function(lambda values: first + second + inner(values), autograph=False)
        return graph_lines(outer.get_concrete_function(tf.TensorSpec([2])).graph.as_graph_def())

    return traced


def products_first(x: Any, first: Any, second: Any) -> Any:
    """Read the first variable, then the second."""
    product = first * 2.0
    total = x + second
    first.assign(product - total)
    return product - total


def products_last(x: Any, first: Any, second: Any) -> Any:
    """Do the same, and read the second variable first: it is the first that is captured."""
    total = x + second
    product = first * 2.0
    first.assign(product - total)
    return product - total


def of_other_variables(x: Any, first: Any, second: Any) -> Any:
    return products_first(x, second, first)


def the_other_difference(x: Any, first: Any, second: Any) -> Any:
    product, total = first * 2.0, x + second
    first.assign(product - total)
    return total - product


def of_what_was_assigned(x: Any, first: Any, second: Any) -> Any:
    total = x + second
    first.assign(first * 2.0 - total)
    return first * 2.0 - total


def test_another_order_is_the_same_data_flow(lines: Callable[[Body], List[str]]) -> None:
    texts = lines(products_first), lines(products_last)
    assert texts[0] != texts[1]
    assert data_flow(texts[0]) == data_flow(texts[1])


@pytest.mark.parametrize(
    "body",
    [of_other_variables, the_other_difference, of_what_was_assigned],
    ids=lambda body: str(body.__name__),
)
def test_other_values_are_another_data_flow(lines: Callable[[Body], List[str]], body: Body) -> None:
    assert data_flow(lines(products_first)) != data_flow(lines(body))
