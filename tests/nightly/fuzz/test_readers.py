"""No input ends a reader otherwise than in a value or its own error; none is without bounds."""

from __future__ import annotations

import ast
import random
from pathlib import Path
from typing import Iterator, List, Set, Tuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.nightly.fuzz.__main__ import main
from tests.nightly.fuzz.attack import FOUND, attempt, folder_of
from tests.nightly.fuzz.mutations import mutated
from tests.nightly.fuzz.readers import READERS, TRUSTED
from tests.support.harness import ROOT

#: Calls that take a file or a text whole, whatever it is and whatever is in it.
METHODS = {"read_text", "read_bytes"}
FUNCTIONS = {
    *(("json", "load"), ("json", "loads"), ("yaml", "compose"), ("yaml", "safe_load")),
    *(("yaml", "load"), ("np", "load"), ("torch", "load"), ("pickle", "load"), ("pickle", "loads")),
    *(("Image", "open"), ("zipfile", "ZipFile"), ("tarfile", "open"), ("csv", "reader")),
}


@pytest.mark.parametrize("name", READERS)
def test_a_sound_input_is_read(tmp_path: Path, name: str) -> None:
    """Otherwise the attack would try one refusal again and again."""
    reader = READERS[name]
    assert reader.read(tmp_path, reader.sound(tmp_path)) is not None or name == "TFRecord"


@pytest.mark.parametrize("name", READERS)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 1 << 32))
def test_nearly_sound_inputs(tmp_path: Path, name: str, seed: int) -> None:
    reader = READERS[name]
    content = mutated(reader.sound(tmp_path), random.Random(seed))
    assert attempt(reader, tmp_path, content) is None


@pytest.mark.parametrize("name", READERS)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(content=st.binary(max_size=300))
def test_any_bytes(tmp_path: Path, name: str, content: bytes) -> None:
    assert attempt(READERS[name], tmp_path, content) is None


def _found() -> List[Tuple[str, Path]]:
    return [(name, path) for name in READERS for path in sorted(folder_of(name).glob("*"))]


@pytest.mark.parametrize(("name", "path"), _found(), ids=lambda value: str(value)[-30:])
def test_what_was_found_once(tmp_path: Path, name: str, path: Path) -> None:
    assert attempt(READERS[name], tmp_path, path.read_bytes()) is None


def test_found_inputs_belong_to_a_reader() -> None:
    folders = {folder_of(name) for name in READERS}
    assert {path for path in FOUND.iterdir() if path.is_dir()} <= folders


def test_the_attack_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seconds=0.5", "--seed=1", "gate.yml"]) == 0
    seed, reader, total = capsys.readouterr().out.splitlines()
    assert seed == "seed 1" and total.endswith("inputs, 0 found")
    assert int(reader.split()[1]) > 0
    with pytest.raises(SystemExit) as stopped:
        main(["nothing"])
    assert stopped.value.code == 4


# ------------------------------------------------------------------ readers that nobody listed


def _calls(tree: ast.AST) -> Iterator[Tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            on = node.func.value
            yield (on.id if isinstance(on, ast.Name) else "", node.func.attr)


def _opens_to_read(call: ast.AST) -> bool:
    """Tell whether a call is open(FILE), open(FILE, "rb"), PATH.open() or PATH.open("rb")."""
    if not isinstance(call, ast.Call):
        return False
    if isinstance(call.func, ast.Name) and call.func.id == "open":
        words = call.args[1:]
    elif isinstance(call.func, ast.Attribute) and call.func.attr == "open":
        words = call.args
    else:
        return False
    words = [*words, *(word.value for word in call.keywords if word.arg == "mode")]
    modes = [str(word.value) for word in words if isinstance(word, ast.Constant)]
    if words:  # what is no mode is a method of ours
        return any("r" in mode or "+" in mode for mode in modes)
    return isinstance(call.func, ast.Name) or any(word.arg == "encoding" for word in call.keywords)


def unbounded(source: str) -> bool:
    """Tell whether a module reads something whole, or opens a file to read it."""
    tree = ast.parse(source)
    return any(map(_opens_to_read, ast.walk(tree))) or any(
        method in METHODS or (on, method) in FUNCTIONS for on, method in _calls(tree)
    )


def _modules() -> Set[str]:
    paths = [
        path for top in ("plugins", "fixtures", "models") for path in (ROOT / top).rglob("*.py")
    ]
    return {
        path.relative_to(ROOT).as_posix()
        for path in paths
        if unbounded(path.read_text(encoding="utf-8"))
    }


def test_every_reader_is_listed_with_its_bounds_or_the_reason_why_it_needs_none() -> None:
    listed = {reader.module for reader in READERS.values()}
    assert _modules() - listed - set(TRUSTED) == set(), "list it in tests/nightly/fuzz/readers.py"
    assert set(TRUSTED) - _modules() == set(), "it reads nothing of that kind any more"
    assert all((ROOT / module).is_file() for module in listed)


@pytest.mark.parametrize(
    "line",
    [
        *("json.loads(text)", "path.read_text()", "np.load(file)", "Image.open(file)"),
        *("open(path)", 'open(path, "rb")', 'path.open("rb+")', 'path.open(encoding="utf-8")'),
    ],
)
def test_a_new_reader_would_be_noticed(line: str) -> None:
    assert unbounded(f"def read(path):\n    return {line}\n")
    for line in ("read_json(path)", 'open(path, "ab")', 'path.open("xb")', "self.open(address)"):
        assert not unbounded(f"def read(path):\n    return {line}\n")
