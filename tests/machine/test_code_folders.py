"""The folder of TMPDIR that torch.compile keeps code in."""

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


def test_it_is_made_for_this_user_alone_and_what_is_there_stays(folder: Path) -> None:
    claim_inductor_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / "kernel.so").touch()
    folder.chmod(0o755)  # as PyTorch makes it
    claim_inductor_folder()
    assert (folder / "kernel.so").exists()


def test_what_others_may_have_put_there_goes(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o775)
    (folder / "kernel.so").touch()
    claim_inductor_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert not list(folder.iterdir())


@needs_root
@pytest.mark.parametrize("link", [False, True])
def test_that_of_another_user_is_refused(folder: Path, tmp_path: Path, link: bool) -> None:
    if link:  # to a folder of this user, for now
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.mkdir()
    os.lchown(folder, ANOTHER, ANOTHER)
    with pytest.raises(CaseError, match="TMPDIR"):
        claim_inductor_folder()


def test_a_link_of_ours_to_a_folder_of_all_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere").chmod(0o777)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CaseError, match="TMPDIR"):
        claim_inductor_folder()


def test_without_a_place_it_is_one_message(folder: Path) -> None:
    folder.parent.rmdir()
    with pytest.raises(CaseError, match="TMPDIR"):
        claim_inductor_folder()


def test_whoever_measures_with_torch_has_it_claimed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
