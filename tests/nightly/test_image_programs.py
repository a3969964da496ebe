"""The record of image cases shows a change of an option and of an operation, and nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any, List

import pytest

from scripts import image_programs
from scripts.image_programs import digest, graph_lines, options_text, recorded


@pytest.fixture
def tf() -> Any:
    return pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


def lines(tf: Any, body: Any) -> List[str]:
    traced = tf.function(body, autograph=False).get_concrete_function(tf.TensorSpec([2]))
    return graph_lines(traced.graph.as_graph_def())


def test_the_names_of_pythons_functions_are_not_recorded(tf: Any) -> None:
    def one(images: Any) -> Any:
        return tf.function(lambda values: values * 2.0)(images)

    def renamed(pixels: Any) -> Any:
        def inner(numbers: Any) -> Any:
            return numbers * 2.0

        return tf.function(inner)(pixels)

    assert lines(tf, one) == lines(tf, renamed)


@pytest.mark.parametrize(
    "other",
    [lambda tf, x: x * 3.0, lambda tf, x: x + 2.0, lambda tf, x: tf.cast(x, "float16") * 2.0],
    ids=["constant", "operation", "type"],
)
def test_another_operation_is_recorded(tf: Any, other: Any) -> None:
    assert lines(tf, lambda x: x * 2.0) != lines(tf, lambda x: other(tf, x))


def test_each_image_case_is_in_the_file() -> None:
    names = [line.split()[1] for line in recorded(image_programs.CASES)]
    assert {name for name, _, _ in image_programs.cases()} <= set(names)


def test_another_option_is_another_text() -> None:
    _, config, _ = next(image_programs.cases())
    other = dataclasses.replace(config, precision="32.32")
    assert digest(options_text(config)) != digest(options_text(other))
