"""Compiled models that are kept: found again, left out where damaged, told apart."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Dict, List

import pytest

from ipubench.bench_inference.bench_cnn_torch import Direct
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.runtimes.model_cache import ModelCache, options_of

KEY: Dict[str, Any] = {"model": "small", "size": 3}


def stored(folder: Path, content: str = "compiled") -> ModelCache:
    cache = ModelCache(str(folder), KEY, ".pt")
    assert cache.load(Path.read_text) is None
    cache.store(lambda path: _write(path, content))
    cache.note(40.0)
    return cache


def _write(path: Path, content: str) -> None:
    path.write_text(content)


def test_a_stored_model_is_found_and_its_seconds_are_saved(tmp_path: Path) -> None:
    first = stored(tmp_path / "new" / "folder")
    assert not first.hit
    again = ModelCache(str(tmp_path / "new" / "folder"), dict(reversed(KEY.items())), ".pt")
    assert again.load(Path.read_text) == "compiled"
    assert again.hit
    assert again.note(1.5) == 38.5
    # A hit does not overwrite what compiling took.
    assert again.note(2.5) == 37.5


def test_another_key_finds_nothing(tmp_path: Path) -> None:
    stored(tmp_path)
    other = ModelCache(str(tmp_path), {**KEY, "size": 4}, ".pt")
    assert other.load(Path.read_text) is None
    assert not other.hit


@pytest.mark.parametrize("damage", [b"", b"compileX", b"compiled and more"])
def test_a_damaged_model_is_left_out_with_a_warning(tmp_path: Path, damage: bytes) -> None:
    cache = stored(tmp_path)
    cache.path.write_bytes(damage)
    again = ModelCache(str(tmp_path), KEY, ".pt")
    with pytest.warns(UserWarning, match=r"cannot be used \(its checksum is wrong\).*anew"):
        assert again.load(Path.read_text) is None
    assert not again.hit


def test_a_model_that_the_framework_cannot_read_is_left_out(tmp_path: Path) -> None:
    def read(path: Path) -> Any:
        raise RuntimeError("made by another version")

    stored(tmp_path)
    with pytest.warns(UserWarning, match="made by another version"):
        assert ModelCache(str(tmp_path), KEY, ".pt").load(read) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1, 2]",
        "{",
        '{"compile_seconds": 3}',
        '{"sha256": [1]}',
        pytest.param("[" * 9999, id="nested"),
    ],
)
def test_without_readable_facts_there_is_no_stored_model(tmp_path: Path, text: str) -> None:
    cache = stored(tmp_path)
    cache.path.with_suffix(".json").write_text(text)
    again = ModelCache(str(tmp_path), KEY, ".pt")
    assert again.load(Path.read_text) is None


@pytest.mark.parametrize("value", ['"x"', "[3]", "1e999", "true", "null"])
def test_seconds_that_are_none_save_nothing(tmp_path: Path, value: str) -> None:
    cache = stored(tmp_path)
    facts = cache.path.with_suffix(".json")
    facts.write_text(facts.read_text().replace("40.0", value))
    again = ModelCache(str(tmp_path), KEY, ".pt")
    again.load(Path.read_text)
    assert again.note(1.5) is None


def test_files_of_other_folders_are_not_taken_for_damaged_ones(tmp_path: Path) -> None:
    """A runtime deletes what is damaged."""
    (tmp_path / "precious").write_text("x")
    cache = ModelCache(str(tmp_path / "cache"), KEY, ".pt")
    for name in ("../precious", str(tmp_path / "precious")):
        cache.path.with_suffix(".json").write_text(json.dumps({"files": {name: "0"}}))
        assert cache.damaged() == []
    cache.path.with_suffix(".json").write_text('{"files": ["a"]}')
    assert cache.damaged() == []


def test_a_model_that_could_not_be_written_leaves_nothing(tmp_path: Path) -> None:
    def write(path: Path) -> None:
        path.write_text("half")
        raise OSError("the disk is full")

    cache = ModelCache(str(tmp_path), KEY, ".pt")
    with pytest.raises(CaseError, match=r"cannot be kept in .*the disk is full"):
        cache.store(write)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_used_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CaseError, match=r"--set=model_cache_path=.*file/models cannot be used"):
        ModelCache(str(tmp_path / "file" / "models"), KEY, ".pt")


def test_a_compiled_model_depends_on_what_changes_it_alone(tmp_path: Path) -> None:
    config = Direct(name="one", data="real")
    same: List[Dict[str, Any]] = [{"name": "x"}, {"data": "generated"}, {"steps": 3}]
    under_load = {"scenario": "server", "target_qps": 9.0, "latency_bound_ms": 9.0}
    for changes in [*same, {"instances": 2}, {**under_load, "scenario_seconds": 60.0}]:
        assert options_of(dataclasses.replace(config, **changes)) == options_of(config)
    other: List[Dict[str, Any]] = [{"model": "resnet34"}, {"norm_type": "none"}]
    for changes in [*other, {"engine": "compile"}]:
        assert options_of(dataclasses.replace(config, **changes)) != options_of(config)
    weights = tmp_path / "weights.pt"
    weights.write_bytes(b"1")
    config = dataclasses.replace(config, weights=str(weights))
    before = json.dumps(options_of(config))
    weights.write_bytes(b"22")
    assert json.dumps(options_of(config)) != before


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    """A kept model is code, and whoever may write there could have it executed."""
    made = ModelCache(str(tmp_path / "made"), KEY, ".pt").folder
    assert made.stat().st_mode & 0o777 == 0o700
    for mode in (0o770, 0o1777):
        made.chmod(mode)
        with pytest.raises(CaseError, match=f"made can be written by other users .mode {mode:o}"):
            ModelCache(str(made), KEY, ".pt")


def test_a_folder_of_nobody_is_one_message() -> None:
    with pytest.raises(CaseError, match="~nobody2/x cannot be used: there is no home folder for"):
        ModelCache("~nobody2/x", KEY, ".pt")
