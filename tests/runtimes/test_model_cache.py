"""Stored compiled models: found again, skipped if damaged, and kept apart."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Dict

import pytest

from ipubench.bench_inference.classifier import Classifier
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.runtimes.model_cache import ModelCache, options_of

KEY: Dict[str, Any] = {"model": "small", "size": 3}


def opened(folder: Path, **changes: Any) -> ModelCache:
    return ModelCache(str(folder), {**KEY, **changes}, ".pt")


def stored(folder: Path) -> ModelCache:
    cache = opened(folder)
    assert cache.load(Path.read_text) is None
    cache.store(lambda path: path.write_text("compiled"))
    cache.note(40.0)
    return cache


def test_a_stored_model_is_found_by_its_key_and_saves_its_seconds(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    assert not stored(folder).hit
    again = ModelCache(str(folder), dict(reversed(KEY.items())), ".pt")
    assert again.load(Path.read_text) == "compiled"
    assert again.hit
    assert again.note(1.5) == 38.5
    assert again.note(2.5) == 37.5  # a hit does not overwrite the compile time
    other = opened(folder, size=4)
    assert other.load(Path.read_text) is None
    assert not other.hit


def test_a_model_that_the_framework_cannot_read_is_skipped(tmp_path: Path) -> None:
    def read(path: Path) -> Any:
        raise RuntimeError("made by another version")

    stored(tmp_path)
    again = opened(tmp_path)
    with pytest.warns(UserWarning, match="made by another version"):
        assert again.load(read) is None
    assert not again.hit


@pytest.mark.parametrize(
    "text",
    [
        *("", "[1, 2]", "{", '{"other": 3}', '{"compile_seconds": 1e999}'),
        *('{"compile_seconds": "x"}', '{"compile_seconds": true}'),
        *('{"compile_seconds": "\\ud800"}', '{"compile_seconds": 1, "\\ud800": 1}'),
        pytest.param("[" * 9999, id="nested"),
    ],
)
def test_invalid_seconds_save_nothing(tmp_path: Path, text: str) -> None:
    cache = stored(tmp_path)
    cache.path.with_suffix(".json").write_text(text)
    again = opened(tmp_path)
    again.load(Path.read_text)
    assert again.note(1.5) is None


def test_a_model_that_could_not_be_written_leaves_no_file(tmp_path: Path) -> None:
    def write(path: Path) -> None:
        path.write_text("half")
        raise OSError("disk full")

    with pytest.raises(CaseError, match="disk full"):
        opened(tmp_path).store(write)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["file/models", "~nobody2/x"])
def test_an_unusable_folder_is_one_message(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(CaseError, match=f"--set=model_cache_path={folder}"):
        ModelCache(folder, KEY, ".pt")


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    """A stored model is code, so write access would allow anyone to run code."""
    made = opened(tmp_path / "made").folder
    assert made.stat().st_mode & 0o777 == 0o700
    for mode in (0o770, 0o1777):
        made.chmod(mode)
        with pytest.raises(CaseError, match="other users"):
            opened(made)


@pytest.mark.parametrize(
    ("changes", "matters"),
    [
        *(
            ({name: value}, False)
            for name, value in [("name", "x"), ("steps", 3), ("instances", 2)]
        ),
        ({"data": "generated"}, False),
        *(({name: value}, True) for name, value in [("model", "resnet34"), ("engine", "compile")]),
    ],
)
def test_a_compiled_model_depends_only_on_what_changes_it(
    changes: Dict[str, Any], matters: bool
) -> None:
    config = Classifier(name="one", data="real")
    assert (options_of(dataclasses.replace(config, **changes)) != options_of(config)) is matters


def test_a_compiled_model_depends_on_the_file_of_its_weights(tmp_path: Path) -> None:
    weights = tmp_path / "weights.pt"
    weights.write_bytes(b"1")
    config = Classifier(name="one", weights=str(weights))
    before = json.dumps(options_of(config))
    weights.write_bytes(b"22")
    assert json.dumps(options_of(config)) != before
