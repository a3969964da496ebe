"""Images on disk: layouts, labels, order and messages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, List

import pytest

from ipubench.fixtures.case.errors import DataError
from ipubench.fixtures.data.images.feed import ImageFolder, find_images


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def relative(folder: ImageFolder, root: Path) -> List[str]:
    return [str(Path(path).relative_to(root)) for path in folder.paths]


def test_images_come_in_the_order_of_their_class_folders(tmp_path: Path) -> None:
    touch(tmp_path, "dog/2.jpg", "dog/1.JPEG", "ant/b.png", "ant/a.jpeg", "cat/x.JPG")
    folder = find_images(tmp_path)
    names = ["ant/a.jpeg", "ant/b.png", "cat/x.JPG", "dog/1.JPEG", "dog/2.jpg"]
    assert relative(folder, tmp_path) == names
    assert not folder.samples
    assert folder.describe() == {"source": str(tmp_path), "images": 5}


def test_other_hidden_and_empty_entries_are_ignored(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg", "a/notes.txt", "a/._1.jpg", ".cache/2.jpg", "empty/readme.md")
    (tmp_path / "a" / "folder.jpg").mkdir()
    (tmp_path / "a" / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    for itself in (tmp_path / "itself", tmp_path / "a" / "itself.jpg"):
        itself.symlink_to(itself)
    assert relative(find_images(tmp_path), tmp_path) == ["a/1.jpg"]


def test_without_class_folders_the_images_lie_in_the_folder_itself(tmp_path: Path) -> None:
    touch(tmp_path, "2.jpg", "1.jpg", "notes/readme.md")
    assert relative(find_images(tmp_path), tmp_path) == ["1.jpg", "2.jpg"]


@pytest.mark.parametrize(
    "place",
    [
        "val",
        "validation",
        "imagenet-data/val",
        "imagenet-data/validation",
        "imagenet-raw-dataset/validation",
    ],
)
def test_published_layouts(tmp_path: Path, place: str) -> None:
    touch(tmp_path, f"{place}/n02/b.JPEG", f"{place}/n01/a.JPEG", "train/n01/t.JPEG")
    folder = find_images(tmp_path)
    assert relative(folder, tmp_path / place) == ["n01/a.JPEG", "n02/b.JPEG"]
    assert folder.root == str(tmp_path / place)


def test_published_layout_of_the_challenge(tmp_path: Path) -> None:
    place = "ILSVRC/Data/CLS-LOC"
    touch(tmp_path, f"{place}/val/ILSVRC2012_val_1.JPEG", f"{place}/train/n01/t.JPEG")
    assert relative(find_images(tmp_path), tmp_path / place) == ["val/ILSVRC2012_val_1.JPEG"]


def test_training_images_are_never_walked_beside_validation_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path, "val/a/1.jpg", "train/a/1.jpg")
    listed: List[str] = []
    scandir = os.scandir

    def recording(path: Any) -> Any:
        listed.append(Path(path).name)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", recording)
    find_images(tmp_path)
    assert "train" not in listed


def test_an_empty_validation_folder_does_not_lead_to_training_images(tmp_path: Path) -> None:
    touch(tmp_path, "val/readme.txt", "train/1.jpg")
    with pytest.raises(DataError, match=r"no image found in .*val: "):
        find_images(tmp_path)


def test_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no such directory: .*gone; .*--dataset-dir=PATH"):
        find_images(tmp_path / "gone")


def test_a_file_is_not_a_directory(tmp_path: Path) -> None:
    touch(tmp_path, "file.jpg")
    with pytest.raises(DataError, match=r"not a directory: .*file.jpg; .*--dataset-dir=PATH"):
        find_images(tmp_path / "file.jpg")


def test_a_directory_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: object) -> object:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(DataError, match=r"cannot read .*: Permission denied; .*--dataset-dir=PATH"):
        find_images(tmp_path)


def test_no_image_says_what_was_looked_for(tmp_path: Path) -> None:
    touch(tmp_path, "a/image.gif")
    with pytest.raises(DataError, match=r"\.jpg, \.jpeg, \.png .*imagenet-data/val.*=PATH"):
        find_images(tmp_path)


@pytest.mark.parametrize("place", [".", "imagenet-data", "validation"])
def test_tfrecords_are_named_as_such(tmp_path: Path, place: str) -> None:
    touch(tmp_path, f"{place}/validation-00000-of-00128")
    with pytest.raises(
        DataError, match=r"validation-00000-of-00128 is a TFRecord.*TensorFlow cases only.*=PATH"
    ):
        find_images(tmp_path)
