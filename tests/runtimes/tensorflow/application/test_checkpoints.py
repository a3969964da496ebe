"""Checkpoint files: complete or absent; damage is one message; the folder stays if asked."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import Any, Dict

import numpy as np
import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.runtimes.tensorflow.application import checkpoints
from ipubench.fixtures.runtimes.tensorflow.application.checkpoints import CheckpointFolder

ARRAYS: Dict[str, Any] = {
    "weights/0/conv/kernel": np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 7,
    "weights/1/scale": np.asarray([0.1, -65504.0, 6e-8], np.float16),
    "slots/0/0": np.asarray([np.nan, np.inf, -0.0], np.float32),
    "draws": np.asarray(1 << 40, np.int64),
}


def saved(folder: Path, updates: int = 3) -> Path:
    return checkpoints.save(folder, updates, ARRAYS, {"epoch": 1.5})


def test_loading_returns_what_was_saved(tmp_path: Path) -> None:
    path = saved(tmp_path / "new", 12)
    assert path == tmp_path / "new" / "checkpoint-00000012.npz"
    (found,) = checkpoints.checkpoints(tmp_path / "new")
    assert (found.path, found.updates, found.facts) == (path, 12, {"epoch": 1.5})
    read = found.arrays()
    assert set(read) == set(ARRAYS)
    for name, wanted in ARRAYS.items():
        assert (read[name].dtype, read[name].shape) == (wanted.dtype, wanted.shape)
        assert read[name].tobytes() == wanted.tobytes()
    assert set(found.arrays("weights/")) == {"weights/0/conv/kernel", "weights/1/scale"}


def test_checkpoints_are_in_the_order_of_training(tmp_path: Path) -> None:
    for updates in (200000000, 9, 70):
        saved(tmp_path, updates)
    # A partial file of a killed run, and another program's file.
    (tmp_path / ".checkpoint-00000100.npz.1.abc").write_bytes(b"half")
    (tmp_path / "notes.npz").write_bytes(b"other")
    found = checkpoints.checkpoints(tmp_path)
    assert [checkpoint.updates for checkpoint in found] == [9, 70, 200000000]
    # The newest one does not need the earlier ones.
    damaged = tmp_path / "checkpoint-00000009.npz"
    damaged.write_bytes(b"half")
    assert checkpoints.newest(tmp_path).updates == 200000000
    with pytest.raises(CaseError, match=str(damaged)):
        checkpoints.checkpoints(tmp_path)


def with_member(content: bytes, name: str, data: bytes) -> bytes:
    """Return a checkpoint with another archive member."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w") as new:
        for member in old.namelist():
            new.writestr(member, data if member == f"{name}.npy" else old.read(member))
    return file.getvalue()


def npy(values: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    return file.getvalue()


def with_facts(text: str) -> Any:
    facts = npy(np.frombuffer(text.encode(), np.uint8))
    return lambda content: with_member(content, checkpoints.FACTS, facts)


def with_changed_byte(content: bytes) -> bytes:
    changed = bytearray(content)
    changed[content.index(ARRAYS["weights/0/conv/kernel"].tobytes()) + 10] ^= 1
    return bytes(changed)


DAMAGED = {
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "end missing": lambda content: content[:-20],
    "changed byte": with_changed_byte,
    "no object": with_facts("[]"),
    "no fields": with_facts("{}"),
    "nested": with_facts("[" * 500),
    "updates": with_facts('{"format": 1, "updates": [3], "facts": {"epoch": 1}, "bfloat16": []}'),
    "epoch": with_facts('{"format": 1, "updates": 3, "facts": {"epoch": "x"}, "bfloat16": []}'),
    "later format": with_facts(
        '{"format": 2, "updates": 3, "facts": {"epoch": 1}, "bfloat16": []}'
    ),
    "array": lambda content: with_member(content, "draws", b"\x93NUMPY\x01\x00v\x00{'descr': ((("),
    "pickle": lambda content: with_member(
        content, "draws", npy(np.zeros(3)).replace(b"<f8", b"|O8")
    ),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_file_is_one_message(tmp_path: Path, kind: str) -> None:
    path = saved(tmp_path)
    path.write_bytes(DAMAGED[kind](path.read_bytes()))
    with pytest.raises(CaseError, match=f"{path} is damaged"):
        checkpoints.newest(tmp_path).arrays()


def test_a_file_that_is_not_a_checkpoint_is_refused(tmp_path: Path) -> None:
    for read in (checkpoints.checkpoints, checkpoints.newest):
        for folder in (tmp_path / "gone", tmp_path):
            with pytest.raises(CaseError, match=f"checkpoint_input_dir: .*{folder}"):
                read(folder)
    os.mkfifo(tmp_path / "checkpoint-00000001.npz")
    with pytest.raises(CaseError, match="checkpoint-00000001.npz"):
        checkpoints.newest(tmp_path)


def test_a_full_disk_keeps_the_earlier_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path)
    before = path.read_bytes()

    def full(file: Any, **_: Any) -> None:
        file.write(b"PK half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(CaseError, match="checkpoint_output_dir: .*No space"):
        saved(tmp_path)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == before


def test_a_run_deletes_only_its_own_checkpoints(tmp_path: Path) -> None:
    earlier = saved(tmp_path, 1)
    folder = CheckpointFolder(str(tmp_path), "", keep=False)
    for _ in range(2):
        folder.save(2, ARRAYS, {"epoch": 1})
    assert [found.updates for found in folder.written()] == [2]
    folder.close()
    assert len(list(tmp_path.iterdir())) == 2  # the user's folder is unchanged
    folder.delete_written()
    assert list(tmp_path.iterdir()) == [earlier]


@pytest.mark.parametrize("keep", [False, True])
def test_a_temporary_folder_stays_only_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = CheckpointFolder("", "", keep)
    folder.check("")
    assert not list(tmp_path.iterdir())  # a run without checkpoints makes none
    folder.save(2, ARRAYS, {"epoch": 1})
    assert folder.path.parent == tmp_path
    folder.close()
    assert bool(list(tmp_path.iterdir())) == keep


@pytest.mark.parametrize("part", ["", "instance-1"])
def test_a_new_folder_is_created_and_another_runs_is_only_resumed(
    tmp_path: Path, part: str
) -> None:
    given = tmp_path / "new" / "run"
    folder = CheckpointFolder(str(given), part, keep=True)
    folder.check("")
    assert not list((given / part).iterdir())
    saved(given / part)
    (tmp_path / "link").symlink_to(given)
    for resumed_from in ("", str(tmp_path)):
        with pytest.raises(CaseError, match=f"checkpoint_output_dir={given}"):
            folder.check(resumed_from)
    for same in (given, tmp_path / "link"):
        folder.check(str(same))
    # A run may go on in another folder.
    CheckpointFolder(str(tmp_path / "other"), part, keep=True).check(str(given))


def test_an_unwritable_folder_is_refused_before_training(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"mine")
    for given, part in ((file, ""), (file, "instance-1"), (file / "below", "")):
        with pytest.raises(CaseError, match=f"checkpoint_output_dir={given}"):
            CheckpointFolder(str(given), part, keep=True).check("")
    assert file.read_bytes() == b"mine"
