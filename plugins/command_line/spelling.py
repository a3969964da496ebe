"""Words of a command line that are nearly right: which one is meant."""

from __future__ import annotations

import argparse
import difflib
import shlex
from typing import Callable, List, Mapping, Sequence

import pytest

from ipubench.fixtures.case.options import nearest
from ipubench.plugins.command_line.words import typed_words

DEVICES = {"gpu": "cuda", "nvidia": "cuda", "host": "cpu"}
DATA = {"random": "generated", "host": "generated", "imagenet": "real"}
PRECISIONS = {
    **dict.fromkeys(("fp32", "float32", "f32", "single", "32"), "32.32"),
    **dict.fromkeys(("fp16", "float16", "f16", "half", "bf16", "bfloat16", "16"), "16.16"),
}


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


def name_unknown_options(parser: pytest.Parser, manager: pytest.PytestPluginManager) -> None:
    """Have pytest's error of an option that nobody knows name the nearest one.

    It shows the parser's ``extra_info``, after which it ends.
    """
    config = manager.get_plugin("pytestconfig")
    groups = [*getattr(parser, "_groups", ()), getattr(parser, "_anonymous", None)]
    known = [
        name for group in groups for one in getattr(group, "options", ()) for name in one.names()
    ]
    if not isinstance(config, pytest.Config) or not known:
        return
    words = [word.partition("=")[0] for word in typed_words(config)]
    for word in words:
        if word.startswith("--") and word not in ("--", *known):
            # Pytest takes no beginning of an option for it.
            begun = sorted((name for name in known if name.startswith(word)), key=len)
            found: List[str] = begun or difflib.get_close_matches(word, known, n=1)
            if found:
                parser.extra_info[f"{word}, did you mean"] = found[0]
