"""The environments for a case: this interpreter, another one, other versions, another revision.

``THIS_PLACE`` is this interpreter and this checkout. ``find``, ``find_revision`` and
``find_packages`` examine the environment that ``--against`` names.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

import pytest

from ipubench.fixtures.case.errors import CaseError, some_of
from ipubench.fixtures.data.cache import code_folder
from ipubench.fixtures.instances.protocol import ALTERNATING
from ipubench.fixtures.machine.files import IMPORT_ROOT, user_path
from ipubench.fixtures.machine.packages import FOLDERS, distributions, site_folders, source
from ipubench.plugins.command_line.arguments import LONG, MEASURING_OPTIONS
from ipubench.plugins.processes import guarded_pytest, revision, versions
from ipubench.plugins.processes.revision import AtEnd, Revision
from ipubench.plugins.processes.versions import Versions
from ipubench.plugins.record.host_process import GIT_VARIABLES, version_changes

CHECK_SECONDS = 300.0
#: What an installation in place needs, and no other.
EDITABLE = "editables"
#: Versions that differ, in a line.
MOST_CHANGES = 10
# Imports what every case needs, and prints what that revision supports; an older one lacks some.
PROGRAM = """\
import json, sys
from importlib.util import find_spec
sys.path[:0] = sys.argv[1:]
import pytest, pytest_benchmark
import ipubench.plugins.measure.meter
from ipubench.plugins.record.host_process import versions
try:
    from ipubench.fixtures.machine.packages import installed
except ImportError:  # an older revision
    installed = dict
try:
    from ipubench.plugins.command_line import arguments
except ImportError:  # an older revision
    from ipubench.plugins.command_line import words as arguments
from ipubench.fixtures.instances import protocol
files = {n: m.__file__ for n, m in sys.modules.items() if n.split(".")[0] == "ipubench"}
print(json.dumps({
    "versions": versions(),
    "installed": installed(),
    "options": arguments.MEASURING_OPTIONS,
    "prefix": getattr(arguments, "LONG", "--"),
    "alternating": getattr(protocol, "ALTERNATING", 0),
    "counts": find_spec("ipubench.plugins.count") is not None,
    "modules": {name: file for name, file in files.items() if file},
    "path": sys.path,
}))
"""
# Variables of this environment that would be wrong in another.
OURS = ("PYTHONPATH", "PYTHONHOME", "PYTHONEXECUTABLE", "VIRTUAL_ENV", "CONDA_PREFIX")


@dataclass(frozen=True)
class Place:
    """An interpreter, and the checkout that it runs. By default those of this process."""

    python: str = sys.executable
    #: The folders of this project's modules; None: those of this process.
    folders: Optional[List[str]] = None
    versions: Dict[str, str] = field(default_factory=dict)
    #: The versions of all its distributions, by name.
    installed: Dict[str, str] = field(default_factory=dict)
    #: The revision that runs there; None: this checkout.
    revision: Optional[Revision] = None
    #: This environment with other versions of some packages; None: another one.
    packages: Optional[Versions] = None
    #: Its measuring options, and its version of the protocol for alternating rounds.
    options: Tuple[str, ...] = MEASURING_OPTIONS
    alternating: int = ALTERNATING
    #: The prefix of our options there.
    prefix: str = LONG
    #: Whether it can count instructions.
    counts: bool = True
    #: The folders of its installed packages.
    sites: Tuple[str, ...] = ()

    def variables(self, ours: Mapping[str, str]) -> Dict[str, str]:
        """Return the environment variables for its processes, given those of ours."""
        if self.packages is not None:
            # Folders of installed packages follow those of the environment there.
            given, later = ours.get("PYTHONPATH", "").split(os.pathsep), site_folders()
            first = [one for one in given if one and one not in later]
            return {**ours, "PYTHONPATH": os.pathsep.join(first)}
        if self.folders is None:
            return dict(ours)
        wrong = OURS if self.revision is None else (*OURS, *GIT_VARIABLES)
        kept = {name: value for name, value in ours.items() if name not in wrong}
        folders = list(self.folders)
        if self.own_python:
            # The user's PYTHONPATH may have an SDK; the worktree comes first.
            kept.update({name: ours[name] for name in OURS[1:] if name in ours})
            folders += filter(None, [ours.get("PYTHONPATH")])
        return {**kept, "PYTHONPATH": os.pathsep.join(folders)}

    @property
    def own_python(self) -> bool:
        """Return whether our interpreter runs another revision."""
        return self.revision is not None and self.python == os.path.abspath(sys.executable)

    def pytest_command(self) -> List[str]:
        """Return the command that starts pytest there."""
        program = str(Path(guarded_pytest.__file__).resolve())
        if self.packages is not None:
            names = guarded_pytest.MODULES + ",".join(self.packages.modules)
            return [self.python, program, str(self.packages.site), names]
        if self.revision is None:
            return [self.python, "-m", "pytest"]
        here = self.revision.here
        instead = [f"{guarded_pytest.INSTEAD_OF}{here}"] if here is not None else []
        return [self.python, program, str(self.revision.root), *instead]

    def root(self, config: pytest.Config) -> Path:
        """Return the project's folder there."""
        return config.rootpath if self.revision is None else self.revision.root

    def ini(self, config: pytest.Config) -> Optional[Path]:
        """Return the settings file there, or None: then pytest searches for it.

        A revision may have its settings in another file.
        """
        ini = self.path(config.inipath, config) if config.inipath is not None else None
        return ini if self.revision is None or (ini is not None and ini.is_file()) else None

    def folder(self, config: pytest.Config) -> Path:
        """Return the folder to run in: the project's folder there that matches this run's.

        Programs that the process starts import modules from there, and tests open files there. If
        another revision does not have it, this is the project's top folder.
        """
        here = Path(config.invocation_params.dir)
        if self.revision is None:
            return here
        there = self.path(here, config)
        return there if there != here and there.is_dir() else self.revision.root

    def path(self, path: Path, config: pytest.Config) -> Path:
        """Return the path there that matches a path of this checkout."""
        root = config.rootpath
        if root not in (path, *path.parents):
            return path
        return self.root(config) / path.relative_to(root)

    def changes(self, now: Mapping[str, str]) -> str:
        """Return the versions that differ between there and here, those on both sides first."""
        found = version_changes({**self.versions, **self.installed}, now)
        found.sort(key=lambda text: "none" in text.split())
        text = some_of(found, MOST_CHANGES) or "the same versions"
        unfulfilled = some_of(self.packages.unfulfilled if self.packages is not None else ())
        return f"{text} (there {unfulfilled})" if unfulfilled else text

    @property
    def remedy(self) -> str:
        """What to do if a package is missing there."""
        if self.packages is not None:
            return "name a version that has it, or install it here"
        setup = "have --against-setup=COMMAND make an environment there that has it"
        install = f"install it with {shlex.quote(self.python)} -m pip"
        return setup if self.revision is not None else install


