"""A revision of the project, checked out beside it: the other side of ``--against=git:REV``.

Each commit has a worktree in the cache directory, which later runs use again; those that nobody
has used for a while are removed. The user's own checkout is only read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Sequence

import pytest

from ipubench.fixtures.case.errors import CaseError, DataError
from ipubench.fixtures.case.masking import mask_text, masker, secrets_in
from ipubench.fixtures.data.cache import cache_dir
from ipubench.fixtures.machine.files import IMPORT_ROOT, require_private

PREFIX = "git:"
MERGE_BASE = "merge-base:"
#: The interpreter that a command of --against-setup makes, where none is named.
MADE_PYTHON = ".venv/bin/python"
SETUP_SECONDS = 3600.0
KEPT_DAYS = 14
LAST_LINES = 15
#: Hooks of the repository do not run: nothing else may happen because somebody measures.
NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
#: Of a git hook that runs us, and wrong in a worktree.
GIT_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")


@dataclass(frozen=True)
class Revision:
    """A commit in a worktree of its own; ``root`` is the project's folder there.

    ``here``: the project's own checkout, where it only uses the suite, which is this one's then.
    """

    commit: str
    root: Path
    here: Optional[Path] = None


def check_out(given: str, root: Path, setup: Optional[str] = None) -> Revision:
    """Check out the revision that ``--against=GIVEN`` names, and set it up.

    ``root`` is the project's folder here. UsageError where that cannot be done.
    """
    where = Path(toplevel(given, root))
    commit = find_commit(given, root)
    folder = _worktree(given, where, commit, setup)
    project = folder / root.resolve().relative_to(where.resolve())
    if has_suite(project):
        return Revision(commit, project)
    if root.resolve() == IMPORT_ROOT:
        raise pytest.UsageError(
            f"--against={given}: commit {commit[:12]} has no ipubench folder of its own, so there "
            "is no other suite to measure; name a revision that has one"
        )
    return Revision(commit, project, root.resolve())


def has_suite(project: Path) -> bool:
    """Tell whether a folder holds the suite itself, and does not only use it."""
    return (project / "ipubench" / "__init__.py").is_file()


def toplevel(given: str, root: Path) -> str:
    """Return the folder of the repository that the project is in."""
    try:
        return _git(given, root, "rev-parse", "--show-toplevel")
    except pytest.UsageError as error:
        if "not a git repository" not in str(error):
            raise
        raise pytest.UsageError(
            f"--against={given}: {root} is in no git repository; name another environment's "
            "interpreter instead, or clone the project with git"
        ) from None


def find_commit(given: str, root: Path) -> str:
    """Return the commit that ``git:REV`` or ``git:merge-base:BRANCH`` means in a repository.

    A branch that is only at the remote is found there, as in a checkout of a pull request.
    """
    name = given[len(PREFIX) :]
    if name.startswith(MERGE_BASE):
        other = _resolve(given, name[len(MERGE_BASE) :], root)
        try:
            return _git(given, root, "merge-base", "HEAD", other)
        except pytest.UsageError:
            raise pytest.UsageError(
                f"--against={given}: HEAD and {other[:12]} have no common commit here; a shallow "
                "clone needs its history: git fetch --unshallow, in CI fetch-depth: 0"
            ) from None
    return _resolve(given, name, root)


def _resolve(given: str, name: str, root: Path) -> str:
    if name and not name.startswith("-"):
        for word in (name, f"origin/{name}"):
            with contextlib.suppress(pytest.UsageError):
                return _git(given, root, "rev-parse", "--verify", "--quiet", f"{word}^{{commit}}")
    raise pytest.UsageError(
        f"--against={given}: git knows no revision {name!r} in {root}; give a branch, a tag, a "
        "commit or merge-base:BRANCH, and fetch it first where this clone is shallow"
    )


def _worktree(given: str, repository: Path, commit: str, setup: Optional[str]) -> Path:
    """Return the folder of a worktree of a commit, made and set up where there is none."""
    from filelock import FileLock, Timeout  # here, because most runs need no other revision

    try:
        folder = cache_dir() / "worktrees"
    except DataError as error:
        raise pytest.UsageError(f"--against={given}: {error}") from None
    made_by = f"-{hashlib.sha256(setup.encode()).hexdigest()[:8]}" if setup else ""
    tree = folder / f"{commit}{made_by}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for place in (folder.parent, folder):
            require_private(place, "IPUBENCH_CACHE_DIR")
        for stamp in folder.glob("*.used"):
            old = stamp.with_suffix("")
            with contextlib.suppress(Timeout, FileNotFoundError), FileLock(
                f"{old}.lock", timeout=0
            ):
                if stamp.stat().st_mtime < time.time() - KEPT_DAYS * 24 * 3600:
                    remove(old)
        # Of this one alone: another commit's may be set up for an hour.
        with FileLock(f"{tree}.lock"):
            if _is_sound(given, tree, commit):
                update_submodules(given, tree)
            else:
                remove(tree)
                try:
                    add(given, repository, tree, commit)
                    if setup:
                        _run_setup(setup, tree)
                except BaseException:
                    remove(tree)
                    raise
            _stamp(tree).touch()
    except CaseError as error:
        raise pytest.UsageError(f"--against={given}: {error}") from None
    except OSError as error:
        raise pytest.UsageError(
            f"--against={given}: no worktree can be made in {folder}: {error}; set "
            "IPUBENCH_CACHE_DIR to a directory that can be written"
        ) from None
    return tree


def add(given: str, repository: Path, tree: Path, commit: str) -> None:
    """Make a worktree without a branch, with its submodules; UsageError where git cannot.

    What it has made by then is for the caller to remove.
    """
    words = ("worktree", "add", "--force", "--detach")
    _git(given, repository, *NO_HOOKS, *words, str(tree), commit)
    update_submodules(given, tree)


def update_submodules(given: str, tree: Path) -> None:
    """Have the submodules of a worktree as its commit has them; UsageError where git cannot."""
    if not (tree / ".gitmodules").is_file():
        return
    # Not --init, which writes into the configuration that all worktrees share with the user's own.
    words = ("-c", "submodule.active=.", "submodule", "update", "--recursive")
    try:
        _git(given, tree, *NO_HOOKS, *words)
    except pytest.UsageError as error:
        raise pytest.UsageError(
            f"{mask_text(str(error))}\n"
            "make the submodule reachable from here, or have git leave it out: "
            "git config submodule.NAME.update none"
        ) from None


def remove(tree: Path) -> None:
    """Remove a worktree, and what its repository knows of it."""
    if tree.exists():
        with contextlib.suppress(pytest.UsageError):
            _git("", tree, "worktree", "remove", "--force", str(tree))
        shutil.rmtree(str(tree), ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        _stamp(tree).unlink()


def _stamp(tree: Path) -> Path:
    """Return the file that is there once a worktree is whole; it says when it was last used."""
    return tree.with_name(f"{tree.name}.used")


def _is_sound(given: str, tree: Path, commit: str) -> bool:
    """Tell whether a worktree is whole, and nobody has changed a file of its commit."""
    if not _stamp(tree).exists() or not tree.is_dir():
        return False
    try:
        head = _git(given, tree, "rev-parse", "HEAD")
        return head == commit and not _git(given, tree, "status", "--porcelain", "-uno")
    except pytest.UsageError:
        return False


def _run_setup(setup: str, tree: Path) -> None:
    """Run the command that makes an environment; UsageError with its last lines if it fails."""
    mask = masker(secrets_in(setup.split()))
    try:
        answer = _run(shlex.split(setup), tree, SETUP_SECONDS)
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        raise pytest.UsageError(
            mask(f"--against-setup={setup}: it cannot be run: {error}")
        ) from None
    if answer.returncode:
        lines = answer.stdout.decode(errors="replace").strip().splitlines()
        said = f"exit code {answer.returncode} in {tree}; its last lines:"
        said = "\n".join([f"--against-setup={setup}: {said}", *lines[-LAST_LINES:]])
        raise pytest.UsageError(mask(said))


def _git(given: str, folder: Path, *words: str) -> str:
    """Return what git says; UsageError where it is not there or fails."""
    try:
        answer = _run(["git", *words], folder)
    except OSError as error:
        raise pytest.UsageError(
            f"--against={given} needs git, which cannot be run here: {error}"
        ) from None
    said = answer.stdout.decode(errors="replace").strip()
    if answer.returncode:
        raise pytest.UsageError(f"--against={given}: git {' '.join(words)} in {folder}: {said}")
    return said


def _run(
    words: Sequence[str], folder: Path, seconds: Optional[float] = None
) -> subprocess.CompletedProcess[bytes]:
    environment = {k: v for k, v in os.environ.items() if k not in GIT_VARIABLES}
    return subprocess.run(
        words,
        cwd=str(folder),
        env={**environment, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds,
        check=False,
    )
