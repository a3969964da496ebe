"""The places of a case: this interpreter, another one, or another revision in a worktree.

``HERE`` is this interpreter and this checkout; ``find`` and ``find_revision`` look at what
``--against`` names.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.data.cache import code_folder
from ipubench.fixtures.instances.protocol import ALTERNATING
from ipubench.fixtures.machine.files import IMPORT_ROOT, user_path
from ipubench.plugins.command_line.words import LONG, MEASURING_OPTIONS
from ipubench.plugins.elsewhere import only_from, revision
from ipubench.plugins.elsewhere.revision import AtEnd, Revision
from ipubench.plugins.record.host_process import GIT_VARIABLES, version_changes

CHECK_SECONDS = 300.0
# Everything that a case needs but its framework, and what it would be measured with. Of an older
# revision: what it does not know.
PROGRAM = """\
import json, sys
sys.path[:0] = sys.argv[1:]
import pytest, pytest_benchmark
import ipubench.plugins.measure.meter
from ipubench.plugins.record.host_process import versions
from ipubench.plugins.command_line import words
from ipubench.fixtures.instances import protocol
files = {n: m.__file__ for n, m in sys.modules.items() if n.split(".")[0] == "ipubench"}
print(json.dumps({
    "versions": versions(),
    "options": words.MEASURING_OPTIONS,
    "prefix": getattr(words, "LONG", "--"),
    "alternating": getattr(protocol, "ALTERNATING", 0),
    "modules": {name: file for name, file in files.items() if file},
}))
"""
# Of this environment, and wrong in another.
OURS = ("PYTHONPATH", "PYTHONHOME", "PYTHONEXECUTABLE", "VIRTUAL_ENV", "CONDA_PREFIX")


@dataclass(frozen=True)
class Place:
    """An interpreter, and the checkout whose code it runs. By default those of this process."""

    python: str = sys.executable
    #: The folders of this project's modules; None: those of this process.
    folders: Optional[List[str]] = None
    versions: Dict[str, str] = field(default_factory=dict)
    #: The revision that runs there; None: this checkout.
    revision: Optional[Revision] = None
    #: The measuring options that it knows, and the version of its protocol of alternating rounds.
    options: Tuple[str, ...] = MEASURING_OPTIONS
    alternating: int = ALTERNATING
    #: How our options begin there.
    prefix: str = LONG

    def variables(self, ours: Mapping[str, str]) -> Dict[str, str]:
        """Return the environment variables for its processes, given those of ours."""
        if self.folders is None:
            return dict(ours)
        wrong = OURS if self.revision is None else (*OURS, *GIT_VARIABLES)
        kept = {name: value for name, value in ours.items() if name not in wrong}
        folders = list(self.folders)
        if self.own_python:
            # An SDK may be there; the worktree comes before it.
            kept.update({name: ours[name] for name in OURS[1:] if name in ours})
            folders += filter(None, [ours.get("PYTHONPATH")])
        return {**kept, "PYTHONPATH": os.pathsep.join(folders)}

    @property
    def own_python(self) -> bool:
        """Whether it is a revision that our interpreter runs."""
        return self.revision is not None and self.python == os.path.abspath(sys.executable)

    def pytest_words(self) -> List[str]:
        """Return the words that start pytest there."""
        if self.revision is None:
            return [self.python, "-m", "pytest"]
        program = str(Path(only_from.__file__).resolve())
        here = self.revision.here
        instead = [f"{only_from.INSTEAD_OF}{here}"] if here is not None else []
        return [self.python, program, str(self.revision.root), *instead]

    def root(self, config: pytest.Config) -> Path:
        """Return the project's folder there."""
        return config.rootpath if self.revision is None else self.revision.root

    def ini(self, config: pytest.Config) -> Optional[Path]:
        """Return the file of the project's settings there; None: pytest finds it, or there is none.

        A revision may have them in another file.
        """
        ini = self._there(config.inipath, config) if config.inipath is not None else None
        return ini if self.revision is None or (ini is not None and ini.is_file()) else None

    def folder(self, config: pytest.Config) -> Path:
        """Return the folder to run in: the same of the project as on this side.

        Python looks there first for the modules of programs that the process starts, and tests open
        files there. The project's folder stands for one that another revision does not have.
        """
        here = Path(config.invocation_params.dir)
        if self.revision is None:
            return here
        there = self._there(here, config)
        return there if there != here and there.is_dir() else self.revision.root

    def _there(self, path: Path, config: pytest.Config) -> Path:
        """Return the path there of a file of this checkout."""
        root = config.rootpath
        if root not in (path, *path.parents):
            return path
        return self.root(config) / path.relative_to(root)

    def changes(self, now: Mapping[str, str]) -> str:
        """Return in words which versions differ between there and here."""
        found = version_changes(self.versions, now)
        return ", ".join(found) or "the same versions"


