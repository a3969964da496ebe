"""Checks out another revision of the project, for ``--against=git:REV``.

Each commit has a worktree in the cache directory. The last run that uses it removes it at its end;
one with an environment of its own is kept for later runs, until it has been unused for a while. The
user's own checkout is only read.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shlex
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Callable, Optional, Sequence

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.options import nearest
from ipubench.fixtures.data.cache import code_folder
from ipubench.fixtures.machine.files import IMPORT_ROOT
from ipubench.fixtures.machine.locks import free, locked, take
from ipubench.plugins.processes import kept
from ipubench.plugins.record.host_process import GIT, outside_git

PREFIX = "git:"
MERGE_BASE = "merge-base:"
#: The interpreter that --against-setup makes, unless --against-python names another.
MADE_PYTHON = ".venv/bin/python"
#: Words that only a shell understands.
SHELL = re.compile(r"&&?|\|\|?|;|[0-9&]?[<>].*")


@dataclass(frozen=True)
class Revision:
    """A commit in a worktree; ``root`` is the project's folder there.

    ``here``: set for a project that only uses the suite: the checkout of this revision. This suite
    then measures both.
    """

    commit: str
    root: Path
    here: Optional[Path] = None


#: Registers what is to be called at the end of the run.
AtEnd = Callable[[Callable[[], None]], object]


def check_out(
    given: str, root: Path, setup: Optional[str] = None, at_end: Optional[AtEnd] = None
) -> Revision:
    """Check out the revision that ``--against=GIVEN`` names, and set it up.

    ``root`` is the project's folder here. Without a setup the worktree is removed at the end.
    Raises UsageError if that cannot be done.
    """
    option = f"--against={given}"
    where = Path(toplevel(option, root))
    commit = find_commit(option, given[len(PREFIX) :], root)
    part = root.resolve().relative_to(where.resolve())
    project = _worktree(option, where, commit, part, setup, at_end)
    if has_suite(project):
        return Revision(commit, project)
    if root.resolve() == IMPORT_ROOT:
        raise pytest.UsageError(
            f"{option}: commit {commit[:12]} has no ipubench folder, so there is no other suite "
            "to measure; name a revision that has one"
        )
    return Revision(commit, project, where.resolve())


def is_this_checkout(given: str, root: Path) -> bool:
    """Return whether ``--against=GIVEN`` names the code that is checked out here.

    Changed files and new Python files make a difference. Raises UsageError without that commit.
    """
    option = f"--against={given}"
    toplevel(option, root)
    if find_commit(option, given[len(PREFIX) :], root) != find_commit(option, "HEAD", root):
        return False
    status = _git(option, root, "status", "--porcelain", "-z", "--untracked-files=all")
    changed = filter(None, status.split("\0"))
    return all(name.startswith("??") and not name.endswith(".py") for name in changed)


def has_suite(project: Path) -> bool:
    """Return whether a folder is the suite itself, not a project that uses it."""
    return (project / "ipubench" / "__init__.py").is_file()


def toplevel(option: str, root: Path) -> str:
    """Return the top folder of the project's repository."""
    try:
        return _git(option, root, "rev-parse", "--show-toplevel")
    except pytest.UsageError as error:
        if "not a git repository" not in str(error):
            raise
        raise pytest.UsageError(
            f"{option}: {root} is not in a git repository; clone the project with git, or compare "
            "with another environment: --against=PYTHON"
        ) from None


def find_commit(option: str, name: str, root: Path) -> str:
    """Return the commit that ``REV`` or ``merge-base:BRANCH`` names in a repository.

    This also finds branches that exist only at the remote, as in the checkout of a pull request.
    ``option``, here and below: the option as given, for errors.
    """
    if name.startswith(MERGE_BASE):
        other = _resolve(option, name[len(MERGE_BASE) :], root)
        try:
            return _git(option, root, "merge-base", "HEAD", other)
        except pytest.UsageError:
            raise pytest.UsageError(
                f"{option}: HEAD and {other[:12]} have no common commit here; a shallow "
                "clone needs its history: git fetch --unshallow, in CI fetch-depth: 0"
            ) from None
    return _resolve(option, name, root)


def _resolve(option: str, name: str, root: Path) -> str:
    for branch in (name, f"origin/{name}"):
        with contextlib.suppress(pytest.UsageError):
            return _git(option, root, "rev-parse", "--verify", "--quiet", f"{branch}^{{commit}}")
    known = _git(option, root, "for-each-ref", "--format=%(refname:short)").split()
    raise pytest.UsageError(
        f"{option}: {root} has no revision {name!r}{nearest(name, known)}; give a branch, a tag, a "
        "commit or merge-base:BRANCH, and fetch it first if this clone is shallow"
    )


