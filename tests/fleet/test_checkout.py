"""Where the project is on a host."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator

import execnet
import pytest

from ipubench.plugins.fleet import connection
from ipubench.plugins.fleet.checkout import CHECKOUT, Project, bring
from ipubench.plugins.fleet.hosts import FleetError
from tests.support.repository import IDENTITY


def test_the_files_of_submodules_go_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    index = own / ".git" / "modules" / "vendor" / "index"
    group = execnet.Group()
    try:
        for is_damaged in (False, True):  # then git names no file that it tracks
            if is_damaged:
                index.write_text("damaged")
            place = bring(group.makegateway(f"popen//env:HOME={tmp_path}"), own)
            there = Path(place) / CHECKOUT
            assert (there / "vendor" / "tracked.py").read_text() == "library"
            assert (there / "tracked.py").read_text() == "own"
            assert (there / "untracked.py").read_text() == "own"
            assert not (there / ".git").exists()
    finally:
        group.terminate(10.0)


def test_a_host_has_the_project_as_it_is_here_whatever_it_had_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, file, elsewhere = tmp_path / "own", tmp_path / "own" / "a.sh", tmp_path / "a.sh"
    own.mkdir()
    file.write_text("a")
    (own / "b.py").write_text("b")
    (own / "b.py").chmod(0o444)
    group = execnet.Group()

    def names() -> Dict[str, bool]:
        """Bring the project; return its files there, and which of them are programs."""
        place = bring(group.makegateway(f"popen//env:HOME={tmp_path}"), own)
        modes = {path.name: path.stat().st_mode for path in (Path(place) / CHECKOUT).iterdir()}
        assert all(mode & stat.S_IWUSR for mode in modes.values())  # or none could be replaced
        return {name: bool(mode & stat.S_IXUSR) for name, mode in modes.items()}

    def cut_off(self: Project) -> None:
        execnet.RSync.send(self)
        raise EOFError

    try:
        assert names() == {"a.sh": False, "b.py": False}
        file.chmod(0o755)
        assert names() == {"a.sh": True, "b.py": False}
        # The file goes away, the host is lost before it has all, and the file comes back.
        file.rename(elsewhere)
        with monkeypatch.context() as patch, pytest.raises(EOFError):
            patch.setattr(Project, "send", cut_off)
            names()
        group.terminate(10.0)
        elsewhere.rename(file)
        assert names() == {"a.sh": True, "b.py": False}
        (own / os.fsdecode(b"caf\xe9")).write_text("")
        with pytest.raises(FleetError, match=r"own/caf\\udce9', or .*is not UTF-8; rename it"):
            names()
    finally:
        group.terminate(10.0)


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *IDENTITY, *words], cwd=str(folder), check=True)


@pytest.fixture
def homeless(tmp_path: Path) -> Iterator[Any]:
    """A process whose user has no home folder."""
    group = execnet.Group()
    yield group.makegateway(f"popen//chdir={tmp_path}//env:HOME=nowhere")
    group.terminate(10.0)


def test_a_host_without_a_home_folder_is_one_message_and_gets_no_folder(
    homeless: Any, tmp_path: Path
) -> None:
    message = "OSError: the user has no home folder there; set HOME, or "
    with pytest.raises(execnet.RemoteError, match=message):
        bring(homeless, Path(__file__).parent)
    given = json.dumps({"start": "project"})
    channel = homeless.remote_exec(connection._start, root="project", given=given)
    with pytest.raises(execnet.RemoteError, match=message):
        channel.waitclose()
    assert not list(tmp_path.iterdir())


def test_a_checkout_that_is_not_there_is_one_message_and_is_not_made(tmp_path: Path) -> None:
    group = execnet.Group()
    root = str(tmp_path / "checkuot")
    try:
        given = json.dumps({"start": root})
        channel = group.makegateway().remote_exec(connection._start, root=root, given=given)
        with pytest.raises(
            execnet.RemoteError, match=f"OSError: there is no folder {root}; chdir="
        ):
            channel.waitclose()
    finally:
        group.terminate(10.0)
    assert not list(tmp_path.iterdir())
