"""The location of the project on a host."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator

import execnet
import pytest

from ipubench.plugins.fleet import checkout, start
from ipubench.plugins.fleet.checkout import bring
from tests.support.repository import IDENTITY


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Any]:
    """A process of a user whose home folder belongs to the test."""
    group = execnet.Group()
    (tmp_path / "home").mkdir()
    yield group.makegateway(f"popen//env:HOME={tmp_path}/home")
    group.terminate(10.0)


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *IDENTITY, *words], cwd=str(folder), check=True)


def test_files_that_git_tracks_or_would_track_are_copied_with_submodules(
    tmp_path: Path, host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "file")
    own, library = tmp_path / "own", tmp_path / "library"
    for folder in (library, own):
        folder.mkdir()
        git(folder, "init", "-q")
        (folder / "tracked.py").write_text(folder.name)
        git(folder, "add", "tracked.py")
        git(folder, "commit", "-q", "-m", "first")
    git(own, "submodule", "--quiet", "add", str(library), "vendor")
    (own / "untracked.py").write_text("own")
    (own / ".gitignore").write_text("ignored")
    (own / "ignored").write_text("")
    index = own / ".git" / "modules" / "vendor" / "index"
    for is_damaged in (False, True):  # then git does not list its tracked files
        if is_damaged:
            index.write_text("damaged")
        there = Path(bring(host, own)[0])
        assert (there / "vendor" / "tracked.py").read_text() == "library"
        assert (there / "tracked.py").read_text() == "own"
        assert (there / "untracked.py").read_text() == "own"
        assert not (there / ".git").exists() and (there / "ignored").exists() == is_damaged


def test_a_host_keeps_each_version_and_only_new_files_travel(
    tmp_path: Path, host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    (own / "folder").mkdir(parents=True)
    file = own / "a.sh"
    file.write_text("a")
    (own / "link").symlink_to("folder")
    (own / "folder" / os.fsdecode(b"caf\xe9")).write_text("")
    os.mkfifo(own / "pipe")
    sent = []
    monkeypatch.setattr(checkout, "PIECE", 4096)

    def names(folder: str) -> Dict[str, bool]:
        """Return its files, and which of them are executable."""
        sent.append(folder)
        found = Path(folder)
        assert (found / "link" / os.fsdecode(b"caf\xe9")).exists()
        return {path.name: bool(path.stat().st_mode & stat.S_IXUSR) for path in found.glob("*.sh")}

    assert names(bring(host, own)[0]) == {"a.sh": False}
    assert names(bring(host, own)[0]) == {"a.sh": False} and sent[0] == sent[1]
    file.chmod(0o755)
    assert names(bring(host, own)[0]) == {"a.sh": True}
    file.unlink()
    assert names(bring(host, own)[0]) == {}
    # A version unused for a week is removed; results stay.
    first, (_, results) = Path(sent[0]), bring(host, own)
    Path(results).mkdir()
    for path in (first, Path(results)):
        os.utime(path, (1e9, 1e9))
    bring(host, own)
    assert not first.exists() and Path(sent[2]).exists() and Path(results).exists()


def test_a_host_without_a_home_folder_is_one_message_and_gets_no_folder(tmp_path: Path) -> None:
    group = execnet.Group()
    homeless = group.makegateway(f"popen//chdir={tmp_path}//env:HOME=nowhere")
    try:
        with pytest.raises(execnet.RemoteError, match="OSError: the user has no home folder there"):
            bring(homeless, Path(__file__).parent)
    finally:
        group.terminate(10.0)
    assert not list(tmp_path.iterdir())


def test_a_missing_checkout_is_one_message_and_is_not_created(tmp_path: Path) -> None:
    root = tmp_path / "checkuot"
    with pytest.raises(OSError, match=f"there is no folder {root}; chdir="):
        start.enter({"root": str(root), "start": "."})
    assert not root.exists()
