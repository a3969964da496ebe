"""Checkpoint files: whole or not there, damage told in one message, the folder left as asked."""

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


def same(found: Any, wanted: Any) -> bool:
    """Whether two arrays agree bit for bit."""
    same_kind = (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    return same_kind and bool(found.tobytes() == wanted.tobytes())


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    path = checkpoints.save(tmp_path / "new", 12, ARRAYS, {"epoch": 1.5})
    assert path == tmp_path / "new" / "checkpoint-00000012.npz"
    (found,) = checkpoints.checkpoints(tmp_path / "new")
    assert (found.path, found.updates, found.facts) == (path, 12, {"epoch": 1.5})
    read = found.arrays()
    assert set(read) == set(ARRAYS)
    assert all(same(read[name], ARRAYS[name]) for name in ARRAYS)
    assert set(found.arrays("weights/")) == {"weights/0/conv/kernel", "weights/1/scale"}


def test_a_checkpoint_holds_arrays_and_text_and_no_pickle(tmp_path: Path) -> None:
    path = checkpoints.save(tmp_path, 1, ARRAYS, {"epoch": 1})
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            assert archive.read(member).startswith(b"\x93NUMPY")
    with np.load(path, allow_pickle=False) as file:
        assert not any(file[name].dtype.hasobject for name in file.files)


def test_checkpoints_come_in_the_order_of_training(tmp_path: Path) -> None:
    for updates in (200000000, 9, 70):
        checkpoints.save(tmp_path, updates, ARRAYS, {"epoch": 1})
    # What a killed run leaves of a file that it was writing, and another program's file.
    (tmp_path / ".checkpoint-00000100.npz.1.abc").write_bytes(b"half")
    (tmp_path / "notes.npz").write_bytes(b"other")
    found = checkpoints.checkpoints(tmp_path)
    assert [checkpoint.updates for checkpoint in found] == [9, 70, 200000000]


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.98])
def test_a_file_cut_short_is_one_message(tmp_path: Path, kept: float) -> None:
    path = checkpoints.save(tmp_path, 3, ARRAYS, {"epoch": 1})
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    for read in (checkpoints.checkpoints, checkpoints.newest):
        with pytest.raises(CaseError) as caught:
            read(tmp_path)
        message = str(caught.value)
        assert message.startswith(f"{path} is damaged or was cut short (")
        assert message.endswith("; delete it, or copy it again")  # there is no other to take


def test_the_newest_does_not_need_the_earlier_ones(tmp_path: Path) -> None:
    """The numbers count, not the letters; only a damaged newest one stops a resume."""
    for updates in (9, 70, 200000000):
        checkpoints.save(tmp_path, updates, ARRAYS, {"epoch": 1})
    damaged = tmp_path / "checkpoint-00000009.npz"
    damaged.write_bytes(b"half")
    found = checkpoints.newest(tmp_path)
    assert found.updates == 200000000
    with pytest.raises(CaseError, match=f"{damaged} is damaged .*; delete it, or copy it again$"):
        checkpoints.checkpoints(tmp_path)

    without = "; delete it, or copy it again; without it checkpoint-00000070.npz is the newest$"
    content = bytearray(found.path.read_bytes())
    content[bytes(content).index(ARRAYS["weights/0/conv/kernel"].tobytes()) + 10] ^= 1
    found.path.write_bytes(bytes(content))
    with pytest.raises(CaseError, match=without):
        found.arrays()
    found.path.write_bytes(b"half")
    with pytest.raises(CaseError, match=without):
        checkpoints.newest(tmp_path)
    found.path.unlink()
    assert checkpoints.newest(tmp_path).updates == 70


def test_a_changed_byte_is_found_when_it_is_read(tmp_path: Path) -> None:
    path = checkpoints.save(tmp_path, 3, ARRAYS, {"epoch": 1})
    content = bytearray(path.read_bytes())
    place = bytes(content).index(ARRAYS["weights/0/conv/kernel"].tobytes()) + 10
    content[place] ^= 1
    path.write_bytes(bytes(content))
    (checkpoint,) = checkpoints.checkpoints(tmp_path)
    with pytest.raises(CaseError, match="checkpoint-00000003.npz is damaged"):
        checkpoint.arrays()


