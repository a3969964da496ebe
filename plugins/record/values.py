"""Values of command-line options: whole numbers, seconds, percentages."""

from __future__ import annotations

import argparse
import math
import os
import shlex
from typing import Any, List, Optional
import pytest
from ipubench.fixtures.case.options import DATA_MODES
from ipubench.fixtures.case.options import PRECISIONS
from ipubench.fixtures.devices import KINDS
import fnmatch
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple
import yaml
from ipubench.fixtures.case.options import nearest
from ipubench.fixtures.machine.paths import user_path
from ipubench.plugins.baseline import BaselineError
from ipubench.plugins.baseline import baseline_path
from ipubench.plugins.run.results import run_key
from ipubench.plugins.record.process_sample import METRICS
from ipubench.plugins.record.process_sample import THROUGHPUT
from ipubench.plugins.run.resume import depends_on
from ipubench.plugins.run.resume import digest
from ipubench.plugins.selection.expand import case_of
from ipubench.plugins.selection.expand import selection_key
from ipubench.plugins.compare.policy_file import LARGEST
from ipubench.plugins.compare.policy_file import PERCENTAGE
from ipubench.plugins.compare.policy_file import _short

def whole_number(minimum: int) -> Any:
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
    value = finite_number(text)
    if value is None or value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return value


def percentage(text: str) -> float:
    value = finite_number(text[:-1]) if text.endswith("%") else None
    if value is None or not 0 < value < 100:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a percentage between 0% and 100%; write it as 5%"
        )
    return value / 100


def finite_number(text: str) -> Optional[float]:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def fraction(text: str) -> float:
    """Return the fraction that a percentage stands for. Raises ValueError that says the form."""
    value = float(text.rstrip("% \t")) / 100 if PERCENTAGE.fullmatch(text.strip()) else math.nan
    if not 0 < value <= LARGEST:
        raise ValueError(f"{_short(text)} is not a percentage above 0% and up to 1000%, such as 3%")
    return value


def percentage_argument(text: str) -> float:
    """Return the same for argparse, which shows only an error of its own."""
    try:
        return fraction(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
