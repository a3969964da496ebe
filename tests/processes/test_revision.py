"""The worktree of a revision, and its contents."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Callable, List

import pytest

from ipubench.fixtures.machine.locks import locked
from ipubench.plugins.processes import revision
from ipubench.plugins.processes.revision import check_out
from tests.support.repository import IDENTITY


def git(folder: Path, *words: str) -> str:
    return subprocess.check_output(["git", *IDENTITY, *words], cwd=str(folder), text=True).strip()


def commit(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", text)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a submodule ``vendor`` that its second commit updates."""
    monkeypatch.setenv("IPUBENCH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    # Git clones a submodule from a local folder only if allowed to.
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "file")
    own, library, inner = (tmp_path / name for name in ("own", "library", "inner"))
    for folder in (own, library, inner):
        folder.mkdir()
        git(folder, "init", "-q", "-b", "main")
    commit(inner, "inner.py", "inner")
    git(library, "submodule", "--quiet", "add", str(inner), "inner")
    commit(library, "library.py", "first")
    git(own, "submodule", "--quiet", "add", str(library), "vendor")
    commit(own, "test_own.py", "one")
    commit(library, "library.py", "second")
    git(own / "vendor", "pull", "-q")
    commit(own, "test_own.py", "two")
    return own


def test_a_worktree_has_the_submodules_of_its_revision(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not the user's own checkout has them; it stays unchanged."""
    monkeypatch.setenv("GIT_TRACE", "1")  # with warnings, git prints more than the result
    git(own, "submodule", "--quiet", "deinit", "--all")
    before = (own / ".git" / "config").read_text()
    there = check_out("git:HEAD~1", own).root
    assert (there / "vendor" / "library.py").read_text() == "first"
    made = (there / "test_own.py").stat().st_mtime_ns
    used = there.with_name(f"{there.name}.used")
    last = used.stat().st_mtime - 3600
    os.utime(str(used), (last, last))
    (there / "vendor" / "__pycache__").mkdir()
    assert check_out("git:HEAD~1", own).root == there
    assert (there / "test_own.py").stat().st_mtime_ns == made
    assert used.stat().st_mtime > last
    assert (there / "vendor" / "inner" / "inner.py").read_text() == "inner"
    assert (own / ".git" / "config").read_text() == before
    assert not list((own / "vendor").iterdir())
    for name in (there / "vendor").iterdir():  # a worktree from before submodules were supported
        shutil.rmtree(str(name)) if name.is_dir() else name.unlink()
    assert check_out("git:HEAD~1", own).root == there
    assert (there / "vendor" / "inner" / "inner.py").read_text() == "inner"


def test_each_project_of_a_repository_is_set_up_in_its_own_folder(own: Path) -> None:
    for name in ("pkg-a", "pkg-b"):
        (own / name).mkdir()
        (own / name / "test_one.py").touch()
    git(own, "add", "-A")
    git(own, "commit", "-q", "-m", "two projects")
    first, second = (check_out("git:HEAD", own / name, "touch made") for name in ("pkg-a", "pkg-b"))
    assert (first.root.name, second.root.name) == ("pkg-a", "pkg-b")
    assert (first.root / "made").exists() and not (first.root.parent / "made").exists()
    assert (second.root / "made").exists()
    # Modules of the other project in this checkout do not belong to the revision either.
    assert first.here == second.here == own.resolve()
    with pytest.raises(pytest.UsageError, match="has no folder pkg-b"):
        check_out("git:HEAD~1", own / "pkg-b")


def test_an_old_unused_worktree_is_removed(own: Path) -> None:
    tree = check_out("git:HEAD~1", own).root
    os.utime(str(tree.with_name(f"{tree.name}.used")), (0, 0))
    half, begun = (tree.with_name(name) for name in ("half-1", "begun-1"))
    half.mkdir()
    begun.mkdir()
    os.utime(str(half), (0, 0))  # its run was killed
    with locked(Path(f"{tree}.lock")):
        check_out("git:HEAD", own)
        assert tree.is_dir()
    check_out("git:HEAD", own)
    assert not tree.exists() and not half.exists() and begun.is_dir()
    assert len(git(own, "worktree", "list").splitlines()) == 2


def test_the_last_run_that_uses_a_worktree_removes_it(own: Path) -> None:
    ends: List[Callable[[], None]] = []
    tree = check_out("git:HEAD~1", own, at_end=ends.append).root
    assert check_out("git:HEAD~1", own, at_end=ends.append).root == tree
    kept = check_out("git:HEAD~1", own, "touch made", at_end=ends.append).root
    assert len(ends) == 2 and len(git(own, "worktree", "list").splitlines()) == 3
    ends[0]()
    check_out("git:HEAD", own)  # which looks for what killed runs have left
    assert (tree / "test_own.py").is_file()
    ends[1]()
    assert not tree.exists() and kept.is_dir()
    assert str(tree) not in [line.split()[0] for line in git(own, "worktree", "list").splitlines()]


def test_an_unavailable_submodule_is_named_and_may_be_left_out(own: Path) -> None:
    (own.parent / "library").rename(own.parent / "gone")
    with pytest.raises(pytest.UsageError, match=r"(?s)'vendor'.*submodule\.NAME\.update none$"):
        check_out("git:HEAD~1", own)
    assert not any(map(Path.is_dir, (own.parent / "cache" / "worktrees").iterdir()))
    assert len(git(own, "worktree", "list").splitlines()) == 1
    git(own, "config", "submodule.vendor.update", "none")
    assert not list((check_out("git:HEAD~1", own).root / "vendor").iterdir())


def test_a_changed_worktree_is_made_again(own: Path) -> None:
    """A sound worktree keeps what a setup made there."""
    tree = check_out("git:HEAD~1", own).root
    changes: List[Callable[[], object]] = [
        lambda: (tree / "test_own.py").write_text("mine"),
        lambda: git(tree, "checkout", "-q", "--detach", "--recurse-submodules", "main"),
        lambda: tree.with_name(f"{tree.name}.used").unlink(),  # incomplete
        lambda: shutil.rmtree(str(tree)),
    ]
    for change in changes:
        (tree / "made").touch()
        assert check_out("git:HEAD~1", own).root == tree
        assert (tree / "made").is_file()
        change()
        assert check_out("git:HEAD~1", own).root == tree
        assert (tree / "test_own.py").read_text() == "one"
        assert not (tree / "made").exists()


def test_no_user_hook_runs(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks, noted = own.parent / "hooks", own.parent / "noted"
    hooks.mkdir()
    (hooks / "post-checkout").write_text(f"#!/bin/sh\npwd >> '{noted}'\n")
    (hooks / "post-checkout").chmod(0o755)
    settings = own.parent / "settings"
    settings.write_text(f"[core]\nhooksPath = {hooks}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    assert (check_out("git:HEAD~1", own).root / "vendor" / "library.py").is_file()
    assert not noted.exists()


def test_a_failed_setup_shows_its_last_lines(tmp_path: Path) -> None:
    with pytest.raises(pytest.UsageError, match="exit code 3 in ") as told:
        revision._run_setup("sh -c 'seq 99; exit 3'", tmp_path)
    assert str(told.value).splitlines()[1:] == [str(n) for n in range(85, 100)]


@pytest.mark.parametrize("setup", ["a && b", "a; b", "a 2>log", "a | b", "a > log"])
def test_a_command_for_a_shell_names_one(setup: str, tmp_path: Path) -> None:
    with pytest.raises(pytest.UsageError) as told:
        revision._run_setup(setup, tmp_path)
    assert f"sh -c '{setup}'" in str(told.value)
    revision._run_setup(f"sh -c 'true; {setup} || true'", tmp_path)


@pytest.mark.parametrize(("name", "near"), [("mian", "main"), ("v1.1O", "v1.10")])
def test_a_revision_that_is_missing_has_its_nearest_name(own: Path, name: str, near: str) -> None:
    git(own, "tag", "v1.10")
    with pytest.raises(pytest.UsageError, match=f"'{name}'; did you mean {near}"):
        revision.find_commit("--against", name, own)


@pytest.mark.parametrize("setup", ["./nothing", "sh 'open", " "])
def test_an_unusable_command_makes_no_environment(setup: str, tmp_path: Path) -> None:
    with pytest.raises(pytest.UsageError, match=f"--against-setup={setup}: .* run: "):
        revision._run_setup(setup, tmp_path)