def test_damaged_zip_fields_are_one_message(tmp_path: Path) -> None:
    """A flag that says encrypted, and a compression that there is not."""
    path = checkpoints.save(tmp_path, 3, ARRAYS, {"epoch": 1})
    content = path.read_bytes()
    directory = content.index(b"PK\x01\x02")
    for place, bit in ((directory + 8, 1), (directory + 11, 1)):
        damaged = bytearray(content)
        damaged[place] ^= bit
        path.write_bytes(bytes(damaged))
        with pytest.raises(CaseError, match="is damaged"):
            checkpoints.newest(tmp_path).arrays()


def rewritten(path: Path, members: Dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    """Write a checkpoint again with other members."""
    with zipfile.ZipFile(path) as file:
        content = {name: file.read(name) for name in file.namelist()}
    content.update({f"{name}.npy": data for name, data in members.items()})
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in content.items():
            file.writestr(name, data)


def npy(values: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    return file.getvalue()


@pytest.mark.parametrize(
    "header",
    [
        "[]",
        "{}",
        pytest.param("[" * 500, id="nested"),
        '{"format": 1, "updates": 1e999, "facts": {"epoch": 1}, "bfloat16": []}',
        '{"format": 1, "updates": [3], "facts": {"epoch": 1}, "bfloat16": []}',
        '{"format": 1, "updates": 3, "facts": {"epoch": "x"}, "bfloat16": []}',
        '{"format": 1, "updates": 3, "facts": [], "bfloat16": []}',
        '{"format": 1, "updates": 3, "facts": {"epoch": 1}, "bfloat16": {"a": 1}}',
        '{"format": "1", "updates": 3, "facts": {"epoch": 1}, "bfloat16": []}',
    ],
)
def test_facts_of_another_kind_are_one_message(tmp_path: Path, header: str) -> None:
    path = checkpoints.save(tmp_path, 3, ARRAYS, {"epoch": 1})
    facts = npy(np.frombuffer(header.encode(), np.uint8))
    rewritten(path, {checkpoints.FACTS: facts})
    with pytest.raises(CaseError, match="checkpoint-00000003.npz is damaged"):
        checkpoints.newest(tmp_path)


WRONG_ARRAYS = {
    "text": npy(np.asarray(["a", "b"])),
    "header": b"\x93NUMPY\x01\x00v\x00{'descr': (((((",
    "version": b"\x93NUMPY\x09\x09",
    "shape": npy(np.zeros(3)).replace(b"(3,)", b"(-3,"),
    "size": npy(np.zeros(3)).replace(b"(3,), }          ", b"(99999999999,), }"),
    "pickle": npy(np.zeros(3)).replace(b"<f8", b"|O8"),
    "nothing": b"",
}


@pytest.mark.parametrize("kind", WRONG_ARRAYS)
def test_an_array_that_is_none_is_one_message(tmp_path: Path, kind: str) -> None:
    path = checkpoints.save(tmp_path, 3, ARRAYS, {"epoch": 1})
    rewritten(path, {"draws": WRONG_ARRAYS[kind]})
    with pytest.raises(CaseError, match="checkpoint-00000003.npz is damaged"):
        checkpoints.newest(tmp_path).arrays()


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_is_compressed_is_refused_before_it_fills_the_memory(
    tmp_path: Path, compression: int
) -> None:
    path = checkpoints.save(tmp_path, 3, ARRAYS, {"epoch": 1})
    rewritten(path, {"zeros": npy(np.zeros(1 << 20))}, compression)
    with pytest.raises(CaseError, match=r"is damaged .*\.npy is compressed"):
        checkpoints.newest(tmp_path)


def test_a_pipe_is_no_checkpoint(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "checkpoint-00000001.npz")
    with pytest.raises(CaseError, match="checkpoint-00000001.npz: it is no regular file"):
        checkpoints.newest(tmp_path)


def test_a_folder_without_checkpoints_is_refused(tmp_path: Path) -> None:
    for read in (checkpoints.checkpoints, checkpoints.newest):
        with pytest.raises(CaseError, match=f"there is no folder {tmp_path / 'gone'}"):
            read(tmp_path / "gone")
        with pytest.raises(CaseError, match=f"{tmp_path} has no checkpoints"):
            read(tmp_path)


def test_a_later_format_is_not_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        later.setattr(checkpoints, "FORMAT", 2)
        checkpoints.save(tmp_path, 1, ARRAYS, {"epoch": 1})
    with pytest.raises(CaseError, match="has format 2, which this version does not read"):
        checkpoints.checkpoints(tmp_path)


def test_a_full_disk_leaves_the_earlier_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = checkpoints.save(tmp_path, 5, ARRAYS, {"epoch": 1})
    before = path.read_bytes()

    def full(file: Any, **_: Any) -> None:
        file.write(b"PK half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(CaseError, match="cannot be written: No space left on device; choose"):
        checkpoints.save(tmp_path, 5, ARRAYS, {"epoch": 1})
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == before


def test_a_run_deletes_its_own_checkpoints_alone(tmp_path: Path) -> None:
    earlier = checkpoints.save(tmp_path, 1, ARRAYS, {"epoch": 1})
    folder = CheckpointFolder(str(tmp_path), "", keep=False)
    folder.save(2, ARRAYS, {"epoch": 1})
    folder.save(2, ARRAYS, {"epoch": 1})
    assert [found.updates for found in folder.written()] == [2]
    folder.close()
    assert len(list(tmp_path.iterdir())) == 2  # the user's folder stays as it is
    folder.delete_written()
    assert list(tmp_path.iterdir()) == [earlier]


@pytest.mark.parametrize("keep", [False, True])
def test_a_temporary_folder_stays_only_where_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = CheckpointFolder("", "", keep)
    assert not list(tmp_path.iterdir())  # a run without checkpoints makes none
    folder.save(2, ARRAYS, {"epoch": 1})
    assert folder.path.parent == tmp_path
    folder.close()
    assert bool(list(tmp_path.iterdir())) == keep


@pytest.mark.parametrize("part", ["", "instance-1"])
def test_a_folder_that_can_be_written_is_made_and_left_empty(tmp_path: Path, part: str) -> None:
    given = tmp_path / "new" / "run"
    CheckpointFolder(str(given), part, keep=True).check("")
    assert (given / part).is_dir()
    assert not list((given / part).iterdir())


def test_no_temporary_folder_is_made_to_be_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = CheckpointFolder("", "", keep=True)
    folder.check("")
    assert not list(tmp_path.iterdir())


def refused(folder: CheckpointFolder, resumed_from: str = "") -> str:
    """Return the message of a folder that is not taken."""
    with pytest.raises(CaseError) as caught:
        folder.check(resumed_from)
    return str(caught.value)


def test_a_folder_that_cannot_be_written_is_found_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"mine")
    for given, part, reason in (
        (file, "", "it is no folder"),
        (file, "instance-1", "Not a directory"),
        (file / "below", "", "Not a directory"),
    ):
        assert refused(CheckpointFolder(str(given), part, keep=True)) == (
            f"checkpoint_output_dir={given}: cannot be written ({reason}); name another folder"
        )
    assert file.read_bytes() == b"mine"

    # A full disk: the file can be made and not filled. (root may write where others may not.)
    def full(dir: str) -> Any:
        return open("/dev/full", "wb")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    message = refused(CheckpointFolder(str(tmp_path), "", keep=True))
    assert "cannot be written (No space left on device); name" in message
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("part", ["", "instance-1"])
def test_the_folder_of_another_run_is_taken_only_to_resume_it(tmp_path: Path, part: str) -> None:
    given, other = tmp_path / "run", tmp_path / "other"
    for path in (given / part, other):
        checkpoints.save(path, 4, ARRAYS, {"epoch": 1})
    (tmp_path / "link").symlink_to(given)
    folder = CheckpointFolder(str(given), part, keep=True)
    for resumed_from in ("", str(other), str(tmp_path / "gone")):
        assert refused(folder, resumed_from) == (
            f"checkpoint_output_dir={given} has the checkpoints of another run: name an empty "
            f"folder, or resume that run with checkpoint_input_dir={given}"
        )
    for same in (given, other / ".." / "run", tmp_path / "link"):
        folder.check(str(same))
    # A run may go on in another folder.
    CheckpointFolder(str(tmp_path / "new"), part, keep=True).check(str(given))
