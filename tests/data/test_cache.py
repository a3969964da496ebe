"""The location of the cache directory, and the process that fills it."""

from __future__ import annotations

import json
import pwd
from pathlib import Path
from typing import Dict

import pytest

from ipubench.fixtures.case.errors import DataError
from ipubench.fixtures.data.cache import cache_dir, run_module


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"IPUBENCH_CACHE_DIR": "{0}/a/b", "XDG_CACHE_HOME": "{0}"}, "a/b"),
        ({"IPUBENCH_CACHE_DIR": "~/own"}, "own"),
        ({"IPUBENCH_CACHE_DIR": "other"}, "other"),
        ({"IPUBENCH_CACHE_DIR": "", "XDG_CACHE_HOME": "{0}"}, "ipubench"),
        ({"XDG_CACHE_HOME": "relative/path"}, ".cache/ipubench"),
        ({}, ".cache/ipubench"),
    ],
)
def test_the_location_of_the_cache_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: Dict[str, str], place: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    given = {name: text.format(tmp_path) for name, text in environ.items()}
    assert cache_dir(given) == tmp_path / place
    assert (tmp_path / place).is_dir()


@pytest.mark.parametrize("own", ["", "~/own"])
def test_without_a_home_folder_there_is_one_message_and_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    """As in a container that runs as an unknown user."""

    def unlisted(_: int) -> None:
        raise KeyError

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unlisted)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"~.* home folder; .*IPUBENCH_CACHE_DIR"):
        cache_dir({"IPUBENCH_CACHE_DIR": own})
    assert not list(tmp_path.iterdir())


def test_a_file_in_its_place_is_one_clear_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=f" {tmp_path / 'file'}.*: .*IPUBENCH_CACHE_DIR"):
        cache_dir({"IPUBENCH_CACHE_DIR": str(tmp_path / "file")})


def test_a_module_runs_to_its_end_in_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the process can still import our modules
    source, target = tmp_path / "source.json", tmp_path / "target.json"
    source.write_text("[1, 2]")
    run_module("json.tool", "the numbers", str(source), str(target))
    assert json.loads(target.read_text()) == [1, 2]
    message = r"(?s)^cannot make the records; .*\nerror: cannot read gone: "
    with pytest.raises(DataError, match=message):
        run_module("ipubench.fixtures.data.build_tfrecords", "the records", "gone", "target")
