"""Run pytest with the code of one folder: ``only_from.py FOLDER [--instead-of=HERE] WORDS``.

A program of its own, by its path: it serves revisions of the project that do not have it. An
installation of the suite, a .pth file or a variable may name another checkout; then the numbers
would be those of another code than they say. So the folder comes first on ``sys.path``, and where
a module of the suite came from elsewhere all the same, the process ends with exit code 4 and a
message: after the collection, and at its end for what a case has imported by itself.

With ``--instead-of`` the folder is another revision of a project that only uses the suite, and
``HERE`` is the checkout that it is a revision of, with all projects in it: no module of that may be
imported, but for the suite and what is installed.
"""

from __future__ import annotations

import os
import sys
from typing import Dict, List, Optional, Tuple

#: Folders of the project, by the names that their modules have with and without the package.
TOP = ("ipubench", "conftest", "fixtures", "models", "plugins")
BENCHMARKS = "bench_"
USAGE_ERROR = 4
INSTEAD_OF = "--instead-of="
#: What helps if a project's own modules come from its checkout, as with ``pip install -e``.
REMEDY = (
    "name the folder that has it to pytest, as in -o pythonpath=src, or make an environment there "
    'with --against-setup="..."'
)
#: Folders of an environment, which may lie within a checkout, as the whole environment may.
INSTALLED = ("site-packages", "dist-packages")


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
    inside = _within(folder)
    return [
        f"{name} comes from {file}, outside {folder}"
        for name, file in modules.items()
        if not os.path.realpath(file).startswith(inside)
    ]


def of_checkout(here: str) -> Dict[str, str]:
    """Return the file of each module from a checkout, but for the suite's and installed ones."""
    inside = _within(here)
    environment = _of_environment(inside)
    found = {}
    for name, module in sorted(sys.modules.items()):
        file = os.path.realpath(getattr(module, "__file__", None) or os.sep)
        installed = set(INSTALLED) & set(file[len(inside) :].split(os.sep))
        ours = installed or name.split(".")[0] == "ipubench" or file.startswith(environment)
        if file.startswith(inside) and not ours:
            found[name] = file
    return found


def _of_environment(inside: str) -> Tuple[str, ...]:
    """Return the folders of this interpreter that lie in a checkout."""
    folders = map(_within, (sys.prefix, sys.base_prefix))
    return tuple(folder for folder in folders if folder.startswith(inside))


def _worktree(folder: str) -> str:
    """Return the worktree that a folder is in, which has a file of git's; else the folder."""
    above = os.path.realpath(folder)
    while not os.path.exists(os.path.join(above, ".git")):
        if above == os.path.dirname(above):
            return folder
        above = os.path.dirname(above)
    return above


def _within(folder: str) -> str:
    """Return what the path of a file in a folder begins with, links followed."""
    return os.path.join(os.path.realpath(folder), "")


class Guard:
    """The plugin that looks where modules came from."""

    def __init__(self, folder: str, here: str = "") -> None:
        self._folder = _worktree(folder) if here else folder
        self._here = here

    def pytest_collection_finish(self) -> None:
        """Nothing has run yet."""
        self._check()

    def pytest_sessionfinish(self) -> None:
        """Cases have imported what they need."""
        self._check()

    def _check(self) -> None:
        import pytest

        modules = of_checkout(self._here) if self._here else loaded()
        found = strangers(self._folder, modules)
        if found:
            remedy = f"; {REMEDY}" if self._here else ""
            pytest.exit(f"refused: {found[0]}{remedy}", returncode=USAGE_ERROR)


def main(folder: str, words: List[str]) -> int:
    """Run pytest; return its exit code."""
    # In place of the folder of this program, whose modules must not be taken for others.
    sys.path[0] = folder
    import pytest

    here = words.pop(0)[len(INSTEAD_OF) :] if words[:1] and words[0].startswith(INSTEAD_OF) else ""
    return int(pytest.main(words, plugins=[Guard(folder, here)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
