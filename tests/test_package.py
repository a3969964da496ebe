"""The installed package and the checkout: one importable name, and nothing in others' way."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import List

import pytest

from tests.support.harness import ROOT

TOP_LEVEL = ("plugins", "fixtures", "models", "bench_kernels", "bench_training", "bench_inference")
# What a wheel must hold beside Python: read at run time, by the module beside it.
DATA_FILES = {
    "ipubench/py.typed",
    "ipubench/bench_inference/configs.yml",
    "ipubench/bench_inference/tensorflow.yml",
    "ipubench/bench_inference/triton.yml",
    "ipubench/bench_training/application.yml",
    "ipubench/bench_training/configs.yml",
    "ipubench/plugins/baseline/schema.json",
    "ipubench/plugins/report/web/page.html",
}
COLLECT = """\
import collections, os, sys
import pytest
code = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider"])
names = collections.defaultdict(list)
for name, module in list(sys.modules.items()):
    path = getattr(module, "__file__", None)
    if path and os.path.realpath(path).startswith(os.getcwd() + os.sep):
        names[os.path.realpath(path)].append(name)
assert code == 0 and names, code
for path, several in names.items():
    if len(several) > 1:
        print("TWICE", os.path.relpath(path), *sorted(several))
"""


def copy_of_the_project(folder: Path) -> Path:
    """Return a copy of what a checkout holds, links as links."""
    names = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT).decode().split("\0")
    for name in filter(None, names):
        source, target = ROOT / name, folder / name
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    return folder


def collecting(folder: Path, program: str) -> List[str]:
    """Return the lines that a program prints in a folder that is all it can import from."""
    answer = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
    )
    text = answer.stdout.decode(errors="replace")
    assert answer.returncode == 0, text
    return text.splitlines()


def test_no_module_is_loaded_under_two_names(tmp_path: Path) -> None:
    lines = collecting(copy_of_the_project(tmp_path), COLLECT)
    assert len([line for line in lines if "::bench_" in line]) > 100
    # pytest imports a bench file by the folder that it lies in, and that folder's empty package.
    allowed = {f"TWICE {name}/__init__.py {name} ipubench.{name}" for name in TOP_LEVEL}
    assert {line for line in lines if line.startswith("TWICE")} <= allowed


def test_the_links_lead_to_the_folders_of_the_top_level() -> None:
    for name in TOP_LEVEL:
        link = ROOT / "ipubench" / name
        assert link.is_symlink() and link.resolve() == ROOT / name


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    setuptools = pytest.importorskip("setuptools")
    if int(setuptools.__version__.split(".")[0]) < 70:
        pytest.skip("building a wheel without its own environment needs setuptools 70 or newer")
    folder = tmp_path_factory.mktemp("wheel")
    source = copy_of_the_project(folder / "source")
    words = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", *words, str(source)], check=True, timeout=120)
    (found,) = folder.glob("ipubench-*.whl")
    return found


def test_the_wheel_holds_one_package_and_its_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"ipubench"}
    assert set(names) >= DATA_FILES
    modules = {name for name in names if name.endswith(".py")}
    ours = {
        f"ipubench/{path.relative_to(ROOT)}"
        for name in TOP_LEVEL
        for path in (ROOT / name).rglob("*.py")
    }
    assert modules == ours | {"ipubench/__init__.py"}


def test_an_installed_package_changes_nothing_in_a_project_of_its_own(
    wheel: Path, tmp_path: Path
) -> None:
    site, project = tmp_path / "site", tmp_path / "project"
    zipfile.ZipFile(wheel).extractall(site)
    (project / "plugins").mkdir(parents=True)
    (project / "plugins" / "__init__.py").write_text("NAME = 'theirs'\n")
    (project / "test_theirs.py").write_text(
        "import sys\nimport plugins\n\n\ndef test_theirs():\n"
        "    assert plugins.NAME == 'theirs'\n"
        "    assert not [name for name in sys.modules if name.startswith('ipubench')]\n"
    )
    program = (
        f"import sys; sys.path.insert(1, {str(site)!r}); import pytest; "
        "sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider']))"
    )
    assert "1 passed" in collecting(project, program)[-1]


def test_the_public_names_are_there_and_cost_nothing_until_asked_for() -> None:
    import ipubench
    from ipubench.fixtures.case import cases, options
    from ipubench.fixtures.runtimes import step

    found = [getattr(ipubench, name) for name in ipubench.__all__]
    assert found == [
        cases.NAMED,
        options.CaseConfig,
        step.Step,
        cases.Sweep,
        cases.cases,
        options.option,
    ]
    with pytest.raises(AttributeError, match="no attribute 'case'"):
        ipubench.case  # noqa: B018
    lines = collecting(ROOT, "import sys, ipubench; print('pytest' in sys.modules)")
    assert lines == ["False"]


CONSTRAINTS = sorted(ROOT.glob("constraints*.txt"))


@pytest.mark.parametrize("path", CONSTRAINTS, ids=lambda path: str(path.name))
def test_every_pinned_package_has_hashes(path: Path) -> None:
    first, *lines = path.read_text(encoding="utf-8").splitlines()
    assert first.startswith("# For Python 3.")
    entries = re.split(r"\n(?=\S)", "\n".join(lines))
    for entry in entries:
        assert re.match(r"[A-Za-z0-9_.-]+==[^\s;]+", entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}(\s|$)", entry), entry


def test_what_pyproject_names_is_pinned() -> None:
    pinned = {
        re.split("==", line)[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    }
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    wanted = text[text.index("dependencies = [") : text.index("[project.scripts]")]
    names = {
        name.lower().replace("_", "-")
        for name in re.findall(r'"([A-Za-z0-9_.-]+)(?:\[\w+\])?[><=;"]', wanted)
    }
    # Of the datasets nothing is installed by `make setup`.
    assert names - pinned <= {"tensorflow-datasets", "importlib-resources"}
    assert {"torch", "tensorflow", "pytest", "ruff"} <= names
