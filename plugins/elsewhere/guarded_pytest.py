"""Runs pytest with the code of one folder: ``guarded_pytest.py FOLDER [--instead-of=HERE] ARGS``.

It is started by its path, because other revisions of the project may not have it. An installation
of the suite, a .pth file or a variable could lead to another checkout, so that the wrong code would
be measured. So the folder comes first on ``sys.path``. If a module of the suite still comes from
elsewhere, the process ends with exit code 4 and a message. It checks this after the collection, and
at the end.

With ``--instead-of`` the folder is another revision of a project that only uses the suite. ``HERE``
is the checkout of this revision: no module may come from there, except for the suite and installed
packages.
"""

from __future__ import annotations

import os
import sys
from typing import Dict, List, Optional, Tuple

#: The top-level packages of the suite, with and without ``ipubench``.
TOP = ("ipubench", "conftest", "fixtures", "models", "plugins")
BENCHMARKS = "bench_"
USAGE_ERROR = 4
INSTEAD_OF = "--instead-of="
#: The advice if a project's modules come from its checkout, as with ``pip install -e``.
REMEDY = (
    "name the folder that has it to pytest, as in -o pythonpath=src, or make an environment there "
    'with --against-setup="..."'
)
#: Folders of installed packages; an environment may be within a checkout.
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


def outside_modules(folder: str, modules: Dict[str, str]) -> List[str]:
    """Return a line for each module from outside the folder; follow links."""
    inside = _within(folder)
    return [
        f"{name} comes from {file}, outside {folder}"
        for name, file in modules.items()
        if not os.path.realpath(file).startswith(inside)
    ]


def checkout_modules(here: str) -> Dict[str, str]:
    """Return the file of each module from a checkout, except for the suite and installed ones."""
    inside = _within(here)
    environment = _of_environment(inside)
    found = {}
    for name, module in sorted(sys.modules.items()):
        file = os.path.realpath(getattr(module, "__file__", None) or os.sep)
        installed = set(INSTALLED) & set(file[len(inside) :].split(os.sep))
        allowed = installed or name.split(".")[0] == "ipubench" or file.startswith(environment)
        if file.startswith(inside) and not allowed:
            found[name] = file
    return found


def _of_environment(inside: str) -> Tuple[str, ...]:
    """Return the folders of this interpreter that are in a checkout."""
    folders = map(_within, (sys.prefix, sys.base_prefix))
    return tuple(folder for folder in folders if folder.startswith(inside))


def _worktree(folder: str) -> str:
    """Return the git worktree that contains a folder; else the folder."""
    above = os.path.realpath(folder)
    while not os.path.exists(os.path.join(above, ".git")):
        if above == os.path.dirname(above):
            return folder
        above = os.path.dirname(above)
    return above


def _within(folder: str) -> str:
    """Return the prefix of the real paths of files in a folder."""
    return os.path.join(os.path.realpath(folder), "")


class Guard:
    """The plugin that ends the session if a module comes from the wrong folder."""

    def __init__(self, folder: str, here: str = "") -> None:
        self._folder = _worktree(folder) if here else folder
        self._here = here

    def pytest_collection_finish(self) -> None:
        """Check before anything runs."""
        self._check()

    def pytest_sessionfinish(self) -> None:
        """Check what the cases have imported."""
        self._check()

    def _check(self) -> None:
        import pytest

        modules = checkout_modules(self._here) if self._here else loaded()
        found = outside_modules(self._folder, modules)
        if found:
            remedy = f"; {REMEDY}" if self._here else ""
            pytest.exit(f"refused: {found[0]}{remedy}", returncode=USAGE_ERROR)


def main(folder: str, arguments: List[str]) -> int:
    """Run pytest; return its exit code."""
    # Replaces the folder of this program: nothing may be imported from there.
    sys.path[0] = folder
    import pytest

    has_here = arguments[:1] and arguments[0].startswith(INSTEAD_OF)
    here = arguments.pop(0)[len(INSTEAD_OF) :] if has_here else ""
    return int(pytest.main(arguments, plugins=[Guard(folder, here)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