def _worktree(
    option: str,
    repository: Path,
    commit: str,
    part: Path,
    setup: Optional[str],
    at_end: Optional[AtEnd],
) -> Path:
    """Return the project's folder in a worktree of a commit, made and set up if there is none.

    ``part``: the path of the project in the repository.
    """
    made = "" if setup is None else f"{setup}\n{part}" if part.parts else setup
    made_by = f"-{hashlib.sha256(made.encode()).hexdigest()[:8]}" if made else ""
    try:
        folder = code_folder("worktrees")
        tree = folder / f"{commit}{made_by}"
        kept.remove_others(tree, _remove_leftover)
        with locked(kept.lock_of(tree)):
            if _is_sound(option, tree, commit):
                update_submodules(option, tree)
            else:
                remove(tree)
                try:
                    add(option, repository, tree, commit)
                    if not (tree / part).is_dir():
                        raise pytest.UsageError(
                            f"{option}: commit {commit[:12]} has no folder {part}, the project's"
                        )
                    if setup:
                        _run_setup(setup, tree / part)
                except BaseException:
                    remove(tree)
                    raise
            kept.stamp(tree).touch()
            users = take(_users(tree), shared=True) if at_end and not made else None
            if at_end is not None and users is not None:
                at_end(partial(_leave, tree, users))
    except CaseError as error:
        raise pytest.UsageError(f"{option}: {error}") from None
    except OSError as error:
        raise pytest.UsageError(
            f"{option}: a worktree cannot be made: {error}; set "
            "IPUBENCH_CACHE_DIR to a directory that can be written"
        ) from None
    return tree / part


def add(option: str, repository: Path, tree: Path, commit: str) -> None:
    """Make a worktree without a branch, with its submodules.

    Raises UsageError if git fails; the caller then removes what is left.
    """
    command = ("worktree", "add", "--force", "--detach")
    _git(option, repository, *command, str(tree), commit)
    update_submodules(option, tree)


def update_submodules(option: str, tree: Path) -> None:
    """Update the submodules of a worktree to its commit. Raises UsageError if git fails."""
    if not (tree / ".gitmodules").is_file():
        return
    # Not --init: it writes into the configuration, which the user's checkout shares.
    command = ("-c", "submodule.active=.", "submodule", "update", "--recursive")
    try:
        _git(option, tree, *command)
    except pytest.UsageError as error:
        raise pytest.UsageError(
            f"{error}\n"
            "make the submodule reachable from here, or have git leave it out: "
            "git config submodule.NAME.update none"
        ) from None


def _leave(tree: Path, users: int) -> None:
    """Remove a worktree if this was the last run that used it."""
    with contextlib.suppress(OSError), locked(kept.lock_of(tree)):
        free(users)
        _remove_unused(tree)


def _remove_leftover(tree: Path) -> None:
    """Remove another worktree, whose lock is held, that no run needs any more."""
    if "-" not in tree.name:  # its last run was killed, if no run uses it
        _remove_unused(tree)
    elif kept.is_old(tree):
        remove(tree)


def _remove_unused(tree: Path) -> None:
    """Remove a worktree, whose lock is held, if no run uses it."""
    users = take(_users(tree))
    if users is not None:
        remove(tree)
        _users(tree).unlink()
        free(users)


def _users(tree: Path) -> Path:
    """Return the file that each run locks, together with others, while it uses a worktree."""
    return tree.with_name(f"{tree.name}.users")


def remove(tree: Path) -> None:
    """Remove a worktree, and its entry in the repository."""
    if tree.exists():
        with contextlib.suppress(pytest.UsageError):
            _git("", tree, "worktree", "remove", "--force", str(tree))
    kept.remove(tree)


def _is_sound(option: str, tree: Path, commit: str) -> bool:
    """Return whether a worktree is complete, and its files are unchanged."""
    if not kept.stamp(tree).exists() or not tree.is_dir():
        return False
    try:
        head = _git(option, tree, "rev-parse", "HEAD")
        return head == commit and not _git(option, tree, "status", "--porcelain", "-uno")
    except pytest.UsageError:
        return False


def _run_setup(setup: str, folder: Path) -> None:
    """Run the command that makes an environment. Raises UsageError with its last lines."""
    try:
        words = shlex.split(setup)
        if any(SHELL.fullmatch(word) or word.endswith(";") for word in words):
            raise pytest.UsageError(
                f"--against-setup={setup}: it runs without a shell: name a script, as in "
                f"--against-setup='sh setup.sh', or write --against-setup=\"sh -c '{setup}'\""
            )
        ended = _run(words, folder, kept.SETUP_SECONDS)
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        raise pytest.UsageError(f"--against-setup={setup}: it cannot be run: {error}") from None
    if ended.returncode:
        lines = ended.stdout.decode(errors="replace").strip().splitlines()
        problem = f"exit code {ended.returncode} in {folder}; its last lines:"
        raise pytest.UsageError(
            "\n".join([f"--against-setup={setup}: {problem}", *lines[-kept.LAST_LINES :]])
        )


def _git(option: str, folder: Path, *arguments: str) -> str:
    """Return the output of git. Raises UsageError if git is missing or fails."""
    try:
        ended = _run([*GIT, *arguments], folder, errors=subprocess.PIPE)
    except OSError as error:
        raise pytest.UsageError(f"{option} needs git, which cannot be run here: {error}") from None
    if ended.returncode:
        problem = ended.stderr.decode(errors="replace").strip()
        raise pytest.UsageError(f"{option}: git {' '.join(arguments)} in {folder}: {problem}")
    # Without stderr, which has warnings and GIT_TRACE's output.
    return ended.stdout.decode(errors="replace").strip()


def _run(
    command: Sequence[str],
    folder: Path,
    seconds: Optional[float] = None,
    errors: int = subprocess.STDOUT,
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command,
        cwd=str(folder),
        env={**outside_git(), "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        timeout=seconds,
        check=False,
    )