#: The environment of this process.
THIS_PLACE = Place()


def find(given: str, root: Path) -> Place:
    """Examine the interpreter that ``--against`` names. Raises UsageError if it cannot be used."""
    folders = list(dict.fromkeys([str(root), str(suite_folder())]))
    return _examined(given, Place(python_of(given), folders), root)


def python_of(given: str) -> str:
    """Return the path of the interpreter that ``--against`` names. Raises UsageError."""
    return _executable(f"--against={given}", given, ", or a revision, such as git:main")


def find_revision(
    given: str,
    root: Path,
    setup: Optional[str] = None,
    python: Optional[str] = None,
    at_end: Optional[AtEnd] = None,
) -> Place:
    """Check out the revision that ``--against=git:REV`` names, and examine it.

    ``setup`` makes an environment there, ``python`` is its interpreter, a path in the project's
    folder there or elsewhere; without both our interpreter runs it. ``at_end`` registers what
    removes the worktree. UsageError if it is of no use.
    """
    there = revision.check_out(given, root, setup, at_end)
    interpreter = sys.executable
    if setup is not None or python is not None:
        path = there.root / user_path(python or revision.MADE_PYTHON)
        if python is None and not path.exists():
            raise pytest.UsageError(
                f"--against-setup: the command has not made {path}; name the interpreter that it "
                "makes with --against-python=PATH, a path in that folder or elsewhere"
            )
        interpreter = _executable(f"--against-python={path}", str(path))
    folders = [str(there.root)]
    if there.here is not None:
        folders.append(str(suite_folder()))
    unchecked = Place(os.path.abspath(interpreter), folders, revision=there)
    place = _examined(given, unchecked, there.root)
    if setup is not None and there.here is not None:
        refuse_another_copy(given, place, there.root, there.here)
    return place


