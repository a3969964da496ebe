"""Values of command-line options: whole numbers, seconds, percentages."""

from __future__ import annotations

import argparse
import math
import re
from typing import Callable, Optional

from ipubench.fixtures.case.errors import shortened

LARGEST = 10.0  # 1000%: ten times more is another order of magnitude, not a tolerance
PERCENTAGE = re.compile(r"[0-9]{1,4}(\.[0-9]{1,6})?\s?%")


def whole_number(minimum: int) -> Callable[[str], int]:
    """Return an argparse type: whole numbers from ``minimum`` up."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = minimum - 1
        if value < minimum:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {minimum} up")
        return value

    return parse


def seconds(text: str) -> float:
    """Return a positive number of seconds, as an argparse type."""
    value = finite_number(text)
    if value is None or value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return value


def percentage(text: str) -> float:
    """Return the fraction that a percentage below 100% stands for, as an argparse type."""
    value = finite_number(text[:-1]) if text.endswith("%") else None
    if value is None or not 0 < value < 100:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a percentage between 0% and 100%; write it as 5%"
        )
    return value / 100


def finite_number(text: str) -> Optional[float]:
    """Return the number that a text says, or None where it says none that is finite."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def fraction(text: str) -> float:
    """Return the fraction that a percentage stands for. Raises ValueError that says the form."""
    value = float(text.rstrip("% \t")) / 100 if PERCENTAGE.fullmatch(text.strip()) else math.nan
    if not 0 < value <= LARGEST:
        raise ValueError(
            f"{shortened(text)} is not a percentage above 0% and up to 1000%, such as 3%"
        )
    return value


def percentage_argument(text: str) -> float:
    """Return the same for argparse, which shows only an error of its own."""
    try:
        return fraction(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
