"""A git repository with the suite and fake cases, like a user's clone of the project."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List, Mapping, Optional, Set

from tests.support.harness import QUIETLY, ROOT, Outcome, Project, SuiteServer, run_elsewhere

#: Makes a fake case slower without changing its configuration.
FAST = "        config.batch_seconds,\n"
PYTEST = ("-m", "pytest", *QUIETLY, "bench_fake.py", "--device=fake")
#: Arguments of git that set the author.
IDENTITY = ("-c", "user.name=A", "-c", "user.email=a@example.org")
IGNORED = "__pycache__/\n/results/\nleases/\ncache/\n.venv/\n"
# Python first writes compiled files under another name.
LEFT_OUT = (".git", ".venv*", "site", "*.pyc.*", ".*_cache", "*.egg-info")


def copy_of_the_project(folder: Path) -> Path:
    """Return a copy of the project as in a user's clone after a run.

    Compiled files must match their sources in time and size. The machine's peaks are measured with
    less work, as in tests/support/suite_server.py, and cases run on the CPU.
    """
    matching = shutil.ignore_patterns(*LEFT_OUT)

    def left_out(path: str, names: List[str]) -> Set[str]:
        return {*matching(path, names), *(["results"] if path == str(ROOT) else [])}

    shutil.copytree(ROOT, folder, symlinks=True, ignore=left_out)
    for name, old, new in (
        ("pytest.ini", "addopts =", "addopts = --device=cpu"),
        ("plugins/measure/rounds.py", "PEAK_SECONDS = 0.5", "PEAK_SECONDS = 0.1"),
        ("fixtures/devices/cpu.py", "peak_size = 2048", "peak_size = 1024"),
        ("fixtures/devices/cpu.py", "copy_bytes = 256 << 20", "copy_bytes = 32 << 20"),
    ):
        replace(folder / name, old, new)
    return folder


def replace(path: Path, old: str, new: str) -> None:
    """Replace a text in a file."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def run_alone(
    folder: Path, environment: Mapping[str, str], *words: str, seconds: float = 300.0
) -> Outcome:
    """Run ``python WORDS`` like a user, with Python's own imports at its start."""
    answer = subprocess.run(
        [sys.executable, *words],
        cwd=str(folder),
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds,
        check=False,
    )
    return Outcome(answer.returncode, answer.stdout.decode(errors="replace"))


def run_pytest_in_copy(folder: Path, *words: str) -> Outcome:
    """Run ``pytest WORDS`` in a copy of the project, with the copy's modules."""
    own = {"PYTHONPATH": str(folder), "IPUBENCH_LEASE_DIR": str(folder.parent)}
    return run_alone(folder, {**os.environ, **own}, "-m", "pytest", *QUIETLY, *words, seconds=600.0)


class Repository(Project):
    """A project whose folder is a repository with one commit on the branch main.

    It contains the suite, or only uses this checkout's, which a fork has imported already.
    """

    def __init__(self, folder: Path, suite: bool = True) -> None:
        super().__init__(folder)
        self._run = run_elsewhere if suite else SuiteServer.run
        for name in ("ipubench", "fixtures", "plugins", "models") if suite else ():
            # With compiled files, which must match their sources in time and size.
            shutil.copytree(ROOT / name, folder / name, symlinks=True)
        (folder / ".gitignore").write_text(IGNORED)
        # Its many processes compile each module once. No test changes a file between two runs
        # without changing its size.
        del self.environment["PYTHONDONTWRITEBYTECODE"]
        # The machine's own git configuration is ignored, and no hook runs.
        self.environment.update(GIT_CONFIG_GLOBAL=os.devnull, GIT_CONFIG_NOSYSTEM="1")
        self.git("init", "-q", "-b", "main")
        self.commit("as it is")

    def run(self, *words: str, env: Optional[Mapping[str, str]] = None) -> Outcome:
        """Run ``pytest bench_fake.py --device=fake WORDS`` with the repository's own modules."""
        return self.python(*PYTEST, *words, env=env)

    def python(self, *words: str, env: Optional[Mapping[str, str]] = None) -> Outcome:
        """Run ``python WORDS`` in a process that has not imported another checkout."""
        return self._run(self.folder, {**self.environment, **(env or {})}, *words)

    def python_alone(self, *words: str, env: Optional[Mapping[str, str]] = None) -> Outcome:
        """Run ``python WORDS`` like a user, with Python's own imports at its start."""
        return run_alone(self.folder, {**self.environment, **(env or {})}, *words)

    @property
    def cases(self) -> Path:
        """The file of the cases."""
        return self.folder / "bench_fake.py"

    def git(self, *words: str) -> str:
        answer = subprocess.run(
            ["git", *IDENTITY, *words],
            cwd=str(self.folder),
            env=self.environment,
            stdout=subprocess.PIPE,
            check=True,
        )
        return answer.stdout.decode().strip()

    def commit(self, message: str) -> str:
        """Commit everything; return the commit."""
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def replace(self, name: str, old: str, new: str) -> None:
        replace(self.folder / name, old, new)

    def slow_down(self, factor: float) -> None:
        """Make every fake case slower by a factor that its configuration does not show."""
        self.replace("bench_fake.py", FAST, f"        {factor} * config.batch_seconds,\n")

    def state(self) -> List[str]:
        """Return what a run must not change: the branch, the files, the branches, HEAD."""
        return [
            self.git("rev-parse", "--abbrev-ref", "HEAD"),
            self.git("rev-parse", "HEAD"),
            self.git("status", "--porcelain"),
            self.git("branch", "--list", "--all"),
            self.git("stash", "list"),
        ]
