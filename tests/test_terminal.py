"""The table at the end: widths, numbers, cut names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.terminal import HEADINGS, change_text, layout
from plugins.units import percent, short_number

ROW = ("  resnet50-bs16-synthetic", "207.3", "0.4%", "77.11", "80.02", "3.4", "78%", "-1.2%")


def test_the_usual_table_fits_80_columns() -> None:
    lines = layout([("bench_cnn_torch (images/s)",), ROW], 80)
    assert max(map(len, lines)) <= 79
    assert lines[0].split() == " ".join(HEADINGS).split()
    assert lines[2].split() == [word.strip() for word in ROW]


def test_columns_line_up() -> None:
    short = ("  a", "1", "0.1%", "1", "1", "reused", "1%", "new")
    lines = layout([ROW, short], 100)
    assert len(lines[1]) == len(lines[2])
    assert lines[1].index("207.3") + 5 == lines[2].index(" 1 ") + 2


def test_an_empty_column_is_left_out() -> None:
    lines = layout([(*ROW[:6], "-", "-")], 80)
    assert "peak" not in lines[0] and "change" not in lines[0]


@given(st.integers(20, 200), st.text("abcdefgh-", min_size=1, max_size=120))
def test_a_long_name_is_cut_in_its_middle(width: int, name: str) -> None:
    lines = layout([(name, *ROW[1:])], width)
    shown = lines[1].split()[0]
    assert shown[:3] == name[:3] and shown[-3:] == name[-3:]
    if width >= 80:
        assert max(map(len, lines)) < width


def test_no_case_makes_no_table() -> None:
    assert layout([], 80) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (98.7654, "98.77"),
        (1234.4, "1,234"),
        (4000.0, "4,000"),
        (0.012344, "0.01234"),
        (999.96, "1,000"),
        (123456.7, "123,500"),
        (float("nan"), "-"),
    ],
)
def test_numbers_have_four_digits(value: float, text: str) -> None:
    assert short_number(value) == text


@given(st.floats(1e-9, 1e12))
def test_a_short_number_is_within_its_last_digit(value: float) -> None:
    assert float(short_number(value).replace(",", "")) == pytest.approx(value, rel=6e-4)


def test_percentages() -> None:
    assert percent(0.0512) == "5.1%"
    assert percent(-0.0512, sign=True) == "-5.1%"
    assert percent(0.5, 0) == "50%"
    assert percent(float("inf")) == "-"


def test_a_change_is_a_number_or_the_reason_there_is_none() -> None:
    assert change_text(None) == "-"
    assert change_text({"kind": "new", "change": None}) == "new"
    assert change_text({"kind": "pass", "change": 0.012}) == "+1.2%"
