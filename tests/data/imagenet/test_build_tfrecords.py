"""The TFRecord builder: its output and its refusals."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest
from PIL import Image

from ipubench.fixtures.data.build_tfrecords import samples as sample_records
from ipubench.fixtures.data.build_tfrecords import writer
from ipubench.fixtures.data.build_tfrecords.__main__ import main
from ipubench.fixtures.data.build_tfrecords.writer import encode
from ipubench.fixtures.data.cache import SAMPLES, cache_dir
from ipubench.fixtures.data.imagenet.shards import find_shards
from ipubench.fixtures.data.images import samples
from ipubench.fixtures.data.images.preprocess import as_rgb
from tests.support.records import fill_the_cache_here, image_tree, smooth

pytestmark = pytest.mark.framework
tf = pytest.importorskip("tensorflow", reason="TFRecords are written with TensorFlow")

PREFIX = "image/"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of three classes with train and val, and links that form a cycle."""
    root = tmp_path_factory.mktemp("images")
    image_tree(root / "train")
    image_tree(root / "val", per_class=2)
    for itself in (root / "train" / "itself", root / "train" / "n00" / "itself.jpg"):
        itself.symlink_to(itself)
    return root


def run(*words: Any) -> int:
    try:
        return main([str(word) for word in words])
    except SystemExit as end:
        return int(str(end.code))


def records(root: Path, split: str) -> List[Dict[str, Any]]:
    found = []
    for path in find_shards(root, split).paths:
        for message in tf.data.TFRecordDataset(path).as_numpy_iterator():
            example = tf.train.Example.FromString(message)
            features = {}
            for name, feature in example.features.feature.items():
                kind = feature.WhichOneof("kind")
                values = list(getattr(feature, kind).value)
                features[name[len(PREFIX) :]] = values[0] if values else []
            found.append(features)
    return found


def contents(root: Path) -> Dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(root.glob("*-of-*"))}


def test_the_written_records(tree: Path, tmp_path: Path) -> None:
    names = tmp_path / "names"
    names.write_text("n02 third one\nn00 first\nn01\n")
    target = tmp_path / "new" / "target"
    assert run(tree, target, "--train-shards=5", "--validation-shards=2", "--labels", names) == 0
    assert (target / "labels.txt").read_text() == names.read_text()
    train, valid = records(target, "train"), records(target, "validation")
    assert (len(train), len(valid)) == (24, 6)
    assert len(find_shards(target, "train").paths) == 5
    for found in train:
        folder = found["class/synset"].decode()  # novermin
        assert found["class/label"] == {"n02": 1, "n00": 2, "n01": 3}[folder]
        text = {"n02": b"third one", "n00": b"first", "n01": b"n01"}[folder]
        assert found["class/text"] == text
        source = tree / "train" / folder / found["filename"].decode()  # novermin
        assert found["encoded"] == source.read_bytes()
        assert (found["height"], found["width"], found["channels"]) == (24, 32, 3)
        assert (found["format"], found["colorspace"]) == (b"JPEG", b"RGB")
        assert all(found[f"object/bbox/{s}"] == [] for s in ("xmin", "ymin", "xmax", "ymax"))
    assert len({found["encoded"] for found in train}) == 24


def test_other_formats_become_rgb_jpegs(tmp_path: Path) -> None:
    pixels = smooth(40, 60)
    pictures = {
        "png": Image.fromarray(pixels),
        "cmyk": Image.fromarray(pixels).convert("CMYK"),
        "grey": Image.fromarray(pixels).convert("L"),
        "alpha": Image.fromarray(pixels).convert("RGBA"),
        "16 bits": Image.fromarray(pixels[..., 0].astype(np.uint16) * 257),
    }
    for name, picture in pictures.items():
        form = "JPEG" if name in ("cmyk", "grey") else "PNG"
        path = tmp_path / f"{name}.jpg"
        picture.save(path, form, quality=95)
        jpeg, height, width = encode(str(path))
        assert (height, width) == (40, 60)
        decoded = tf.image.decode_and_crop_jpeg(jpeg, [0, 0, 40, 60], channels=3).numpy()
        expected = np.asarray(as_rgb(picture), int)
        assert np.abs(decoded.astype(int) - expected).mean() < 4, name
        with Image.open(io.BytesIO(jpeg)) as image:
            assert (image.format, image.mode) == ("JPEG", "L" if name == "grey" else "RGB")
    two = tmp_path / "two.jpg"  # a camera's JPEG with a second picture after it
    pictures["png"].save(two, "MPO", save_all=True, append_images=[pictures["png"]])
    assert encode(str(two)).jpeg == two.read_bytes()


