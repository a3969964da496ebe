"""Student's t quantile compared with tables and SciPy."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.plugins.gate.student import student_quantile


@pytest.mark.parametrize(
    ("confidence", "degrees", "value"),
    # Any table of Student's t distribution.
    [(0.975, 1, 12.706), (0.975, 10, 2.228), (0.95, 5, 2.015), (0.995, 30, 2.750)],
)
def test_the_tables(confidence: float, degrees: int, value: float) -> None:
    assert student_quantile(confidence, degrees) == pytest.approx(value, abs=5e-4)
    assert student_quantile(1 - confidence, degrees) == pytest.approx(-value, abs=5e-4)


def test_one_and_two_degrees_have_closed_forms() -> None:
    assert student_quantile(0.9, 1) == pytest.approx(math.tan(math.pi * 0.4), rel=1e-12)
    assert student_quantile(0.9, 2) == pytest.approx(0.8 * math.sqrt(2 / 0.36), rel=1e-12)
    assert student_quantile(0.5, 3) == 0


@given(tail=st.floats(1e-9, 0.4), degrees=st.floats(1, 1000))
def test_scipy_over_the_whole_range_of_the_gate(tail: float, degrees: float) -> None:
    special = pytest.importorskip("scipy.special", reason="pip install scipy")
    expected = float(special.stdtrit(degrees, 1 - tail))
    assert student_quantile(1 - tail, degrees) == pytest.approx(expected, rel=1e-7)
