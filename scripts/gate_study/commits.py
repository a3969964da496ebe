"""Make the commits of a study's throw-away repositories."""

from __future__ import annotations

import subprocess
from pathlib import Path

#: Whose commits they are, whatever the user has configured.
WHO = ("-c", "user.name=study", "-c", "user.email=study@localhost", "-c", "commit.gpgsign=false")


class GitError(Exception):
    """git failed; the text has its words and what it said."""


def git(folder: Path, *words: str) -> None:
    """Run git in a folder. Raises GitError."""
    command = ["git", *WHO, *words]
    answer = subprocess.run(
        command, cwd=str(folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if answer.returncode:
        raise GitError(f"{' '.join(command)}: {answer.stdout.decode(errors='replace')}")