#: This process's own.
HERE = Place()


def find(given: str, root: Path) -> Place:
    """Look at the interpreter that ``--against`` names; UsageError if it is of no use."""
    folders = list(dict.fromkeys([str(root), str(suite_folder())]))
    return _look(given, Place(python_of(given), folders), root)


def python_of(given: str) -> str:
    """Return the path of the interpreter that ``--against`` names; UsageError without one."""
    return _executable(f"--against={given}", given, ", or a revision, such as git:main")


def find_revision(
    given: str,
    root: Path,
    setup: Optional[str] = None,
    python: Optional[str] = None,
    at_end: Optional[AtEnd] = None,
) -> Place:
    """Check out the revision that ``--against=git:REV`` names, and look at it.

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
                f"--against-setup: there is no {path} after it; name the interpreter that it makes "
                "with --against-python=PATH, a path in that folder or elsewhere"
            )
        interpreter = _executable(f"--against-python={path}", str(path))
    folders = [str(there.root)]
    if there.here is not None:
        folders.append(str(suite_folder()))
    unchecked = Place(os.path.abspath(interpreter), folders, revision=there)
    return _look(given, unchecked, there.root)


def suite_folder() -> Path:
    """Return a folder with this suite and nothing else that an interpreter could import.

    What is installed beside the suite belongs to this interpreter alone. UsageError if no such
    folder can be made.
    """
    if IMPORT_ROOT.name not in only_from.INSTALLED:
        return IMPORT_ROOT
    try:
        digest = hashlib.sha256(str(IMPORT_ROOT).encode()).hexdigest()[:12]
        folder = code_folder(f"suite-{digest}")
        link = folder / "ipubench"
        with contextlib.suppress(FileExistsError):
            link.symlink_to(IMPORT_ROOT / "ipubench")
    except (CaseError, OSError) as error:
        raise pytest.UsageError(f"--against: the suite cannot be shown to it: {error}") from None
    return folder


def _executable(option: str, given: str, instead: str = "") -> str:
    python = shutil.which(os.path.expanduser(given))
    if python is None:
        raise pytest.UsageError(
            f"{option}: it is not there or cannot be executed; name the Python interpreter of the "
            f"other environment, such as /opt/old/bin/python{instead}"
        )
    # Not resolved: a virtual environment is found by the path of its link.
    return os.path.abspath(python)


def _look(given: str, unchecked: Place, root: Path) -> Place:
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
    lines = text.splitlines() or ["it says nothing"]
    try:
        found: Dict[str, Any] = json.loads(lines[-1])
        looked = replace(
            unchecked,
            versions=dict(found["versions"]),
            options=tuple(found["options"]),
            alternating=int(found["alternating"]),
            prefix=str(found["prefix"]),
        )
        modules: Dict[str, str] = found["modules"]
    except (ValueError, TypeError, KeyError):
        raise pytest.UsageError(
            f"--against={given}: it cannot run the suite: {lines[-1]}; install what the suite "
            f"needs there: {python} -m pip install {root}"
        ) from None
    suite = there is not None and there.here is None
    strangers = only_from.strangers(str(there.root), modules) if there and suite else []
    if strangers:
        raise pytest.UsageError(
            f"--against={given}: refused, because {strangers[0]}; {python} imports the suite of "
            "another folder before this one's: uninstall it there, or make an environment with "
            "--against-setup=COMMAND"
        )
    return looked
