"""The record of image cases shows a change of an option and of an operation, and nothing else."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any, List

import pytest

from scripts import image_programs
from scripts.image_programs import digest, graph_lines, options_text, recorded, texts
from tests.support.own_project import git


@pytest.fixture
def tf() -> Any:
    return pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


def lines(tf: Any, body: Any) -> List[str]:
    traced = tf.function(body, autograph=False).get_concrete_function(tf.TensorSpec([2]))
    return graph_lines(traced.graph.as_graph_def())


def test_the_names_of_pythons_functions_are_not_recorded(tf: Any) -> None:
    def one(images: Any) -> Any:
        return tf.function(lambda values: values * 2.0)(images)

    def renamed(pixels: Any) -> Any:
        def inner(numbers: Any) -> Any:
            return numbers * 2.0

        return tf.function(inner)(pixels)

    assert lines(tf, one) == lines(tf, renamed)


@pytest.mark.parametrize(
    "other",
    [lambda tf, x: x * 3.0, lambda tf, x: x + 2.0, lambda tf, x: tf.cast(x, "float16") * 2.0],
    ids=["constant", "operation", "type"],
)
def test_another_operation_is_recorded(tf: Any, other: Any) -> None:
    assert lines(tf, lambda x: x * 2.0) != lines(tf, lambda x: other(tf, x))


def test_each_image_case_is_in_the_file() -> None:
    assert {name for name, _, _ in image_programs.cases()} <= set(recorded(image_programs.CASES))


def test_each_text_has_its_own_name() -> None:
    names = [name for name, _ in texts(image_programs.CASES)]
    assert len(set(names)) == len(names)


def test_another_option_is_another_text() -> None:
    _, config, _ = next(image_programs.cases())
    other = dataclasses.replace(config, precision="32.32")
    assert digest(options_text(config)) != digest(options_text(other))


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A commit without the script, in which an option means something else."""
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--shared", str(image_programs.ROOT), str(clone))
    options = clone / "fixtures" / "runtimes" / "tensorflow" / "cnn_options.py"
    text = options.read_text(encoding="utf-8")
    options.write_text(text.replace('"stop at overflow', '"ignore overflow'), encoding="utf-8")
    git(clone, "rm", "--quiet", "scripts/image_programs.py")
    git(clone, "commit", "--quiet", "--all", "--message=older")
    monkeypatch.setattr(image_programs, "ROOT", clone)
    return "HEAD"


def test_a_difference_from_a_commit_without_the_script(
    older: str, capfd: pytest.CaptureFixture[str]
) -> None:
    name = next(name for name, _, _ in image_programs.cases() if "bench_cnn_tensorflow" in name)
    assert image_programs.main(["cases", f"--show={name}", f"--against={older}"]) == 1
    shown = capfd.readouterr().out.splitlines()
    changed = [line for line in shown if line[0] in "+-" and "overflow" in line]
    assert [line[0] for line in changed] == ["-", "+"]
    assert "ignore overflow" in changed[0]


@pytest.fixture
def of_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> List[str]:
    """A record of no case, and a part with two cases, the second of which cannot be computed yet.

    Returns the names that were computed so far.
    """
    computed: List[str] = []

    def text(name: str) -> str:
        computed.append(name)
        if name == "second" and computed.count(name) == 1:
            raise KeyboardInterrupt
        return name

    monkeypatch.setattr(image_programs, "FILE", tmp_path / "record.txt")
    pairs = [(name, partial(text, name)) for name in ("first", "second")]
    monkeypatch.setattr(image_programs, "texts", lambda part: iter(pairs))
    return computed


def test_a_run_that_ended_early_continues(of_two: List[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        image_programs.main(["cases", "--write"])
    assert image_programs.main(["cases", "--write", "--missing"]) == 0
    assert of_two == ["first", "second", "second"]
    assert recorded("cases") == {name: digest(name) for name in ("first", "second")}


def test_a_digest_that_differs_and_one_that_is_gone_fail(
    of_two: List[str], capsys: pytest.CaptureFixture[str]
) -> None:
    of_two.append("second")
    image_programs.write("cases", {"first": digest("other"), "former": digest("former")})
    assert image_programs.main(["cases"]) == 1
    marks = {line.split()[2]: line[0] for line in capsys.readouterr().out.splitlines()}
    assert marks == {"first": "!", "second": "+", "former": "-"}
    assert image_programs.main(["cases", "first", "--write"]) == 0
    assert image_programs.main(["cases", "first"]) == 0
    assert set(recorded("cases")) == {"first", "former"}


@pytest.mark.parametrize(
    "arguments",
    [["cases", "third"], ["cases", "--show=fir"], ["--show=first"], ["cases", "--against=HEAD"]],
)
def test_a_request_for_nothing_is_refused(of_two: List[str], arguments: List[str]) -> None:
    with pytest.raises(SystemExit):
        image_programs.main(arguments)
    assert of_two == []
