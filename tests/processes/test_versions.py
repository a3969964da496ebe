"""The environment of `--against=pip:PACKAGE==VERSION`, made from wheels of this test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

from ipubench.fixtures.machine.packages import distributions
from ipubench.plugins.processes import kept
from ipubench.plugins.processes.versions import Versions, are_installed, find_versions, requested
from tests.support.wheels import install, only_from, wheel

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "given",
    ["pip:", "pip:six", "pip:six==1.*", "pip:six>=1", "pip:six==1,", "pip:-r==1", "pip:s==v"],
)
def test_only_exact_versions_are_taken(given: str) -> None:
    with pytest.raises(pytest.UsageError, match="give exact versions"):
        requested(given)


def test_several_packages_may_be_named() -> None:
    assert requested("pip:torch==2.8.0+cpu,My_pkg.x==1!2.0rc1") == [
        ("torch", "2.8.0+cpu"),
        ("My_pkg.x", "1!2.0rc1"),
    ]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of installed packages: quick 2, its helper 2, and one that needs quick 2."""
    wheels, site = tmp_path / "wheels", tmp_path / "here" / "site-packages"
    for name, version in (("quick", "2.0"), ("helper", "2.0"), ("other", "2.0")):
        needs = ["quick>=2"] if name == "other" else []
        install(wheel(tmp_path / "old", name, version, f"VERSION = {version!r}\n", needs), site)
    wheel(wheels, "quick", "1.0", "VERSION = '1.0'\n", ["helper==1.0"])
    wheel(wheels, "helper", "1.0", "VERSION = '1.0'\n")
    monkeypatch.setenv("IPUBENCH_CACHE_DIR", str(tmp_path / "cache"))
    for name, value in only_from(wheels).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])
    return site


def answers(made: Versions) -> List[str]:
    program = "import quick, helper, other; print(quick.VERSION, helper.VERSION, other.VERSION)"
    return subprocess.check_output([made.python, "-c", program], text=True).split()


@pytest.mark.entry_point
def test_only_what_differs_is_installed_there(site: Path) -> None:
    before = sorted(site.rglob("*"))
    assert are_installed("pip:Quick==2") and not are_installed("pip:quick==1.0")
    made = find_versions("pip:quick==1.0")
    assert answers(made) == ["1.0", "1.0", "2.0"]
    assert set(distributions([str(made.site)])) == {"quick", "helper"}
    assert made.modules == ("quick",)
    assert made.unfulfilled == ("other 2.0 requires quick>=2",)
    assert [path for path in sorted(site.rglob("*")) if "__pycache__" not in path.parts] == before


def test_an_environment_serves_later_runs_until_what_is_installed_changes(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = find_versions("pip:helper==1.0")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "nowhere"))
    assert find_versions("pip:helper==1.0") == made
    install(wheel(tmp_path / "old", "more", "1.0", ""), site)
    with pytest.raises(pytest.UsageError, match="helper==1.0"):
        find_versions("pip:helper==1.0")
    folders = [path for path in (tmp_path / "cache" / "versions").iterdir() if path.is_dir()]
    assert folders == [made.site.parents[2]]
    kept.stamp(folders[0]).unlink()  # of a run that was killed
    with pytest.raises(pytest.UsageError, match="nothing==3"):
        find_versions("pip:nothing==3")


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_uv_installs_where_it_is_installed(
    site: Path, installer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program called uv, which fails if pip is to follow."""
    program = tmp_path / "bin" / "uv"
    program.parent.mkdir()
    said = tmp_path / "said"
    works = 'exec "$5" -m pip install "$6"' if installer == "uv" else "exit 2"
    program.write_text(f'#!/bin/sh\necho "$@" >{said}\n{works}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    assert find_versions("pip:helper==1.0").modules == ("helper",)
    assert said.read_text().startswith("pip install --python ")


def test_an_installer_that_does_nothing_is_found(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as pip with PIP_DRY_RUN or PIP_ROOT."""
    program = tmp_path / "bin" / "uv"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    for given in ("pip:helper==1.0", "pip:nothing==1.0"):
        with pytest.raises(pytest.UsageError, match="is not in"):
            find_versions(given)
    program.unlink()
    assert find_versions("pip:helper==1.0").modules == ("helper",)
