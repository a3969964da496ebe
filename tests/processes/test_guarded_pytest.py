"""The modules that a process with one folder's code must not import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, List

import pytest

from ipubench.plugins.processes import guarded_pytest
from ipubench.plugins.processes.guarded_pytest import (
    USAGE_ERROR,
    Guard,
    Redirect,
    checkout_modules,
    main,
    modules_of,
    outside_modules,
)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout: this process has one of its modules and three of an environment."""
    for name, file in (
        ("own_module", "own_module.py"),
        ("own_library", "env/lib/python3/own_library.py"),
        ("own_start", "env/own_start.py"),
        ("own_package", "env/lib/python3/site-packages/own_package.py"),
    ):
        module = ModuleType(name)
        module.__file__ = str(tmp_path / file)
        monkeypatch.setitem(sys.modules, name, module)
    return tmp_path


@pytest.mark.parametrize("prefix", ["prefix", "base_prefix"])
def test_an_interpreter_in_the_checkout_is_not_its_code(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    assert set(checkout_modules(str(checkout))) == {"own_module", "own_library", "own_start"}
    monkeypatch.setattr(sys, prefix, str(checkout / "env"))
    assert set(checkout_modules(str(checkout))) == {"own_module"}


@pytest.mark.parametrize("when", ["pytest_collection_finish", "pytest_sessionfinish"])
def test_code_of_another_checkout_is_refused_at_the_start_and_at_the_end(
    checkout: Path, when: str
) -> None:
    guard = Guard(str(checkout / "there"), str(checkout))
    with pytest.raises(pytest.exit.Exception, match="refused: .* own_library comes ") as told:
        getattr(guard, when)()
    assert told.value.returncode == USAGE_ERROR


def test_a_module_within_a_package_may_be_another_under_its_name(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``six.moves.http_client`` is that of the standard library."""
    monkeypatch.setitem(sys.modules, "own_package.moves", sys.modules["own_start"])
    names = ["own_package", "not_imported"]
    assert modules_of(names) == {"own_package": str(sys.modules["own_package"].__file__)}


def test_modules_of_a_worktree_within_the_checkout_are_its_own(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So are all projects of the worktree; the suite may be in the checkout."""
    tree = checkout / "cache" / "tree"
    (tree / "project").mkdir(parents=True)
    (tree / ".git").touch()
    for name in ("own_module", "own_library", "own_start"):
        monkeypatch.delitem(sys.modules, name)
    module = ModuleType("own_neighbour")
    monkeypatch.setitem(sys.modules, "own_neighbour", module)
    monkeypatch.setattr(sys.modules["ipubench.plugins"], "__file__", str(checkout / "suite.py"))
    guard = Guard(str(tree / "project"), str(checkout))
    module.__file__ = str(tree / "neighbour" / "own_neighbour.py")
    guard.pytest_collection_finish()
    module.__file__ = str(checkout / "neighbour" / "own_neighbour.py")
    with pytest.raises(pytest.exit.Exception):
        guard.pytest_collection_finish()


def test_a_module_belongs_to_the_folder_of_its_real_file(tmp_path: Path) -> None:
    for name in ("real", "real-other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own.py").touch()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "from_elsewhere.py").symlink_to("../real-other/own.py")
    files = ("real/own.py", "link/own.py", "real-other/own.py", "real/from_elsewhere.py")
    modules = {name: str(tmp_path / name) for name in files}
    for folder in ("real", "link"):
        found = outside_modules(str(tmp_path / folder), modules)
        assert [text.split()[0] for text in found] == list(files[2:])


@pytest.mark.parametrize("words", [[], ["-q"], ["--instead-of=/here", "-q"]])
def test_the_folder_precedes_the_program_folder(
    words: List[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: Dict[str, Any] = {}

    def run(words: List[str], plugins: List[Guard]) -> int:
        given.update(words=words, path=sys.path[:2])
        return 5

    monkeypatch.setattr(pytest, "main", run)
    monkeypatch.setattr(sys, "path", ["/program", "/installed"])
    assert main("/there", words) == 5
    assert given == {"words": words, "path": ["/there", "/installed"]}
    assert "--instead-of=/here" not in words


def test_a_module_that_pytest_imports_may_be_the_projects(tmp_path: Path) -> None:
    """As pluggy in its own repository."""
    for side in ("here", "tree"):
        (tmp_path / side / "src" / "iniconfig").mkdir(parents=True)
        text = f"raise SystemExit({side!r})\n"
        (tmp_path / side / "src" / "iniconfig" / "__init__.py").write_text(text)
    (tmp_path / "tree" / ".git").touch()
    command = [guarded_pytest.__file__, str(tmp_path / "tree")]
    command.append(f"--instead-of={tmp_path / 'here'}")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "here" / "src")}
    ended = subprocess.run([sys.executable, *command], stderr=subprocess.PIPE, env=environment)
    assert ended.stderr.split() == [b"tree"]


def test_paths_into_the_checkout_are_those_of_the_worktree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of PYTHONPATH and of both kinds of ``pip install -e``, for this process and its own."""
    here, tree = tmp_path / "here", tmp_path / "tree"
    (tree / "project").mkdir(parents=True)
    (tree / ".git").touch()
    (here / "vendor" / "ipubench").mkdir(parents=True)
    (tmp_path / "link").symlink_to(here)
    monkeypatch.setattr(sys, "prefix", str(here / "env"))
    kept = [str(one) for one in (here / "env" / "lib", here / "vendor", tmp_path / "other")]
    kept.append(str(here / "x" / "site-packages"))
    monkeypatch.setattr(sys, "path", [*kept, str(tmp_path / "link" / "src")])
    finder: Any = ModuleType("__editable___own_finder")
    finder.MAPPING = {"own": str(here / "lib" / "own"), "other": "/other"}
    finder.NAMESPACES = {"space": [str(here / "space")]}
    monkeypatch.setitem(sys.modules, finder.__name__, finder)
    monkeypatch.setenv("PYTHONPATH", f"/first:{here}")
    Redirect(str(here), str(tree / "project")).imports()
    assert sys.path == [*kept, str(tree / "src")]
    assert {"own": str(tree / "lib" / "own"), "other": "/other"} == finder.MAPPING
    assert {"space": [str(tree / "space")]} == finder.NAMESPACES
    now = os.environ["PYTHONPATH"].split(os.pathsep)
    assert now == [str(tree / "src"), str(tree / "lib"), "/first", str(tree)]
