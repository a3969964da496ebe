"""Durations as people write them, on every option that takes one."""

from __future__ import annotations

import argparse
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.plugins.record.text import duration, duration_text, rate_text, time_text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("30 s", 30),
        ("10min", 600),
        ("1.5h", 5400),
        ("1h30min", 5400),
        ("1h 30min 5s", 5405),
        ("2min30s", 150),
        ("45", 45),
        ("0.5", 0.5),
        (".5s", 0.5),
        (" 5. ", 5),
        ("5sec", 5),
        ("5 minutes", 300),
        ("10m", 600),
        ("2 hours", 7200),
        ("1hr 30mins", 5400),
        ("5ms", 0.005),
    ],
)
def test_a_duration_has_a_unit_or_is_in_seconds(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        *("", "0", "0s", "-3s", "5 parsecs", "1s30min", "1e3", "inf", "nan", "s", "."),
        *("1h30", "1.2.3s", "9" * 100, "30s 30s"),
    ],
)
def test_other_texts_are_refused_with_the_expected_form(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="30s, 10min"):
        duration(text)


@given(st.text(alphabet="0123456789. hminsec", max_size=20) | st.text(max_size=30))
def test_any_text_is_a_positive_time_or_refused(text: str) -> None:
    try:
        seconds = duration(text)
    except argparse.ArgumentTypeError as error:
        assert "\n" not in str(error)
    else:
        assert seconds > 0
        assert math.isfinite(seconds)


@given(st.integers(0, 999), st.integers(0, 999), st.integers(1, 999))
def test_hours_minutes_and_seconds_add_up(hours: int, minutes: int, seconds: int) -> None:
    whole = 3600 * hours + 60 * minutes + seconds
    assert duration(f"{hours}h{minutes}min{seconds}s") == whole
    assert duration(f"{hours} h {minutes} min {seconds} s") == whole
    assert duration(str(whole)) == whole


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (30, "30s"),
        (600, "10min"),
        (5400, "1.5h"),
        (90, "1.5min"),
        (61, "61s"),
        (0.5, "0.5s"),
        (1e6, "1000000s"),
    ],
)
def test_a_duration_is_written_with_the_largest_unit_that_fits(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2.2e-7, "220 ns"),
        (0.99996e-6, "1 µs"),
        (1.568e-5, "15.7 µs"),
        (0.002312, "2.31 ms"),
        (0.0856, "85.6 ms"),
        (1.2, "1.2 s"),
        (1234.5, "1,234 s"),
        (math.nan, "-"),
    ],
)
def test_a_time_has_the_unit_that_suits_it(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(98.764, "98.76"), (65650, "65,650"), (1.04e6, "1.04 M"), (3.1e8, "310 M"), (2e9, "2 G")],
)
def test_a_large_rate_has_a_prefix(value: float, text: str) -> None:
    assert rate_text(value) == text
