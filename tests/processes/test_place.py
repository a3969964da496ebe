"""The other environment of `--against`, as found before any measurement."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ipubench.fixtures.machine.packages import installed
from ipubench.plugins.processes.place import Place, find, refuse_another_copy
from ipubench.plugins.processes.revision import Revision
from ipubench.plugins.record.host_process import versions
from tests.support.harness import ROOT
from tests.support.wheels import install, wheel


def test_a_virtual_environment_is_called_by_its_link(tmp_path: Path) -> None:
    old = tmp_path / "old"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(old)], check=True)
    (site,) = old.glob("lib/python*/site-packages")
    # Instead of an installation: the packages of this environment.
    folders = [path for path in sys.path if path.endswith("site-packages")]
    (site / "installed.pth").write_text("\n".join(folders))
    python = str(old / "bin" / "python")
    found = find(python, ROOT)
    assert found.python == python
    assert found.changes({**installed(), **versions()}) == "the same versions"


def test_a_revision_has_its_own_packages_before_ours_and_none_of_our_repositories() -> None:
    there = Revision("commit", Path("/tree"))
    ours = {"PYTHONPATH": "/sdk", "VIRTUAL_ENV": "/env", "GIT_DIR": "/own/.git", "HOME": "/h"}
    alike = Place(os.path.abspath(sys.executable), ["/tree"], revision=there)
    assert alike.variables(ours) == {
        "PYTHONPATH": "/tree:/sdk",
        "VIRTUAL_ENV": "/env",
        "HOME": "/h",
    }
    assert alike.variables({"HOME": "/h"}) == {"PYTHONPATH": "/tree", "HOME": "/h"}
    other = Place("/made/python", ["/tree"], revision=there)
    assert other.variables(ours) == {"PYTHONPATH": "/tree", "HOME": "/h"}


def test_all_distributions_that_differ_are_named_at_most_ten() -> None:
    there = {f"package-{number}": "1.0" for number in range(12)}
    place = Place("", versions={"python": "3.8.18"}, installed={**there, "six": "1.16.0"})
    now = {"python": "3.8.18", **there, "six": "1.17.0"}
    assert place.changes(now) == "six 1.16.0 -> 1.17.0"
    assert place.changes({"python": "3.8.18"}).endswith("package-9 1.0 -> none and 3 more")


def test_installed_distributions_have_their_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (tmp_path / name / "site-packages" for name in "ab")
    for folder, version in ((first, "1.5"), (second, "1.4"), (tmp_path, "9")):
        made = folder / f"My_Package-{version}.dist-info"
        made.mkdir(parents=True)
        text = f"Metadata-Version: 2.1\nName: My_Package\nVersion: {version}\n\nVersion: 0\n"
        (made / "METADATA").write_text(text)
    paths = list(map(str, (tmp_path, first, second)))
    monkeypatch.setattr(sys, "path", paths)
    assert installed() == {"my-package": "1.5"}


def test_an_interpreter_without_the_packages_has_their_names_not_the_project(
    tmp_path: Path,
) -> None:
    """The project is the user's: it may not even be a package."""
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    python = bare / "bin" / "python"
    with pytest.raises(pytest.UsageError, match="No module named 'pytest'") as told:
        find(str(python), tmp_path)
    advice = str(told.value).partition(f"{python} -m pip install ")[2]
    needed = {"pytest", "pytest-benchmark", "msgspec"}
    assert advice == str(ROOT) or needed <= set(advice.split())
    assert "editables" not in advice


@pytest.mark.parametrize(
    ("answer", "said"),
    [("exit 1", "it prints nothing"), ("echo '[]'", r"\[\]"), ("echo '{}'", r"\{\}")],
)
def test_an_unsuitable_interpreter_is_refused(answer: str, said: str, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o755)
    with pytest.raises(pytest.UsageError, match=said):
        find(str(program), ROOT)


@pytest.mark.parametrize(
    ("installed_from", "module", "is_refused"),
    [
        ("", "", True),  # an index
        ("here", "", True),
        ("here/cache/tree", "", False),
        ("here/cache/tree/dist/own-1.0-py3-none-any.whl", "", False),
        ("elsewhere/own-1.0-py3-none-any.whl", "", False),
        ("", "own.py", False),  # the tests import it from the tree
    ],
)
def test_a_release_that_replaced_the_project_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    installed_from: str,
    module: str,
    is_refused: bool,
) -> None:
    here, tree = tmp_path / "here", tmp_path / "here" / "cache" / "tree"
    sites = [tmp_path / name / "site-packages" for name in ("ours", "theirs")]
    for site, origin in zip(sites, ("here", installed_from)):
        install(wheel(tmp_path, "own", "1.0", ""), site)
        if origin:
            made_from = {"url": (tmp_path / origin).as_uri(), "dir_info": {}}
            (site / "own-1.0.dist-info" / "direct_url.json").write_text(json.dumps(made_from))
    tree.mkdir(parents=True)
    (tree / (module or ".git")).touch()
    monkeypatch.setattr(sys, "path", [*sys.path, str(sites[0])])
    place = Place("/made/python", sites=(str(sites[1]),))
    with pytest.raises(pytest.UsageError) if is_refused else contextlib.nullcontext():
        refuse_another_copy("git:v1", place, tree, here)
