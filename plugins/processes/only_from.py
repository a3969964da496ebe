"""Run pytest with the suite of one folder and of no other: ``only_from.py FOLDER WORDS``.

A program of its own, by its path: it serves revisions of the project that do not have it. An
installation of the suite, a .pth file or a variable may name another checkout; then the numbers
would be those of another code than they say. So the folder comes first on ``sys.path``, and where
a module of the suite came from elsewhere all the same, the process ends with exit code 4 and a
message: after the collection, and at its end for what a case has imported by itself.
"""

from __future__ import annotations

import os
import sys
from typing import Dict, List, Optional

#: Folders of the project, by the names that their modules have with and without the package.
TOP = ("ipubench", "conftest", "fixtures", "models", "plugins")
BENCHMARKS = "bench_"
USAGE_ERROR = 4


def loaded() -> Dict[str, str]:
    """Return the file of each module of the suite that this process has imported."""
    found = {}
    for name, module in sorted(sys.modules.items()):
        top = name.split(".")[0]
        file: Optional[str] = getattr(module, "__file__", None)
        if file and (top in TOP or top.startswith(BENCHMARKS)):
            found[name] = file
    return found


def strangers(folder: str, modules: Dict[str, str]) -> List[str]:
    """Return in words which modules come from outside the folder, links followed."""
    inside = os.path.join(os.path.realpath(folder), "")
    return [
        f"{name} comes from {file}, outside {folder}"
        for name, file in modules.items()
        if not os.path.realpath(file).startswith(inside)
    ]


class Guard:
    """The plugin that looks where modules came from."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def pytest_collection_finish(self) -> None:
        """Nothing has run yet."""
        self._check()

    def pytest_sessionfinish(self) -> None:
        """Cases have imported what they need."""
        self._check()

    def _check(self) -> None:
        import pytest

        found = strangers(self._folder, loaded())
        if found:
            pytest.exit(f"refused: {found[0]}", returncode=USAGE_ERROR)


def main(folder: str, words: List[str]) -> int:
    """Run pytest; return its exit code."""
    # In place of the folder of this program, whose modules must not be taken for others.
    sys.path[0] = folder
    import pytest

    return int(pytest.main(words, plugins=[Guard(folder)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
