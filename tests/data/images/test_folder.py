"""Images on disk: layouts, labels, order and messages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, List

import pytest

from ipubench.fixtures.case.errors import DataError
from ipubench.fixtures.data.images.feed import find_images


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


@pytest.mark.parametrize(
    ("names", "place", "found"),
    [
        (
            ["dog/2.jpg", "dog/1.JPEG", "ant/b.png", "ant/a.jpeg", "cat/x.JPG"],
            ".",
            ["ant/a.jpeg", "ant/b.png", "cat/x.JPG", "dog/1.JPEG", "dog/2.jpg"],
        ),
        # Hidden, empty and other entries are ignored.
        (["a/1.jpg", "a/notes.txt", "a/._1.jpg", ".cache/2.jpg", "b/c.md"], ".", ["a/1.jpg"]),
        (["2.jpg", "1.jpg", "notes/readme.md"], ".", ["1.jpg", "2.jpg"]),
        *(
            ([f"{place}/n02/b.JPEG", f"{place}/n01/a.JPEG", "train/n01/t.JPEG"], place, published)
            for place in ("val", "imagenet-data/validation", "imagenet-raw-dataset/val")
            for published in (["n01/a.JPEG", "n02/b.JPEG"],)
        ),
        (["ILSVRC/Data/CLS-LOC/val/v_1.JPEG", "t.JPEG"], "ILSVRC/Data/CLS-LOC/val", ["v_1.JPEG"]),
    ],
)
def test_layouts(tmp_path: Path, names: List[str], place: str, found: List[str]) -> None:
    touch(tmp_path, *names)
    (tmp_path / names[0]).with_name("folder.jpg").mkdir()
    (tmp_path / names[0]).with_name("gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    folder = find_images(tmp_path)
    assert [str(Path(path).relative_to(tmp_path / place)) for path in folder.paths] == found
    assert folder.describe() == {"source": str(tmp_path / place), "images": len(found)}
    assert not folder.samples


def test_training_images_next_to_validation_images_are_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path, "val/readme.txt", "train/a/1.jpg")
    listed: List[str] = []
    scandir = os.scandir

    def recording(path: Any) -> Any:
        listed.append(Path(path).name)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", recording)
    with pytest.raises(DataError, match=f" {tmp_path / 'val'}: "):
        find_images(tmp_path)
    assert "train" not in listed


def test_folders_without_images(tmp_path: Path) -> None:
    touch(tmp_path, "file.jpg", "set/image.gif", "records/validation-00000-of-00128")
    for name in ("gone", "file.jpg", "set", "records"):
        with pytest.raises(DataError, match=f"{tmp_path / name}.*--dataset-dir=PATH"):
            find_images(tmp_path / name)
