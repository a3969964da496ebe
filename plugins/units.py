"""Numbers as people read them."""

from __future__ import annotations

import math


def short_number(value: float) -> str:
    """Return four significant digits without an exponent, thousands separated: 12,340 or 98.76."""
    if not math.isfinite(value):
        return "-"
    if value == 0:
        return "0"
    rounded = float(f"{value:.4g}")
    decimals = 3 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(0, decimals)}f}"


def percent(value: float, digits: int = 1, sign: bool = False) -> str:
    """Return a fraction as a percentage."""
    if not math.isfinite(value):
        return "-"
    rounded = round(100 * value, digits) + 0.0  # no minus before a zero
    return f"{rounded:{'+' if sign else ''}.{digits}f}%"


def cut_middle(text: str, width: int) -> str:
    """Return a text in at most ``width`` columns, cut in its middle, where names differ least."""
    if len(text) <= width:
        return text
    head = (width - 2) // 2
    return text[:head] + ".." + text[len(text) - (width - 2 - head) :]
