"""Words of a command line that are nearly right: which one is meant."""

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
from ipubench.plugins.command_line.set_option import advice_about
from ipubench.plugins.command_line.words import LONG

DEVICES = {"gpu": "cuda", "nvidia": "cuda", "host": "cpu"}
DATA = {"random": "generated", "host": "generated", "imagenet": "real"}
PRECISIONS = {
    **dict.fromkeys(("fp32", "float32", "f32", "single", "32"), "32.32"),
    **dict.fromkeys(("fp16", "float16", "f16", "half", "bf16", "bfloat16", "16"), "16.16"),
}
# Options with a folder as value that are flags of the original programs.
LEAVE_FILES = ("--profile", "--report", "--save-graph")


def one_of(choices: Sequence[str], meant: Mapping[str, str]) -> Callable[[str], str]:
    """Return the type of an option for argparse; ``meant``: other words for its values."""

    def chosen(text: str) -> str:
        if text in choices:
            return text
        other = meant.get(text.lower())
        near = f"; {text} is {other} here" if other else nearest(text, choices)
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(choices)}{near}")

    return chosen


def shell_words(text: str) -> str:
    """Return words for another program as they are, where a shell could tell them apart."""
    try:
        shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
    return text


def name_unknown_options(
    parser: pytest.Parser, known: Mapping[str, str], words: Sequence[str]
) -> None:
    """Have pytest's error about an unknown option show what to write instead.

    It shows the parser's ``extra_info``, after which it ends. ``known``: all options that it has,
    and their names in ``config.option``.
    """
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not name.startswith("--") or name == "--":
            continue
        if not equals:
            value = " ".join(itertools.takewhile(_may_be_value, words[place + 1 :]))
        ours = known.get(name, PREFIX).startswith(PREFIX)
        if name not in known or (name in LEAVE_FILES and ours and not value):
            parser.extra_info.update(_instead(name, value, list(known)))


def _may_be_value(word: str) -> bool:
    return not re.match(r"-+[a-zA-Z]", word) and not os.path.exists(word.split("::")[0])


def _instead(name: str, value: str, known: Sequence[str]) -> Dict[str, str]:
    """Return what pytest shows about an option that it does not have, or has with a value."""
    key = name[2:].replace("-", "_")
    advice = advice_about(key, value)
    if advice is not None:
        return {name: advice}
    (assignment,) = mask_words([f"--set={key}={value or 'true'}"])
    found = {f"{name}, as an option of a case": f"{shlex.quote(assignment)} (see --describe)"}
    # Pytest takes no beginning of an option for it.
    names = [other[2:] for other in known if other.startswith("--") and not other.startswith(LONG)]
    begun = sorted((other for other in names if other.startswith(name[2:])), key=len)
    near = begun or difflib.get_close_matches(name[2:], names, n=1, cutoff=0.75)
    if near:
        found[f"{name}, did you mean"] = f"--{near[0]}"
    return found
