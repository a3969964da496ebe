"""Numbers as people read them."""

from __future__ import annotations

import math


def short_number(value: float) -> str:
    """Return four significant digits without an exponent, thousands separated: 12,340 or 98.76."""
    if not math.isfinite(value):
        return "-"
    if value == 0:
        return "0"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    rounded = round(value, 3 - math.floor(math.log10(abs(value))))
    return f"{rounded:,.{digits}f}"


def percent(value: float, digits: int = 1, sign: bool = False) -> str:
    """Return a fraction as a percentage."""
    if not math.isfinite(value):
        return "-"
    return f"{100 * value:{'+' if sign else ''}.{digits}f}%"