def refuse_another_copy(given: str, place: Place, root: Path, here: Path) -> None:
    """Refuse an environment whose copy of the project is not of the revision that made it.

    A package that is installed after the project may replace it by a release.
    """
    there, tree = distributions(list(place.sites)), Path(guarded_pytest.worktree_of(str(root)))
    for name, one in distributions(site_folders()).items():
        if name not in there or not _is_in(here, source(one)):
            continue
        found, made_from = there[name], source(there[name])
        other = not made_from or (_is_in(here, made_from) and not _is_in(tree, made_from))
        modules = [module.replace(".", os.sep) for module in versions.modules_of(found)]
        in_tree = all((root / n).is_dir() or (root / f"{n}.py").is_file() for n in modules)
        if other and not in_tree:
            raise pytest.UsageError(
                f"--against={given}: there, --against-setup has installed {name} {found.version} "
                f"from {made_from or 'an index'}, which is not the code of that revision; install "
                "the project and all else in one command, as in pip install -e . pytest"
            )


def _is_in(folder: Path, path: str) -> bool:
    return bool(path) and folder in (Path(path).resolve(), *Path(path).resolve().parents)


def find_packages(given: str, root: Path) -> Place:
    """Make the environment that ``--against=pip:...`` names, and examine it. Raises UsageError."""
    made = versions.find_versions(given)
    return _examined(given, Place(made.python, packages=made), root)


def suite_folder() -> Path:
    """Return a folder from which an interpreter can import only this suite.

    The other packages next to an installed suite belong to this interpreter alone. Raises
    UsageError if no such folder can be made.
    """
    if IMPORT_ROOT.name not in guarded_pytest.INSTALLED:
        return IMPORT_ROOT
    try:
        digest = hashlib.sha256(str(IMPORT_ROOT).encode()).hexdigest()[:12]
        folder = code_folder(f"suite-{digest}")
        link = folder / "ipubench"
        with contextlib.suppress(FileExistsError):
            link.symlink_to(IMPORT_ROOT / "ipubench")
    except (CaseError, OSError) as error:
        raise pytest.UsageError(f"--against: it cannot import the suite: {error}") from None
    return folder


def _executable(option: str, given: str, instead: str = "") -> str:
    python = shutil.which(os.path.expanduser(given))
    if python is None:
        raise pytest.UsageError(
            f"{option}: it is not there or cannot be executed; name the Python interpreter of the "
            f"other environment, such as /opt/old/bin/python{instead}"
        )
    # Not resolved: the path of its link leads Python to the virtual environment.
    return os.path.abspath(python)


def _examined(given: str, unchecked: Place, root: Path) -> Place:
    """Return a place with its versions and options; ``root`` is the project's folder there."""
    python, folders, there = unchecked.python, unchecked.folders or (), unchecked.revision
    try:
        answer = subprocess.run(
            [python, "-c", PROGRAM, *folders],
            cwd=str(root),
            env=unchecked.variables(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=CHECK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise pytest.UsageError(f"--against={given}: it does not run: {error}") from None
    text = answer.stdout.decode(errors="replace").strip()
    lines = text.splitlines() or ["it prints nothing"]
    try:
        found: Dict[str, Any] = json.loads(lines[-1])
        place = replace(
            unchecked,
            versions=dict(found["versions"]),
            installed=dict(found["installed"]),
            options=tuple(found["options"]),
            alternating=int(found["alternating"]),
            counts=bool(found["counts"]),
            prefix=str(found["prefix"]),
            sites=tuple(one for one in found["path"] if Path(one).name in FOLDERS),
        )
        modules: Dict[str, str] = found["modules"]
    except (ValueError, TypeError, KeyError):
        needed = f"{python} -m pip install {_needed(root)}"
        remedy = f"install what the suite and your tests need there: {needed}"
        if unchecked.packages is not None:
            remedy = "name other versions"
        raise pytest.UsageError(
            f"--against={given}: it cannot run the suite: {lines[-1]}; {remedy}"
        ) from None
    is_suite = there is not None and there.here is None
    outside = guarded_pytest.outside_modules(str(there.root), modules) if there and is_suite else []
    if outside:
        raise pytest.UsageError(
            f"--against={given}: refused, because {outside[0]}; {python} imports the suite from "
            "another folder before this one's: uninstall it there, or make an environment with "
            "--against-setup=COMMAND"
        )
    return place


def _needed(root: Path) -> str:
    """Return pip's arguments for what the suite needs; ``root`` is the project's folder there."""
    if revision.has_suite(root):
        return shlex.quote(str(root))
    try:
        required = importlib.metadata.requires("ipubench") or []
    except importlib.metadata.PackageNotFoundError:  # a checkout
        return shlex.quote(str(IMPORT_ROOT))
    usual = [re.split(r"[^\w.-]", one)[0] for one in required if "extra ==" not in one]
    return " ".join(one for one in usual if one != EDITABLE)
