"""Run pytest with the code of one folder: ``only_from.py FOLDER [--instead-of=HERE] WORDS``.

A program of its own, by its path: it serves revisions of the project that do not have it. An
installation of the suite, a .pth file or a variable may name another checkout; then the numbers
would be those of another code than they say. So the folder comes first on ``sys.path``, and where
a module of the suite came from elsewhere all the same, the process ends with exit code 4 and a
message: after the collection, and at its end for what a case has imported by itself.

With ``--instead-of`` the folder is another revision of a project that only uses the suite, and
``HERE`` is the checkout that it is a revision of, with all projects in it: no module of that may be
imported, but for the suite and what is installed. Paths into HERE, as ``pip install -e`` and
PYTHONPATH have them, are replaced by those of the revision.
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
#: How the modules are called that setuptools makes for ``pip install -e``.
EDITABLE = "__editable__"
#: What helps if a project's own modules come from its checkout all the same.
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


class Redirect:
    """Replaces paths into a checkout by those of a worktree of another revision."""

    def __init__(self, here: str, folder: str) -> None:
        self._inside = _within(here)
        self._tree = _worktree(folder)
        self._environment = _of_environment(self._inside)

    def path(self, path: str) -> str:
        """Return the worktree's path for one of the checkout; others as they are.

        An environment in the checkout, and a folder with the suite, stay.
        """
        real = os.path.join(os.path.realpath(path), "")
        kept = (
            not real.startswith(self._inside)
            or real.startswith((*self._environment, _within(self._tree)))
            or set(INSTALLED) & set(real[len(self._inside) :].split(os.sep))
            or os.path.isdir(os.path.join(path, "ipubench"))
        )
        there = os.path.join(self._tree, real[len(self._inside) :])
        return path if kept else there.rstrip(os.sep)

    def imports(self) -> None:
        """Redirect the imports of this process, and of each that it starts.

        PYTHONPATH comes before what an editable installation adds to the path.
        """
        changed = [self.path(one) for one in sys.path if one != self.path(one)]
        sys.path[:] = map(self.path, sys.path)
        for finder in [m for n, m in sys.modules.items() if n.startswith(EDITABLE)]:
            # Of setuptools: the folder of each package, and the folders of each namespace.
            packages: Dict[str, str] = getattr(finder, "MAPPING", {})
            for name, path in packages.items():
                packages[name] = self.path(path)
                if packages[name] != path:
                    changed.append(os.path.dirname(packages[name]))
            spaces: Dict[str, List[str]] = getattr(finder, "NAMESPACES", {})
            for name, paths in spaces.items():
                spaces[name] = list(map(self.path, paths))
        given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        folders = [*changed, *(self.path(one) for one in given if one)]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(folders))


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
    if here:
        Redirect(here, folder).imports()
    return int(pytest.main(words, plugins=[Guard(folder, here)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
