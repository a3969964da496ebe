"""Parses `--set KEY=VALUE`, and converts the text to the option's type."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Sequence, Type

import pytest

from ipubench.fixtures.case.masking import mask_words
from ipubench.fixtures.case.options import (
    ALIASES,
    DATA_MODES,
    MODES,
    PRECISIONS,
    CaseConfig,
    check_value,
    nearest,
    option_types,
)
from ipubench.fixtures.case.values import from_text

OPENING = {"{": "}", "[": "]", "(": ")"}
# Keys that --set refuses -> what to use instead.
RESERVED = {"data": "--data=", "precision": "--precision=", "mode": "-k ", "system": "--device="}
# Values of the original programs' --synthetic-data -> our --data.
DATA_OF = {
    "ipu": "synthetic",
    "true": "synthetic",
    "host": "generated",
    "cpu": "generated",
    "none": "real",
    "false": "real",
}


@functools.lru_cache(maxsize=None)
def original_options() -> Dict[str, str]:
    """Return options of the original programs that we do not have -> what to use instead.

    These include options of poprun and of Graphcore's runner. Messages about --set, and about
    unknown options, show the advice.
    """
    path = Path(__file__).with_name("original_options.json")
    found: Dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    return found


def parse_assignments(given: Sequence[str]) -> Dict[str, List[str]]:
    """Return key -> values, in the order given. Raises pytest.UsageError on a syntax error."""
    assignments: Dict[str, List[str]] = {}
    for assignment in given:
        (shown,) = mask_words([f"--set={assignment}"])
        key, equals, text = assignment.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise pytest.UsageError(f"{shown}: write --set=KEY=VALUE[,VALUE...]")
        if not can_be_set(key) and key != "name":
            raise pytest.UsageError(f"{shown}: {advice_about(key, text)}")
        if key == "name":
            raise pytest.UsageError(f"{shown}: the name of a case cannot be set")
        assign(assignments, key, split_values(text), shown)
    return assignments


def can_be_set(name: str) -> bool:
    """Return whether --set accepts an option, or a command's parameter, of this name."""
    return name.replace("-", "_") not in (*RESERVED, "name", "synthetic_data")


def advice_about(key: str, text: str) -> Optional[str]:
    """Return what to write instead of an option of the original programs; None for others."""
    if key in RESERVED:
        return _reserved(key, text.strip())
    return _synthetic_data(text) if key == "synthetic_data" else original_options().get(key)


def _reserved(key: str, text: str) -> str:
    """Return the flag to write instead of ``--set=KEY=VALUE``."""
    choices = {"mode": MODES, "data": DATA_MODES, "precision": PRECISIONS}.get(key, ())
    if choices and text not in choices:
        begun = [choice for choice in choices if text.isalpha() and choice.startswith(text)]
        near = begun or difflib.get_close_matches(text, choices, n=1)
        return (
            f"{text!r} is not one of {', '.join(choices)}; write {RESERVED[key]}"
            f"{near[0] if near else 'VALUE'}"
        )
    return f"use {RESERVED[key]}{text or 'VALUE'} instead"


def _synthetic_data(text: str) -> str:
    """Return what to write instead of the original's --synthetic-data."""
    data = DATA_OF.get(text.strip().lower())
    if data is not None:
        return f"use --data={data} instead"
    return "use --data=synthetic (the original's ipu) or --data=generated (its host or cpu) instead"


def assign(assignments: Dict[str, List[str]], key: str, values: List[str], source: str) -> None:
    """Add an assignment. Raises UsageError if the option, or an alias, has one already."""
    for other in assignments:
        if ALIASES.get(other, other) == ALIASES.get(key, key):
            raise pytest.UsageError(
                f"{source}: {key} is given twice{f', also as {other}' if other != key else ''}; "
                "separate the values of a sweep by commas"
            )
    assignments[key] = values


def split_values(text: str) -> List[str]:
    """Split at commas, except within brackets or double quotes, as in JSON."""
    values = [""]
    closing: List[str] = []
    quoted = False
    for character in text:
        if character == "," and not closing and not quoted:
            values.append("")
            continue
        if character == '"':
            quoted = not quoted
        elif not quoted and character in OPENING:
            closing.append(OPENING[character])
        elif not quoted and closing and character == closing[-1]:
            closing.pop()
        values[-1] += character
    return values


def convert(cls: Type[CaseConfig], key: str, text: str) -> Any:
    """Return the value of the option ``key`` from its text. Raises ValueError."""
    value = from_text(option_types(cls)[key], text)
    check_value(cls, key, value)
    return value


def unknown_key_message(key: str, classes: Iterable[Type[CaseConfig]]) -> str:
    """Return the message for a key that no selected case has, with the nearest and all keys."""
    advice = original_options().get(key.replace("-", "_"))
    if advice is not None:
        return f"--set: no selected case has an option {key!r}; {advice}"
    known = sorted({item.name for cls in classes for item in dataclasses.fields(cls)})
    settable = list(filter(can_be_set, known))
    aliases = [alias for alias, target in ALIASES.items() if target in settable]
    return (
        f"--set: no selected case has an option {key!r}{nearest(key, settable + aliases) or '.'} "
        f"The selected cases have: {', '.join(settable)}"
    )
