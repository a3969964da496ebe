"""Suggests corrections for misspelled options and values."""

from __future__ import annotations

import argparse
import difflib
import itertools
import os
import re
import shlex
from typing import Callable, Dict, Mapping, Sequence

import pytest

from ipubench.fixtures.case.masking import mask_words
from ipubench.fixtures.case.options import nearest
from ipubench.fixtures.command_line import PREFIX
from ipubench.plugins.command_line.arguments import LONG
from ipubench.plugins.command_line.set_option import advice_about

DEVICES = {"gpu": "cuda", "nvidia": "cuda", "host": "cpu"}
DATA = {"random": "generated", "host": "generated", "imagenet": "real"}
PRECISIONS = {
    **dict.fromkeys(("fp32", "float32", "f32", "single", "32"), "32.32"),
    **dict.fromkeys(("fp16", "float16", "f16", "half", "bf16", "bfloat16", "16"), "16.16"),
}
# Options with a folder that are flags in the original programs.
LEAVE_FILES = ("--profile", "--report", "--save-graph")


def one_of(choices: Sequence[str], meant: Mapping[str, str]) -> Callable[[str], str]:
    """Return argparse's type for an option; ``meant``: other words -> its values."""

    def chosen(text: str) -> str:
        if text in choices:
            return text
        other = meant.get(text.lower())
        near = f"; {text} is {other} here" if other else nearest(text, choices)
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(choices)}{near}")

    return chosen


def shell_arguments(text: str) -> str:
    """Return arguments for another program unchanged, if a shell could split them."""
    try:
        shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
    return text


def name_unknown_options(
    parser: pytest.Parser, known: Mapping[str, str], arguments: Sequence[str]
) -> None:
    """Add advice about unknown options to the parser's ``extra_info``, which its error shows.

    ``known``: all options of the parser -> their names in ``config.option``.
    """
    for position, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if not name.startswith("--") or name == "--":
            continue
        if not equals:
            value = " ".join(itertools.takewhile(_may_be_value, arguments[position + 1 :]))
        ours = known.get(name, PREFIX).startswith(PREFIX)
        if name not in known or (name in LEAVE_FILES and ours and not value):
            parser.extra_info.update(_instead(name, value, list(known)))


def _may_be_value(text: str) -> bool:
    return not re.match(r"-+[a-zA-Z]", text) and not os.path.exists(text.split("::")[0])


def _instead(name: str, value: str, known: Sequence[str]) -> Dict[str, str]:
    """Return the advice about an option that is unknown, or that lacks its value."""
    key = name[2:].replace("-", "_")
    advice = advice_about(key, value)
    if advice is not None:
        return {name: advice}
    names = [other[2:] for other in known if other.startswith("--") and not other.startswith(LONG)]
    typo = difflib.get_close_matches(name[2:], names, n=1, cutoff=0.75)
    # pytest does not accept abbreviations, so suggest the full name.
    begun = sorted((other for other in names if other.startswith(name[2:])), key=len)
    near = {f"{name}, did you mean": f"--{other}" for other in (begun or typo)[:1]}
    if typo:
        return near
    (assignment,) = mask_words([f"--set={key}={value or 'true'}"])
    case = f"{shlex.quote(assignment)} (see --describe)"
    return {**near, f"{name}, as an option of a case": case}
