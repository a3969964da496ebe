"""Where the cache directory is, and the process that fills it."""

from __future__ import annotations

import json
import pwd
from pathlib import Path

import pytest

from ipubench.fixtures.case.errors import DataError
from ipubench.fixtures.data.cache import cache_dir, run_module


def test_own_variable_comes_first_and_is_created(tmp_path: Path) -> None:
    environ = {"IPUBENCH_CACHE_DIR": str(tmp_path / "a" / "b"), "XDG_CACHE_HOME": str(tmp_path)}
    assert cache_dir(environ) == tmp_path / "a" / "b"
    assert (tmp_path / "a" / "b").is_dir()


def test_xdg_cache_home_comes_second(tmp_path: Path) -> None:
    environ = {"IPUBENCH_CACHE_DIR": "", "XDG_CACHE_HOME": str(tmp_path)}
    assert cache_dir(environ) == tmp_path / "ipubench"


@pytest.mark.parametrize("xdg", ["", "relative/path"])
def test_home_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, xdg: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir({"XDG_CACHE_HOME": xdg}) == tmp_path / ".cache" / "ipubench"


def test_relative_and_home_paths_are_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert cache_dir({"IPUBENCH_CACHE_DIR": "~/own"}) == tmp_path / "own"
    assert cache_dir({"IPUBENCH_CACHE_DIR": "other"}) == tmp_path / "other"


@pytest.mark.parametrize("own", ["", "~/own", "~nobody-of-this-name/own"])
def test_without_a_home_folder_there_is_one_message_and_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    """As in a container that runs as a user who is in no list."""

    def unlisted(_: int) -> None:
        raise KeyError

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unlisted)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"no home folder for ~.*; set IPUBENCH_CACHE_DIR to"):
        cache_dir({"IPUBENCH_CACHE_DIR": own})
    assert not list(tmp_path.iterdir())


def test_a_file_in_the_way_is_one_clear_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot make the cache directory .*IPUBENCH_CACHE_DIR"):
        cache_dir({"IPUBENCH_CACHE_DIR": str(tmp_path / "file")})


def test_a_module_runs_to_its_end_in_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the process finds our modules all the same
    source, target = tmp_path / "source.json", tmp_path / "target.json"
    source.write_text("[1, 2]")
    run_module("json.tool", "the numbers", str(source), str(target))
    assert json.loads(target.read_text()) == [1, 2]
    message = r"(?s)^cannot make the records; .*\nerror: cannot read gone: "
    with pytest.raises(DataError, match=message):
        run_module("ipubench.fixtures.data.build_tfrecords", "the records", "gone", "target")
    # Of a traceback there is the error, as of a full disk.
    with pytest.raises(DataError, match=r"^cannot .* makes them:\nZeroDivisionError: [^\n]*$"):
        run_module("timeit", "the records", "1 / 0")
