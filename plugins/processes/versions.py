"""Makes an environment with other versions of some packages, for `--against=pip:PACKAGE==VERSION`.

It is a virtual environment with these packages, and with those that they need in other versions
than are installed here. All other packages are the files of this environment, whose folders follow
on its path: also those installed in place, or from no index. It is kept in the cache for later
runs, until it has been unused for a while.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Iterator, List, Mapping, NamedTuple, Sequence, Tuple

import pytest
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.data.cache import code_folder
from ipubench.fixtures.machine.locks import locked
from ipubench.fixtures.machine.packages import (
    Distribution,
    distributions,
    installed,
    metadata,
    normalized,
    site_folders,
)
from ipubench.plugins.processes import kept

PREFIX = "pip:"
EXAMPLE = "--against=pip:numpy==1.26.4,pandas==2.2.3"
REQUEST = re.compile(r"([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)==([A-Za-z0-9][\w.+!-]*)", re.ASCII)
#: Modules that a wheel may have by mistake, and a project of its own.
COMMON = {"benchmarks", "conftest", "docs", "examples", "scripts", "setup", "test", "tests"}
#: Marks a distribution that an installer only believes to be in the environment.
STANDS_FOR = "ipubench"
#: Variables with which an installer would see, or change, another environment.
MISLEADING = (
    "PYTHONPATH",
    "PYTHONHOME",
    "PIP_USER",
    "PIP_TARGET",
    "PIP_PREFIX",
    "UV_SYSTEM_PYTHON",
)


class Versions(NamedTuple):
    """An environment with other versions."""

    python: str
    #: The folder of its own packages.
    site: Path
    #: The modules of the packages that the user named, which must come from there.
    modules: Tuple[str, ...]
    #: What packages of this environment require that it does not fulfil.
    unfulfilled: Tuple[str, ...]


def requested(given: str) -> List[Tuple[str, str]]:
    """Return the packages and versions that ``--against=pip:...`` names. Raises UsageError."""
    found = []
    for one in given[len(PREFIX) :].split(","):
        match = REQUEST.fullmatch(one.strip())
        try:
            if match is None:
                raise InvalidSpecifier("it is not PACKAGE==VERSION")
            SpecifierSet(f"=={match.group(2)}")
        except InvalidSpecifier as error:
            raise pytest.UsageError(
                f"--against={given}: {one!r}: {error}; give exact versions, as in {EXAMPLE}"
            ) from None
        found.append((match.group(1), match.group(2)))
    return found


def are_installed(given: str) -> bool:
    """Return whether all versions that ``--against=pip:...`` names are installed here."""
    here = distributions(site_folders())
    return all(_has(here, name, version) for name, version in requested(given))


def _has(found: Mapping[str, Distribution], name: str, version: str) -> bool:
    one = found.get(normalized(name))
    return one is not None and SpecifierSet(f"=={version}").contains(one.version, prereleases=True)


def find_versions(given: str) -> Versions:
    """Return the environment for ``--against=GIVEN``, made if there is none.

    Raises UsageError if a package cannot be installed.
    """
    option, wanted = f"--against={given}", requested(given)
    here = site_folders()
    made_from = [sys.executable, sys.version, sysconfig.get_platform(), here, installed(), wanted]
    digest = hashlib.sha256(json.dumps(made_from).encode()).hexdigest()[:16]
    try:
        folder = code_folder("versions") / digest
        kept.remove_others(folder, lambda old: kept.remove(old) if kept.is_old(old) else None)
        with locked(kept.lock_of(folder)):
            if not (kept.stamp(folder).exists() and _python(folder).exists()):
                kept.remove(folder)
                try:
                    _make(option, folder, here, wanted)
                except BaseException:
                    kept.remove(folder)
                    raise
            kept.stamp(folder).touch()
        site = _site(folder)
    except CaseError as error:
        raise pytest.UsageError(f"{option}: {error}") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise pytest.UsageError(
            f"{option}: no environment can be made below the cache directory: {error}; "
            "IPUBENCH_CACHE_DIR names another one"
        ) from None
    there = distributions([str(site)])
    effective = distributions([str(site), *here])
    for name, version in wanted:
        if not _has(effective, name, version):
            kept.remove(folder)
            raise pytest.UsageError(
                f"{option}: pip ended without an error, and {name} {version} is not in {site}; see "
                "what redirects it: pip config list, or a variable such as PIP_ROOT"
            )
    named = [there[name] for name in {normalized(name) for name, _ in wanted} if name in there]
    modules = sorted({name for one in named for name in modules_of(one)})
    return Versions(
        str(_python(folder)), site, tuple(modules), tuple(_unfulfilled(there, effective))
    )


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _site(folder: Path) -> Path:
    return next(folder.glob("lib/python*/site-packages"))


def _make(option: str, folder: Path, here: List[str], wanted: List[Tuple[str, str]]) -> None:
    """Make the environment. Raises UsageError with the last lines of pip if it cannot install."""
    venv.create(str(folder), symlinks=True)
    site = _site(folder)
    lines = [f"import site; site.addsitedir({path!r})\n" for path in map(os.path.abspath, here)]
    (site / "ipubench-packages-here.pth").write_text("".join(lines), encoding="utf-8")
    # An installer changes only what is in the environment itself. For it, so is all that is here.
    for one in distributions(here).values():
        _stand_in(site, one)
    words = [f"{name}=={version}" for name, version in wanted]
    for command in _installers(_python(folder)):
        ended = _run([*command, *words])
        if not ended.returncode:
            break
    else:
        problem = ended.stdout.decode(errors="replace").strip().splitlines()
        last = "\n".join(problem[-kept.LAST_LINES :])
        raise pytest.UsageError(f"{option}: it cannot be installed; the last lines of pip:\n{last}")
    for installer in site.glob("*.dist-info/INSTALLER"):
        if installer.read_text(encoding="utf-8") == STANDS_FOR:
            shutil.rmtree(str(installer.parent))


def _stand_in(site: Path, one: Distribution) -> None:
    """Make the metadata of a distribution, without its files."""
    folder = site / f"{one.name.replace('-', '_')}-{one.version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"{metadata(one.found)}\n", encoding="utf-8")
    (folder / "INSTALLER").write_text(STANDS_FOR, encoding="utf-8")
    names = ("METADATA", "INSTALLER", "RECORD")
    (folder / "RECORD").write_text("".join(f"{folder.name}/{name},,\n" for name in names))


def _installers(python: Path) -> Iterator[List[str]]:
    """Yield the commands that install into an environment: uv's, and pip's.

    pip also runs if uv fails: uv has settings of its own, and may not find the index.
    """
    uv = shutil.which("uv")
    start = [uv] if uv is not None else [sys.executable, "-m", "uv"]
    if uv is not None or importlib.util.find_spec("uv") is not None:
        yield [*start, "pip", "install", "--python", str(python)]
    if importlib.util.find_spec("pip") is None:
        _run([str(python), "-m", "ensurepip"])
    quiet = ("--no-input", "--disable-pip-version-check", "--no-warn-script-location")
    yield [str(python), "-m", "pip", "install", *quiet]


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command,
        env={name: value for name, value in os.environ.items() if name not in MISLEADING},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=kept.SETUP_SECONDS,
        check=False,
    )


def modules_of(one: Distribution) -> List[str]:
    """Return the names of a distribution's modules and packages, without those in its packages."""
    files = [file.parts for file in one.found.files or () if file.suffix in (".py", ".so")]
    packages = {parts[:-1] for parts in files if parts[-1] == "__init__.py"}
    alone = {(*parts[:-1], parts[-1].split(".")[0]) for parts in files} - {
        (*package, "__init__") for package in packages
    }
    return [
        ".".join(parts)
        for parts in packages | alone
        if parts[0] not in COMMON
        and all(part.isidentifier() for part in parts)
        and not any(parts[:count] in packages for count in range(1, len(parts)))
    ]


def _unfulfilled(
    changed: Mapping[str, Distribution], effective: Mapping[str, Distribution]
) -> Iterator[str]:
    """Yield what the packages require of the changed ones in another version than is there."""
    for one in effective.values():
        for text in one.found.requires or ():
            try:
                needed = Requirement(text)
            except InvalidRequirement:
                continue
            there = changed.get(normalized(needed.name))
            wanted = needed.marker is None or needed.marker.evaluate({"extra": ""})
            if there and wanted and not needed.specifier.contains(there.version, prereleases=True):
                yield f"{one.name} {one.version} requires {needed.name}{needed.specifier}"
