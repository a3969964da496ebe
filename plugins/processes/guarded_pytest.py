"""Runs pytest with the code of one folder.

    guarded_pytest.py FOLDER [--instead-of=HERE | --modules=NAMES] ARGS

It is started by its path, because other revisions of the project may not have it. An installation
of the suite, a .pth file or a variable could lead to another checkout, so that the wrong code would
be measured. So the folder comes first on ``sys.path``. If a module of the suite still comes from
elsewhere, the process ends with exit code 4 and a message. It checks this after the collection, and
at the end.

With ``--instead-of`` the folder is another revision of a project that only uses the suite. ``HERE``
is the checkout of this revision: no module may come from there, except for the suite and installed
packages. Paths into HERE, as from ``pip install -e`` and PYTHONPATH, are replaced by those of the
other revision.

With ``--modules`` the folder has installed packages, and only these modules must come from there.
"""

from __future__ import annotations

import os
import sys
from typing import Dict, List, Optional, Sequence, Tuple

#: The top-level packages of the suite, with and without ``ipubench``.
TOP = ("ipubench", "conftest", "fixtures", "models", "plugins")
BENCHMARKS = "bench_"
USAGE_ERROR = 4
INSTEAD_OF = "--instead-of="
MODULES = "--modules="
OWN_OPTIONS = (INSTEAD_OF, MODULES)
#: The names of setuptools' modules for ``pip install -e`` begin like this.
EDITABLE = "__editable__"
#: The advice if a project's modules come from its checkout all the same.
REMEDY = (
    "name the folder that has it to pytest, as in -o pythonpath=src, or make an environment there "
    'with --against-setup="..."'
)
#: The same if they come before an installed version.
TREE_FIRST = (
    "your tests import the code of this tree, whichever version is installed; to compare it with "
    "a released version, name its tag: --against=git:TAG"
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


def modules_of(names: Sequence[str]) -> Dict[str, str]:
    """Return the file of each of these modules that is imported.

    Those within a package may be other packages' under another name, such as ``six.moves``.
    """
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in names}
    return {name: file for name, file in files.items() if file}


def _of_environment(inside: str) -> Tuple[str, ...]:
    """Return the folders of this interpreter that are in a checkout."""
    folders = map(_within, (sys.prefix, sys.base_prefix))
    return tuple(folder for folder in folders if folder.startswith(inside))


def worktree_of(folder: str) -> str:
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


class Redirect:
    """Replaces paths into a checkout by those of a worktree of another revision."""

    def __init__(self, here: str, folder: str) -> None:
        self._inside = _within(here)
        self._tree = worktree_of(folder)
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
    """The plugin that ends the session if a module comes from the wrong folder."""

    def __init__(self, folder: str, here: str = "", names: Optional[List[str]] = None) -> None:
        self._folder = worktree_of(folder) if here else folder
        self._here = here
        self._names = names

    def pytest_collection_finish(self) -> None:
        """Check before anything runs."""
        self._check()

    def pytest_sessionfinish(self) -> None:
        """Check what the cases have imported."""
        self._check()

    def _check(self) -> None:
        import pytest

        if self._names is not None:
            modules, remedy = modules_of(self._names), TREE_FIRST
        elif self._here:
            modules, remedy = checkout_modules(self._here), REMEDY
        else:
            modules, remedy = loaded(), ""
        found = outside_modules(self._folder, modules)
        if found:
            # Before the long paths: a line of a log is cut at its end.
            advice = f"{remedy}: " if remedy else ""
            pytest.exit(f"refused: {advice}{found[0]}", returncode=USAGE_ERROR)


def main(folder: str, arguments: List[str]) -> int:
    """Run pytest; return its exit code."""
    given = arguments.pop(0) if arguments[:1] and arguments[0].startswith(OWN_OPTIONS) else ""
    value = given.partition("=")[2]
    # Replaces the folder of this program: nothing may be imported from there.
    sys.path[0] = os.getcwd() if given.startswith(MODULES) else folder
    if given.startswith(MODULES):
        guard = Guard(folder, names=value.split(","))
    else:
        guard = Guard(folder, value)
        if value:
            # Before pytest, whose own modules may be the project's.
            Redirect(value, folder).imports()
    import pytest

    return int(pytest.main(arguments, plugins=[guard]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
