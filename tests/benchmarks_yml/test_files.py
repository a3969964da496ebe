"""Malformed benchmarks.yml files: one message with the file and the line, whatever is in them."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any, Dict

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ipubench.fixtures.case.yaml_reader import Value, YamlError, parse
from ipubench.plugins.benchmarks_yml import command
from ipubench.plugins.benchmarks_yml.entry import KEYS
from ipubench.plugins.benchmarks_yml.expression import FUNCTIONS, Expression
from ipubench.plugins.benchmarks_yml.reader import entries_of, read_entries
from tests.support.tries import tries

BOMB = "a: &a0 {x: 1}\n" + "".join(
    f"b{n}: &a{n} {{{', '.join(f'k{i}: *a{n - 1}' for i in range(9))}}}\n" for n in range(1, 30)
)

MANY = "a:\n  cmd: x\n  parameters:\n" + "".join(f"    p{n}: '1,2'\n" for n in range(20))


def problem(tmp_path: Path, text: str) -> str:
    path = tmp_path / "spec.yml"
    path.write_bytes(text.encode("utf-8", errors="surrogatepass"))
    with pytest.raises(YamlError) as error:
        read_entries(path, "spec.yml")
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "spec.yml is empty; an entry is a name with cmd"),
        ("- a\n", "spec.yml, line 1: a benchmarks.yml holds names with values"),
        ("a: [1\nb: 2\n", "spec.yml, line 2: this is not valid YAML"),
        ("a:\n  cmd: x\n  cmd: y\n", "spec.yml, line 3: 'cmd' stands twice"),
        ("common_options: {}\n", "spec.yml has no benchmark: a name with 'options'"),
        ("a:\n  data: {}\n", "spec.yml, line 1: 'a' has no cmd; a shared block has 'options'"),
        ("a: {cmd: x, notebook: y}\n", "'a' has both cmd and notebook"),
        ("a:\n  cmd: x\n  timout: 5\n", "line 3: 'a': 'timout' is no key; did you mean timeout?"),
        (
            "a:\n  cmd: x {bs}\n  parameters:\n    bsz: 1\n",
            "line 2: 'a': cmd: there is no parameter bs; did",
        ),
        ("a: {cmd: 'x {0.a}'}\n", "{0.a} is no name of a parameter"),
        ("a: {cmd: 'x }'}\n", "Single '}' encountered"),
        ("a: {cmd: 'x \"y'}\n", "line 1: 'a': cmd: No closing quotation"),
        ("a: {cmd: 'x && y'}\n", "&& needs a shell, and there is none"),
        ("a: {cmd: ' '}\n", "'a': cmd is a text"),
        ("a:\n  cmd: x\n  parameters: 5\n", "line 3: 'a': parameters are a mapping"),
        (
            "a:\n  cmd: x\n  parameters:\n    b: [1, 2]\n",
            "line 4: 'a': 'b': write the values as \"v1,v2\"",
        ),
        ("a: {cmd: x, parameters: {b: '1,,2'}}\n", "'b' has an empty value"),
        ("a: {cmd: x, parameters: {b: '1,1'}}\n", "there are two variants 'a_b_1'"),
        ("a: {cmd: x, parameters: {b: 1}}\na_b_1: {cmd: x}\n", "line 2: there are two variants"),
        (
            "a:\n  cmd: x\n  parameters:\n  - [b, c]\n  - [1]\n",
            "line 5: 'a': 1 values for 2 parameters (b, c)",
        ),
        ("a: {cmd: x, parameters: [[b]]}\n", "there are no rows of values"),
        (
            "a:\n  cmd: x\n  data:\n    t:\n      regexp: '(a'\n",
            "line 5: the metric 't': regexp: missing )",
        ),
        ("a: {cmd: x, data: {t: {regexp: '(a)(b)'}}}\n", "regexp has 2 groups"),
        ("a: {cmd: x, data: {t: {skip: 1}}}\n", "the metric 't' needs a regexp"),
        ("a: {cmd: x, data: {t: {regexp: a, skip: -1}}}\n", "skip is a whole number from 0 up"),
        (
            "a: {cmd: x, data: {t: {regexp: a, reduction_type: meen}}}\n",
            "'meen' is none of mean, final, min, value; did you mean mean?",
        ),
        (
            "a: {cmd: x, derived: {d: {expr: t + 1}}}\n",
            "t is no metric, parameter or derived value",
        ),
        ("a: {cmd: x, derived: {d: {expr: e}, e: {expr: d}}}\n", "'d' depends on itself"),
        (
            "a: {cmd: x, derived: {d: {expr: '__import__(\"os\")'}}}\n",
            "an expression holds numbers",
        ),
        ("a: {cmd: x, output: [throughput]}\n", "output is a list of pairs"),
        (
            "a: {cmd: x, parameters: {b: 1}, output: [[one, b], [one, b]]}\n",
            "there are two columns 'one'",
        ),
        (
            "a:\n  cmd: x\n  parameters: {b: 1}\n  output:\n  - [variant, b]\n",
            "line 5: output: every row of specs.csv has a column 'variant'",
        ),
        (
            "a: {cmd: x, data: {t: {regexp: a}}, parameters: {b: 1}, output: [[t, b]]}\n",
            "output: the title 't' is the name of another value",
        ),
        (
            "a: {cmd: x, data: {t: {regexp: a}}, output: [[x, tt]]}\n",
            "output: no entry has a metric, parameter or derived value 'tt'; did you mean t?",
        ),
        ("a: {cmd: x, data: {case: {regexp: a}}}\n", "the metric 'case': every row of specs.csv"),
        ("a: {cmd: x; y}\n", "'a': cmd: ; needs a shell, and there is none"),
        ("a: {cmd: x|y}\n", "| needs a shell"),
        ("a: {cmd: x 2>f}\n", "> needs a shell"),
        ("a: {cmd: x $(nproc)}\n", "$( needs a shell"),
        ("a: {cmd: 'x \"$(nproc)\"'}\n", "$( needs a shell"),
        ("a: {cmd: x `nproc`}\n", "` needs a shell"),
        ("a: {cmd: 'x ${BS:-32} y'}\n", "${BS:-32} needs a shell, and there is none"),
        ("a: {cmd: 'x \"a ${BS:=3;2}\"'}\n", "${BS:=3;2} needs a shell"),
        ("a: {cmd: A=1 x}\n", "A=1 is a shell's assignment, and there is no shell; env:"),
        (
            "a: {cmd: 'x {b}', parameters: {b: '1,2;y'}}\n",
            "'a_b_2;y': cmd: ; needs a shell",
        ),
        ("a: {cmd: 'x {b}', parameters: {b: \"1,'\"}}\n", '"a_b_\'": cmd: No closing quotation'),
        (
            "a: {cmd: x, parameters: {b: '1,two'}, derived: {d: {expr: b * 2}}}\n",
            "the derived value 'd': b is 'two', which is no number",
        ),
        ("a: {cmd: x, parameters: {x-y: 1, x_y: 2}}\n", "--set cannot tell 'x-y' from 'x_y'"),
        (
            "a: {cmd: x, data: {t: {regexp: a, reduction_type: [mean]}}}\n",
            "the metric 't': reduction_type is a text or a number",
        ),
        ("a: {cmd: x, timeout: 1" + "0" * 90 + "}\n", "seconds, at most a year"),
        ("a: {cmd: x, timeout: 1" + "0" * 400 + "}\n", "a number has at most 100 characters"),
        ("a: {cmd: x, timeout: 0x" + "f" * 5000 + "}\n", "a number has at most 100 characters"),
        ('a: {cmd: "x \\ud800"}\n', "line 1: a text holds no null character and no half"),
        ('a: {cmd: "x \\0"}\n', "line 1: a text holds no null character"),
        ("a: {cmd: x, timeout: 0}\n", "timeout is a positive number of seconds"),
        ("a: {cmd: x, timeout: .nan}\n", "timeout is a positive number of seconds"),
        ("a: {cmd: x, env: {A=B: 1}}\n", "'A=B' is no variable's name"),
        ("a: {cmd: x, allow_wandb: 1}\n", "allow_wandb is true or false"),
        ("1: {cmd: x}\n", "line 1: a name is text; put it in quotes"),
        ("a: &a\n  b: *a\n", "contains itself"),
        ("a: {<<: 5, cmd: x}\n", "<< merges a mapping"),
        ("a: {cmd: !!python/name:os.system x}\n", "is no value of its type"),
        ("a: {cmd: x, timeout: !!int x}\n", "'x' is no value of its type"),
        pytest.param("a: " + "[" * 600 + "\n", "spec.yml is nested too deeply", id="nested"),
        (MANY, "more than 10,000 variants"),
        (BOMB, "spec.yml, line 1: 'a': 'x' is no key"),
        ("a: \x00\n", "spec.yml is not valid YAML"),
        ("---\na: {cmd: x}\n---\nb: {cmd: x}\n", "spec.yml, line 3: this is not valid YAML"),
    ],
)
def test_a_malformed_file_is_one_message_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    assert message in problem(tmp_path, text)


def test_a_file_that_is_no_text_or_too_large(tmp_path: Path) -> None:
    path = tmp_path / "spec.yml"
    path.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(YamlError, match="spec.yml, line 2: this is not UTF-8"):
        read_entries(path, "spec.yml")
    path.write_bytes(b" " * (1 << 18) + b"\n")
    with pytest.raises(YamlError, match="larger than 262144 bytes"):
        read_entries(path, "spec.yml")
    with pytest.raises(YamlError, match="cannot be read"):
        read_entries(tmp_path, "spec.yml")


ALIASES = "a: &a {" + ", ".join(f"k{n}: 1" for n in range(500)) + "}\n"
SLOW = {
    "lists": ("a: [" + "[]," * 80_000 + "]\n", "line 1: 'a'"),
    "merges": (ALIASES + "b: {<<: [" + "*a," * 5_000 + "]}\n", "more than 200,000 names"),
    "commands": (
        f"b:\n  cmd: {'x' * 100_000} {{p}}\n"
        f"  parameters: {{p: '{','.join(map(str, range(99)))}'}}\n",
        "commands of more than 2,000,000 characters",
    ),
    "variants": (
        "".join(
            f"b{n}:\n  cmd: x {{p}}\n  parameters: {{p: '{','.join(map(str, range(100)))}'}}\n"
            for n in range(101)
        ),
        "the file has more than 10,000 variants",
    ),
}


@pytest.mark.parametrize("kind", SLOW)
def test_what_would_take_minutes_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    text, message = SLOW[kind]
    started = time.process_time()
    assert message in problem(tmp_path, text)
    assert time.process_time() - started < 10


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yml")
    with pytest.raises(YamlError, match="it is no regular file"):
        read_entries(tmp_path / "pipe.yml", "pipe.yml")
    assert "pipe.yml" in command._unmet("here", tmp_path / "pipe.yml")


@tries(300)
@given(st.text(alphabet=st.characters(max_codepoint=0x2FF), max_size=60))
@example("? [a]\n")
@example("a: !!bool x")
@example("a: !!timestamp x")
@example("a: 2001-99-99")
@example("a: !!binary \xff")
@example("%YAML 99999999999999999999.1\n---\na: 1")
@example('a: "\\Uffffffff"')
def test_no_text_makes_the_reader_fail_otherwise(text: str) -> None:
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


@tries(300)
@given(st.dictionaries(st.sampled_from(KEYS), YAML_VALUES, max_size=4), st.booleans())
def test_no_values_make_an_entry_fail_otherwise(keys: Dict[str, str], command: bool) -> None:
    keys = {**keys, **({"cmd": "python3 x.py"} if command else {})}
    text = "entry:\n" + "".join(f"  {key}: {value}\n" for key, value in keys.items())
    try:
        (entry,) = entries_of(parse(text, "spec.yml"), "spec.yml", Path())
        assert entry.name == "entry" and entry.variants
    except YamlError as error:
        assert str(error).startswith("spec.yml, line ")


# Of floats only, as ours is: Python's whole numbers would not end.
NUMBERS = st.one_of(st.integers(0, 1000).map(float), st.floats(0, 1e6)).map(repr)
ARITHMETIC = st.recursive(
    st.one_of(NUMBERS, st.sampled_from(["rate", "size"])),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%", "**"]), inner).map(
            lambda parts: f"({' '.join(parts)})"
        ),
        inner.map(lambda part: f"-{part}"),
        st.tuples(inner, inner).map(lambda parts: f"max({', '.join(parts)})"),
        inner.map(lambda part: f"abs({part})"),
    ),
    max_leaves=8,
)


@tries(300)
@given(ARITHMETIC)
def test_arithmetic_is_pythons(text: str) -> None:
    values = {"rate": 90.5, "size": 16.0}
    expression = Expression(text)
    try:
        wanted: Any = eval(text, {"__builtins__": {}, "abs": abs, "max": max}, values)  # noqa: S307  Python's own answer, to compare with
    # The last where a root of a negative number is compared or divided.
    except (ZeroDivisionError, OverflowError, TypeError):
        wanted = math.nan
    try:
        found = expression.value(values)
    except ValueError as error:
        rootless = "**" in text and "no real number" in str(error)
        assert rootless or isinstance(wanted, complex) or not math.isfinite(wanted)
    else:
        assert found == wanted
    assert expression.names <= set(values)


@tries(400)
@given(st.text(alphabet="0123456789.e+-*/%()ab,_[]'\"\x00 \n:=ifx", max_size=40))
@example("9**9**9**9")
@example("(" * 300)
@example("-" * 499 + "1")
@example("1" * 490)
@example("().__class__")
@example("[1][0]")
@example("a.b")
@example("'a' * 9")
@example("max(*a)")
@example("round(1, 10**300)")
@example("(lambda: 1)()")
@example("True + 1")
@example("1j")
@example("(-1) ** 0.5")
@example("min((-8) ** 0.5, 2)")
@example("(-8) ** 0.5 % 2")
@example("(-8) ** 0.5 // 2")
@example("round((-8) ** 0.5)")
@example("a if a else b")
@example("x" * 501)
def test_no_text_makes_an_expression_fail_otherwise(text: str) -> None:
    try:
        value = Expression(text).value({"a": 2.0, "b": 3.0})
    except ValueError:
        return
    assert math.isfinite(value)


def test_what_an_expression_cannot_say_names_it() -> None:
    with pytest.raises(ValueError, match=r"'min\(acc\*\*0.5, 2\)': a root of a negative number"):
        Expression("min(acc**0.5, 2)").value({"acc": -8.0})
    with pytest.raises(ValueError, match=r"'int\(1e308 \* 10 - 1e308 \* 10\)': "):
        Expression("int(1e308 * 10 - 1e308 * 10)").value({})


def test_functions_of_expressions() -> None:
    assert set(FUNCTIONS) == {"abs", "min", "max", "round", "int", "float"}
    assert Expression("round(rate / 3, 2) + int(2.9) + min(1, 2)").value({"rate": 10.0}) == 6.33
    for text in ("min(1)", "abs()", "sqrt(4)", "abs(x=1)", "open('x')", "rate.real", "rate and 1"):
        with pytest.raises(ValueError, match="holds numbers, names"):
            Expression(text)
