"""Malformed benchmarks.yml files: one message with the file and the line."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Dict

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ipubench.fixtures.case.yaml_reader import Value, YamlError, parse
from ipubench.plugins.benchmarks_yml.entry import KEYS
from ipubench.plugins.benchmarks_yml.expression import Expression
from ipubench.plugins.benchmarks_yml.reader import entries_of, read_entries
from tests.support.tries import tries

MANY = "a:\n  cmd: x\n  parameters:\n" + "".join(f"    p{n}: '1,2'\n" for n in range(20))
ALIASES = "a: &a {" + ", ".join(f"k{n}: 1" for n in range(500)) + "}\n"

# A text, the line of its message (0: the whole file), and a part of the message.
# fmt: off
MALFORMED = [
    ("", 0, "is empty"),
    ("- a\n", 1, "names"),
    ("a: [1\nb: 2\n", 2, "not valid YAML"),
    ("a:\n  cmd: x\n  cmd: y\n", 3, "'cmd'"),
    ("1: {cmd: x}\n", 1, "quotes"),
    ("a: &a\n  b: *a\n", 0, "contains itself"),
    ("a: {<<: 5, cmd: x}\n", 1, "<<"),
    ("a: {cmd: !!python/name:os.system x}\n", 1, "type"),
    ("a: {cmd: x, timeout: 1" + "0" * 400 + "}\n", 1, "100 characters"),
    ('a: {cmd: "x \\0"}\n', 1, "null character"),
    pytest.param("a: " + "[" * 100_000 + "\n", 0, "nested too deeply", id="nested"),
    pytest.param(ALIASES + "b: {<<: [" + "*a," * 5_000 + "]}\n", 2, "200,000 names", id="merges"),
    ("common_options: {}\n", 0, "'options'"),
    ("a:\n  data: {}\n", 1, "no cmd"),
    ("a: &a {timeout: 5}\nb:\n  cmd: x\n", 1, "no cmd"),  # an anchor that nothing merges
    ("a: {cmd: x, notebook: y}\n", 1, "both cmd and notebook"),
    ("a:\n  cmd: x\n  timout: 5\n", 3, "timeout"),
    ("a: {cmd: ' '}\n", 1, "cmd"),
    ("a:\n  cmd: x {bs}\n  parameters:\n    bsz: 1\n", 2, "bs"),
    ("a: {cmd: 'x {0.a}'}\n", 1, "a brace"),
    ("a: {cmd: 'x \"y'}\n", 1, "quotation"),
    ("a: {cmd: 'x && y'}\n", 1, "&&"),
    ("a: {cmd: x|y}\n", 1, "|"),
    ("a: {cmd: x $(nproc)}\n", 1, "$("),
    ("a: {cmd: x `nproc`}\n", 1, "`"),
    ("a: {cmd: A=1 x}\n", 1, "env:"),
    ("a: {cmd: 'x {b}', parameters: {b: '1,2;y'}}\n", 1, "a_b_2;y"),
    ("a:\n  cmd: x\n  parameters: 5\n", 3, "parameters"),
    ("a:\n  cmd: x\n  parameters:\n    b: [1, 2]\n", 4, "'b'"),
    ("a: {cmd: x, parameters: {b: '1,,2'}}\n", 1, "'b'"),
    ("a: {cmd: x, parameters: {b: 1}}\na_b_1: {cmd: x}\n", 2, "'a_b_1'"),
    ("a:\n  cmd: x\n  parameters:\n  - [b, c]\n  - [1]\n", 5, "(b, c)"),
    ("a: {cmd: x, parameters: [[b]]}\n", 1, "no rows"),
    pytest.param(MANY, 4, "10,000 variants", id="variants"),
    ("a:\n  cmd: x\n  data:\n    t:\n      regexp: '(a'\n", 5, "regexp"),
    ("a: {cmd: x, data: {t: {regexp: '(a)(b)'}}}\n", 1, "2 groups"),
    ("a: {cmd: x, data: {t: {skip: 1}}}\n", 1, "regexp"),
    ("a: {cmd: x, data: {t: {regexp: a, skip: -1}}}\n", 1, "skip"),
    ("a: {cmd: x, data: {t: {regexp: a, reduction_type: meen}}}\n", 1, "mean"),
    ("a: {cmd: x, data: {case: {regexp: a}}}\n", 1, "'case'"),
    ("a: {cmd: x, derived: {d: {expr: t + 1}}}\n", 1, "t is not a metric"),
    ("a: {cmd: x, derived: {d: {expr: e}, e: {expr: d}}}\n", 1, "depends on itself"),
    ("a: {cmd: x, parameters: {b: '1,two'}, derived: {d: {expr: b * 2}}}\n", 1, "'two'"),
    ("a: {cmd: x, output: [throughput]}\n", 1, "output"),
    ("a: {cmd: x, parameters: {b: 1}, output: [[one, b], [one, b]]}\n", 1, "'one'"),
    ("a:\n  cmd: x\n  parameters: {b: 1}\n  output:\n  - [variant, b]\n", 5, "'variant'"),
    ("a: {cmd: x, data: {t: {regexp: a}}, parameters: {b: 1}, output: [[t, b]]}\n", 1, "'t'"),
    ("a: {cmd: x, data: {t: {regexp: a}}, output: [[x, tt]]}\n", 1, "'tt'"),
    ("a: {cmd: x, timeout: .nan}\n", 1, "timeout"),
    ("a: {cmd: x, env: {A=B: 1}}\n", 1, "'A=B'"),
    ("a: {cmd: x, allow_wandb: 1}\n", 1, "allow_wandb"),
]
# fmt: on


@pytest.mark.parametrize(("text", "line", "named"), MALFORMED)
def test_a_malformed_file_is_one_message_with_its_line(
    tmp_path: Path, text: str, line: int, named: str
) -> None:
    path = tmp_path / "spec.yml"
    path.write_text(text, encoding="utf-8")
    where = f"spec.yml, line {line}: " if line else "spec.yml "
    with pytest.raises(YamlError) as error:
        read_entries(path, "spec.yml")
    assert str(error.value).startswith(where) and named in str(error.value)


def test_a_binary_or_oversized_or_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "spec.yml"
    for content, problem in (
        (b"a: 1\nb: \xff\n", "line 2: this is not UTF-8"),
        (b" " * (1 << 18) + b"\n", "262144 bytes"),
    ):
        path.write_bytes(content)
        with pytest.raises(YamlError, match=problem):
            read_entries(path, "spec.yml")
    os.mkfifo(tmp_path / "pipe.yml")
    for other in (tmp_path, tmp_path / "pipe.yml"):
        with pytest.raises(YamlError, match="cannot be read"):
            read_entries(other, "spec.yml")


@pytest.mark.nightly
@tries(300)
@given(st.text(alphabet=st.characters(max_codepoint=0x2FF), max_size=60))
@example("? [a]\n")
@example("a: !!timestamp x")
@example("a: 2001-99-99")
@example("%YAML 99999999999999999999.1\n---\na: 1")
@example('a: "\\Uffffffff"')
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert isinstance(parse(text, "spec.yml"), Value)
    except YamlError as error:
        assert str(error).startswith("spec.yml")


YAML_VALUES = st.recursive(
    st.sampled_from(["x", "'1,2'", "5", "-1", "1.5", "true", "~", "'{a}'", "'('", "$A", "mean"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.dictionaries(
            st.sampled_from(["a", "regexp", "expr", "skip", "reduction_type", "file"]),
            inner,
            max_size=3,
        ).map(lambda items: "{" + ", ".join(f"{k}: {v}" for k, v in items.items()) + "}"),
    ),
    max_leaves=5,
)


@pytest.mark.nightly
@tries(300)
@given(st.dictionaries(st.sampled_from(KEYS), YAML_VALUES, max_size=4), st.booleans())
def test_any_values_make_an_entry_or_are_refused(keys: Dict[str, str], command: bool) -> None:
    keys = {**keys, **({"cmd": "python3 x.py"} if command else {})}
    text = "entry:\n" + "".join(f"  {key}: {value}\n" for key, value in keys.items())
    try:
        (entry,) = entries_of(parse(text, "spec.yml"), "spec.yml", Path())
        assert entry.name == "entry" and entry.variants
    except YamlError as error:
        assert str(error).startswith("spec.yml, line ")


@tries(400)
@given(st.text(alphabet="0123456789.e+-*/%()ab,_[]'\"\x00 \n:=ifx", max_size=40))
@example("9**9**9**9")
@example("(" * 300)
@example("-" * 499 + "1")
@example("().__class__")
@example("round(1, 10**300)")
@example("(lambda: 1)()")
@example("(-8) ** 0.5 % 2")
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        value = Expression(text).value({"a": 2.0, "b": 3.0})
    except ValueError:
        return
    assert math.isfinite(value)


def test_an_expression_has_numbers_names_and_functions() -> None:
    assert Expression("round(rate / 3, 2) + int(2.9) + min(1, 2)").value({"rate": 10.0}) == 6.33
    assert Expression("{a} * 2 - float({b})").value({"a": 3.0, "b": 1.0}) == 5.0
    assert Expression("{a} / ({b} - 1)").names == {"a", "b"}
    for text in (
        *("sqrt(4)", "open('x')", "a.__class__", "a b", "", "{a}{b}", "{2}", "{a * 2}", "{{a}}"),
        *("{}", '__import__("os")', "[1][0]", "lambda: 1", "9**9**9**9"),
    ):
        with pytest.raises(ValueError, match=re.escape(repr(text))):
            Expression(text)
    for text in ("min(a)", "abs()", "'{a}'", "1 / (a - 1)", "(a - 9) ** 0.5", "1e308 * 10 * a"):
        with pytest.raises(ValueError, match=re.escape(repr(text))):
            Expression(text).value({"a": 1.0})
