"""The folder in TMPDIR that torch.compile stores code in."""

from __future__ import annotations

import getpass
import os
import sys
import tempfile
from pathlib import Path

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.machine.code_folders import claim_inductor_folder
from ipubench.plugins.run.conditions import apply_conditions

ANOTHER = 12345  # a user's number
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make others' files")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(getpass, "getuser", lambda: "some/body")
    return tmp_path / "torchinductor_some_body"


def test_it_is_private_and_keeps_the_users_own_files(folder: Path) -> None:
    claim_inductor_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    for mode, stays in ((0o755, True), (0o775, False)):
        (folder / "kernel.so").touch()
        folder.chmod(mode)  # as PyTorch creates it
        claim_inductor_folder()
        assert (folder / "kernel.so").exists() == stays
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "what",
    [
        pytest.param("a folder of another user", marks=needs_root),
        pytest.param("a link of another user", marks=needs_root),
        "a link to what all may write",
        "no place",
    ],
)
def test_a_folder_that_others_can_change_is_refused(
    folder: Path, tmp_path: Path, what: str
) -> None:
    if "link" in what:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere").chmod(0o777 if "all" in what else 0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    elif "folder" in what:
        folder.mkdir()
    else:
        tmp_path.rmdir()
    if "another" in what:
        os.lchown(folder, ANOTHER, ANOTHER)
    with pytest.raises(CaseError, match="TMPDIR"):
        claim_inductor_folder()


def test_every_torch_measurement_claims_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    apply_conditions("fake", "none", "system")
    assert not folder.exists()
    monkeypatch.setitem(sys.modules, "torch", None)
    apply_conditions("fake", "none", "system")
    assert folder.is_dir()
    folder.chmod(0o777)
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("elsewhere")
    with pytest.warns(UserWarning, match="TMPDIR"):
        apply_conditions("fake", "none", "system")