def test_the_target_appears_when_it_is_complete(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example, done = writer._example, []

    def interrupted(*arguments: Any) -> bytes:
        done.append(1)
        if len(done) == 13:  # with eight images per shard this is in the middle of the second
            raise KeyboardInterrupt
        assert os.listdir(tmp_path) == ["target.unfinished"]
        return example(*arguments)

    words = (tree / "train", tmp_path / "target", "--split=train", "--train-shards=3")
    with monkeypatch.context() as patch:
        patch.setattr(writer, "_example", interrupted)
        assert run(*words) == 130
    assert not os.listdir(tmp_path)
    assert run(*words) == 0
    assert os.listdir(tmp_path) == ["target"]
    again = tmp_path / "again"
    assert run(words[0], again, *words[2:]) == 0
    assert contents(again) == contents(tmp_path / "target")


@pytest.mark.parametrize("name", ["target", "target.unfinished"])
def test_a_target_that_exists_or_is_being_built_stays(
    tree: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "file").touch()
    assert run(tree / "train", tmp_path / "target", "--split=train") == 4
    assert [path.name for path in tmp_path.rglob("*")] == [name, "file"]


def test_corrupt_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = image_tree(tmp_path / "source"), tmp_path / "target"
    cut, text = source / "n01" / "3.jpg", source / "n02" / "4.jpg"
    cut.write_bytes(cut.read_bytes()[:400])
    text.write_text("no image")
    words = (source, target, "--split=train", "--train-shards=4")
    assert run(*words) == 1
    error = capsys.readouterr().err
    assert (str(cut) in error or str(text) in error) and "--skip-corrupt" in error
    assert run(*words, "--skip-corrupt") == 0
    out = capsys.readouterr().out
    assert "n01/3.jpg" in out and "n02/4.jpg" in out
    assert len(records(target, "train")) == 22


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["only-source"],
        ["gone", "target"],
        ["a", "b", "--train-shards=0"],
        ["a", "b", "--split=test"],
    ],
)
def test_usage_errors(
    words: List[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*words) == 4
    assert capsys.readouterr().err.startswith("error: ")
    assert not os.listdir(tmp_path)


def test_a_target_that_cannot_be_created(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for target in (tmp_path / "file", tmp_path / "file" / "target", "/"):
        assert run(tree / "train", target, "--split=train") == 4


# ------------------------------------------------------------------ the sample images


def test_sample_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Drawing the images takes seconds; the run's cache has the same ones.
    shutil.copytree(samples.sample_folder(cache_dir()).root, tmp_path / samples.NAME)
    made = fill_the_cache_here(monkeypatch, sample_records)
    train = sample_records.sample_shards(tmp_path, "train")
    valid = sample_records.sample_shards(tmp_path, "validation")
    assert (train.samples, len(train.paths), len(valid.paths)) == (True, 4, 2)
    assert train.describe()["source"] == SAMPLES
    root = Path(train.root)
    classes = range(samples.SAMPLE_CLASSES)
    assert (root / "labels.txt").read_text() == "".join(f"class{n}\n" for n in classes)
    found, held_out = records(root, "train"), records(root, "validation")
    assert (len(found), len(held_out)) == (48, 16)
    labels = {number + 1 for number in classes}
    assert {r["class/label"] for r in found} == {r["class/label"] for r in held_out} == labels
    assert not {r["encoded"] for r in found} & {r["encoded"] for r in held_out}
    before = [os.stat(path).st_mtime_ns for path in train.paths]
    assert sample_records.sample_shards(tmp_path, "train") == train
    assert [os.stat(path).st_mtime_ns for path in train.paths] == before

    # Incomplete or truncated images are drawn again, identically.
    content = contents(root)
    Path(train.paths[2]).unlink()
    (tmp_path / f"{sample_records.RECORDS_NAME}.unfinished").mkdir()
    assert sample_records.sample_shards(tmp_path, "train") == train
    assert contents(root) == content
    os.truncate(train.paths[1], 1000)
    assert sample_records.sample_shards(tmp_path, "train") == train
    assert contents(root) == content
    assert made == [(sample_records.__name__, str(tmp_path))] * 3
