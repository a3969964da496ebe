"""`--set`: its syntax and the types of its values."""

from __future__ import annotations

import re
from typing import Any, List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.bench_inference.classifier import Classifier
from ipubench.bench_training.application.case import Application
from ipubench.bench_training.training import Training
from ipubench.fixtures.case.options import option_types
from ipubench.fixtures.command_line import NAMES
from ipubench.plugins.command_line.set_option import (
    convert,
    original_options,
    parse_assignments,
    split_values,
    unknown_key_message,
)
from tests.support.fake_cases import Fake, Other


def test_values_are_split_at_commas() -> None:
    assert parse_assignments(["batch-size=1,8,32", "flavour=sweet"]) == {
        "batch_size": ["1", "8", "32"],
        "flavour": ["sweet"],
    }


def test_json_is_not_split() -> None:
    text = '{"a": "b,c", "d": [1, 2]}'
    assert split_values(f'{text},{{"e": 1}}') == [text, '{"e": 1}']
    assert split_values('{"a": "}", "b": 1}') == ['{"a": "}", "b": 1}']
    assert split_values('{"a": "},{"},"b,c"') == ['{"a": "},{"}', '"b,c"']


@given(st.lists(st.text(st.characters(blacklist_characters=',"{}[]()')), min_size=1))
def test_splitting_undoes_joining(values: List[str]) -> None:
    assert split_values(",".join(values)) == values


@pytest.mark.parametrize(
    ("words", "message"),
    [
        *((["batch_size"], "write --set="), (["  =1"], "write --set=")),
        (["batch_size=1", "batch-size=2"], "^--set=batch-size=2: batch_size .*twice"),
        (["api_token=a-secret", "api_token=b"], r"^--set=api_token=\*\*\*: api_token "),
    ],
)
def test_syntax_errors_are_usage_errors(words: List[str], message: str) -> None:
    with pytest.raises(pytest.UsageError, match=message):
        parse_assignments(words)


@pytest.mark.parametrize(
    ("word", "instead"),
    [
        ("data=real", " --data=real "),
        ("data=", "'' .* synthetic, generated, real; .* --data=VALUE"),
        ("precision=1", "'1' .* 16.16, 16.32, 32.32; .* --precision=VALUE"),
        ("system=ipu", " --device=ipu "),
        ("name=x", "the name"),
    ],
)
def test_options_with_a_flag_are_refused_with_the_flag(word: str, instead: str) -> None:
    with pytest.raises(pytest.UsageError, match=instead):
        parse_assignments([word])


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("batch_size", "32", 32),
        ("batch_seconds", "1e-3", 0.001),
        ("flag", "Yes", True),
        ("flag", "off", False),
        ("flavour", "sweet", "sweet"),
        ("layers", "one two/three", ("one", "two/three")),
        ("layers", "", ()),
    ],
)
def test_text_becomes_the_option_type(key: str, text: str, value: Any) -> None:
    assert convert(Fake, key, text) == value


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("batch_size", "1.5", "'1.5' .* whole number"),
        ("batch_size", str(2**63), "'9223372036854775808' .* large"),
        ("batch_size", "0", "'0' .* smallest value, 1"),
        ("batch_seconds", "nan", "'nan' .* number"),
        ("batch_seconds", "-1", "smallest value"),
        ("flag", "maybe", "true nor false"),
        ("flavour", "swet", r" plain, sour, sweet; .* sweet\?"),
    ],
)
def test_bad_values_are_refused_with_the_expected_type(key: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        convert(Fake, key, text)


def test_an_unknown_key_lists_the_known_ones_and_the_nearest() -> None:
    message = unknown_key_message("batchsize", [Other])
    assert re.search(
        "'batchsize'; .* micro_batch_size.*: batches_per_step, micro_batch_size", message
    )
    assert "flavour" not in message
    assert "'xyz'. The" in unknown_key_message("xyz", [Other])


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("gc_profile", "--profile=DIR"),
        ("log-dir", "--results-dir=DIR"),
        ("distributed", "--set=instances=N"),
        ("use_generated_data", "--data=generated"),
        ("no-train", "-k inference"),
        ("simulation", "--device=ipu-model"),
    ],
)
def test_options_of_the_original_programs_are_refused_with_advice(key: str, instead: str) -> None:
    assert instead in unknown_key_message(key, [Other])


def test_advice_names_existing_options(pytestconfig: pytest.Config) -> None:
    """A renamed option must not stay in the advice."""
    options = {*option_types(Training), *option_types(Application), *option_types(Classifier)}
    for advice in original_options().values():
        for name in re.findall(r"--set=(\w+)", advice):
            assert name in options
        for flag in set(re.findall(r"--([a-z-]+)=", advice)) - {"set"}:
            assert flag.replace("-", "_") in NAMES
