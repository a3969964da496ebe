"""TFRecords on disk, the images that they are built from, and the feed that reads them."""

from __future__ import annotations

import os
import re
import string
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.case.errors import DataError
from ipubench.fixtures.case.options import CaseConfig
from ipubench.fixtures.data.build_tfrecords.source import (
    BuildUsageError,
    Classes,
    SplitSource,
    _read_labels,
    find_sources,
)
from ipubench.fixtures.data.feed_options import RecordOptions
from ipubench.fixtures.data.imagenet.feed import ImageNetFeed
from ipubench.fixtures.data.imagenet.shards import (
    ShardSet,
    fault_of_file,
    find_shards,
    shard_name,
)
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.data.sources import source
from ipubench.fixtures.pytest_fixtures import shared_of
from ipubench.plugins.selection import datasets
from tests.support.command_line import given_options
from tests.support.harness import ROOT
from tests.support.tries import tries

SHARDS = ShardSet("/data", "train", ("/data/train-00000-of-00001",))
NO_COUNT: Dict[str, Any] = {"train": None, "validation": None}


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def shards(split: str, total: int, folder: str = ".") -> List[str]:
    return [f"{folder}/{shard_name(split, index, total)}" for index in range(total)]


# ------------------------------------------------------------------ find_shards


def test_other_files_are_skipped(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / shard_name("train", 0, 1))
    with pytest.raises(DataError):
        find_shards(tmp_path, "train")
    hole = tmp_path / "hole"
    with hole.open("wb") as file:
        file.truncate(1 << 42)
    for path in (tmp_path / shard_name("train", 0, 1), hole, tmp_path / "gone"):
        assert fault_of_file(str(path))


@pytest.mark.parametrize("place", [".", "imagenet-data", "a/imagenet-data", "a/b/imagenet-data"])
def test_places(tmp_path: Path, place: str) -> None:
    touch(tmp_path, *shards("train", 12, place), *shards("validation", 2, place), "labels.txt")
    touch(tmp_path, *shards("train", 2, "a/b/imagenet-data/imagenet-data"))
    found = find_shards(tmp_path, "train")
    assert [Path(path).name for path in found.paths] == [
        shard_name("train", i, 12) for i in range(12)
    ]
    assert len(find_shards(tmp_path, "validation").paths) == 2
    root = str(tmp_path / place)
    assert found.describe() == {"source": root, "split": "train", "shards": 12}


@pytest.mark.parametrize(
    ("names", "split", "said"),
    [
        ([], "train", "train-NNNNN-of-MMMMM"),
        (["n01/a.JPEG"], "train", "build_tfrecords"),
        (shards("train", 2), "validation", "train files only"),
        ([*shards("train", 2), *shards("train", 3)], "train", "-of-00002 and -of-00003"),
        (shards("train", 9)[:2], "train", "lacks 7 .* 9 train files: train-00002-of-00009"),
    ],
)
def test_unusable_folders(tmp_path: Path, names: List[str], split: str, said: str) -> None:
    touch(tmp_path, *names)
    with pytest.raises(DataError, match=said):
        find_shards(tmp_path, split)
    for lost in (tmp_path / "gone", touch(tmp_path, "file") / "file", tmp_path / ("x" * 300)):
        with pytest.raises(DataError, match=str(lost)):
            find_shards(lost, split)
        with pytest.raises(BuildUsageError, match=str(lost)):
            find_sources(lost, "both", NO_COUNT)


# ------------------------------------------------------------------ source images


LETTERS = string.ascii_letters + string.digits + "_"
WORD = st.text(LETTERS, min_size=1)
MORE = st.lists(st.text(LETTERS + ",", min_size=1), max_size=3)
TEXT = st.builds(lambda word, more: " ".join([word, *more]), WORD, MORE)


@tries(50)
@given(st.dictionaries(WORD, TEXT, min_size=1, max_size=20))
def test_labels_survive_labels_txt(texts: Dict[str, str]) -> None:
    classes = Classes(tuple(texts), tuple(texts.values()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "labels.txt"
        path.write_text(classes.lines(), encoding="utf-8")
        assert _read_labels(path, {}) == classes


def both(root: Path, *options: Any) -> List[SplitSource]:
    return find_sources(root, "both", NO_COUNT, *options)


def labelled(found: SplitSource) -> Dict[str, int]:
    return {image.name: image.label for image in found.images}


def test_class_folders_with_blanks(tmp_path: Path) -> None:
    touch(tmp_path, "train/golden retriever/1.jpg", "train/ant/1.jpg")
    (tmp_path / "labels.txt").write_text("golden retriever\nant\n")
    (found,) = find_sources(tmp_path, "train", NO_COUNT, tmp_path / "labels.txt")
    assert labelled(found) == {"golden retriever/1.jpg": 0, "ant/1.jpg": 1}


@pytest.mark.parametrize("validation", ["val", "validation"])
def test_both_splits_have_the_labels_of_training(tmp_path: Path, validation: str) -> None:
    names = [f"train/{c}/{i}.jpg" for c in "abc" for i in range(400)]
    touch(tmp_path, *names, f"{validation}/c/1.jpg", f"{validation}/c/no.txt")
    train, valid = both(tmp_path)
    assert (train.split, valid.split) == ("train", "validation")
    assert labelled(valid) == {"c/1.jpg": 2}
    assert train.classes == valid.classes == Classes(("a", "b", "c"), ("a", "b", "c"))
    assert [train.shards, valid.shards] == [1024, 1]  # as published, for the images that exist


def test_every_image_is_in_one_shard(tmp_path: Path) -> None:
    touch(tmp_path, *(f"train/{c}/{i}.jpg" for c in "abc" for i in range(7)))
    (found,) = find_sources(tmp_path, "train", {"train": 4, "validation": None})
    parts = [found.shard(index) for index in range(4)]
    assert sorted(map(len, parts)) == [5, 5, 5, 6]
    assert sorted(image for part in parts for image in part) == sorted(found.images)
    assert [image.label for image in found.images] != sorted(i.label for i in found.images)
    (again,) = find_sources(tmp_path, "train", {"train": 4, "validation": None})
    assert again == found


def test_challenge_layout_with_its_table_of_validation_classes(tmp_path: Path) -> None:
    place = "ILSVRC/Data/CLS-LOC"
    touch(tmp_path, f"{place}/train/n01/t.JPEG", f"{place}/train/n02/t.JPEG")
    touch(tmp_path, f"{place}/val/v_1.JPEG", f"{place}/val/v_2.JPEG")
    table, names = tmp_path / "LOC_val_solution.csv", tmp_path / "LOC_synset_mapping.txt"
    table.write_text("ImageId,PredictionString\nv_2,n01 1 2 3 4\nv_1,n02 1 2 3 4 n02 5 6 7 8\n")
    names.write_text("n01 tench, Tinca tinca\nn02 goldfish\n")
    _, valid = both(tmp_path, names, table)
    assert labelled(valid) == {"v_1.JPEG": 1, "v_2.JPEG": 0}
    assert valid.classes.texts == ("tench, Tinca tinca", "goldfish")
    lines = tmp_path / "classes.txt"
    lines.write_text("n01\nn02\n")
    assert labelled(both(tmp_path, None, lines)[1]) == {"v_1.JPEG": 0, "v_2.JPEG": 1}
    head = "ImageId,PredictionString\nv_2,n01 1 2 3 4\nv_1,\n"
    for text, said in ((head, "v_1.JPEG"), ("n01\n", "has 1 lines"), ("n01\nn03\n", "n03")):
        lines.write_text(text)
        with pytest.raises(BuildUsageError, match=said):
            both(tmp_path, None, lines)


@pytest.mark.parametrize(
    ("names", "split", "said"),
    [
        (["a/1.jpg"], "both", "--split"),
        (["train/a/1.jpg"], "both", "no validation images"),
        (["train/a/1.jpg", "val/b/1.jpg"], "both", "class b of .*val"),
        (["train/a/1.jpg", "val/1.jpg"], "both", "--validation-labels"),
        (["train/a/notes.txt"], "train", "no image found"),
        (["1.jpg"], "train", "no class folders"),
    ],
)
def test_unusable_sources(tmp_path: Path, names: List[str], split: str, said: str) -> None:
    touch(tmp_path, *names)
    with pytest.raises(BuildUsageError, match=said):
        find_sources(tmp_path, split, NO_COUNT)


@pytest.mark.parametrize(
    ("text", "count", "said"),
    [
        ("", 1, "labels"),
        ("a\na\n", 1, "labels"),
        ("a\n\nb\n", 1, "labels"),
        ("a\nb\n", 3, "--train-shards=3"),
    ],
)
def test_unusable_labels_and_numbers_of_shards(
    tmp_path: Path, text: str, count: int, said: str
) -> None:
    touch(tmp_path, "train/a/1.jpg", "train/b/1.jpg")
    labels = tmp_path / "labels"
    labels.write_text(text)
    with pytest.raises(BuildUsageError, match=said):
        find_sources(tmp_path, "train", {"train": count, "validation": None}, labels)


# ------------------------------------------------------------------ the feed


@dataclass(frozen=True)
class Config(RecordOptions):
    data: str = "real"
    mode: str = "training"
    eight_bit_io: bool = True
    normalise_input: bool = True
    pipeline_num_parallel: int = 8
    seed: int = 7


SIZES = (4, 32)  # images per batch, pixels per side


def data_of(asked: List[str]) -> Data:
    def find(kind: str, split: str) -> ShardSet:
        assert kind == "records"
        asked.append(split)
        return SHARDS

    return Data(find)


@pytest.mark.parametrize(
    ("mode", "augmented", "split"),
    [
        ("training", True, "train"),
        ("training", False, "train"),
        ("inference", True, "validation"),
        ("evaluation", True, "validation"),
    ],
)
def test_a_feed_follows_the_configuration(mode: str, augmented: bool, split: str) -> None:
    asked: List[str] = []
    feed = data_of(asked).records(Config(mode=mode), *SIZES, augmented=augmented)
    assert asked == [split]
    assert (feed.batch_size, feed.image_size, feed.parallel, feed.seed) == (4, 32, 8, 7)
    assert (feed.training, feed.cache) == (mode == "training" and augmented, True)
    facts = feed.describe()
    assert (facts["source"], facts["transfer"], facts["augmented"]) == (
        "/data",
        "uint8",
        feed.training,
    )
    for data in ("synthetic", "generated"):
        assert data_of(asked).records(Config(data=data), *SIZES).shards is None
    assert asked == [split]


def test_integers_are_normalised_on_the_device_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"the device normalises them, not the host"):
        feed = data_of([]).records(Config(hostside_norm=True), *SIZES)
    assert feed.normalization == "device"
    floats = data_of([]).records(Config(hostside_norm=True, eight_bit_io=False), *SIZES)
    assert floats.normalization == "host"


def test_generated_batch_is_one_image_and_one_label() -> None:
    feed = ImageNetFeed("generated", 3, (64, 64, 3), classes=10)
    images, labels = feed.generated()
    assert images.shape == (3, 64, 64, 3)
    assert [images.dtype, labels.dtype] == [np.dtype("uint8"), np.dtype("int32")]
    assert (images == images[0]).all()
    assert len(set(labels)) == 1
    assert 0 <= labels[0] <= 8
    exact, _ = ImageNetFeed("generated", 1, eight_bit=False).generated()
    assert exact.dtype == np.float32
    assert 7 <= exact.min() < 8
    assert 246 < exact.max() <= 247
    # The standard deviation of a normal distribution truncated at two of them is 0.88 of it.
    assert exact.mean() == pytest.approx(127, abs=0.5)
    assert exact.std() == pytest.approx(60 * 0.8796, abs=0.3)
    assert "seed 0" in feed.describe()["values"]


# ------------------------------------------------------------------ where they are found


def test_the_option_overrides_the_environment(tmp_path: Path) -> None:
    for name in ("option", "variable"):
        touch(tmp_path / name, *shards("train", 1))
    environ = {"DATASETS_DIR": str(tmp_path / "variable")}
    option = str(tmp_path / "option")
    assert source(("records", "train"), option, environ).root == option
    assert source(("records", "train"), None, environ).root == environ["DATASETS_DIR"]
    with pytest.raises(
        DataError, match=rf"^DATASETS_DIR is .*: {re.escape(str(tmp_path / 'gone'))};"
    ):
        source(("records", "train"), None, {"DATASETS_DIR": str(tmp_path / "gone")})


OURS = SimpleNamespace(func=source)  # pytest's facts about a fixture


def item(fixture: str, mode: str, data: str = "real") -> Any:
    case = Case(CaseConfig(mode=mode, data=data), id=f"{fixture}-{mode}")
    return SimpleNamespace(
        callspec=SimpleNamespace(params={"ipubench_case": case}),
        _fixtureinfo=SimpleNamespace(name2fixturedefs={fixture: [OURS], "data": [OURS]}),
    )


def judge(items: List[Any], folder: Any) -> Any:
    option = given_options(dataset_dir=folder and str(folder))
    config: Any = SimpleNamespace(option=option, stash=pytest.Stash())
    datasets.find_data(config, items)
    return config


def test_images_are_checked_for_cases_that_read_images(tmp_path: Path) -> None:
    touch(tmp_path, "1.jpg")
    theirs = item("tensorflow", "training")  # a project's own fixture is the last one with its name
    theirs._fixtureinfo.name2fixturedefs["data"] = [OURS, SimpleNamespace(func=item, argnames=())]
    generated = item("tensorflow", "training", "generated")
    config = judge([item("pytorch", "inference"), generated, theirs], tmp_path)
    assert list(shared_of(config).found) == [("images",)]
    assert shared_of(config).found["images",].root == str(tmp_path)


def test_tfrecords_are_checked_for_the_splits_that_are_read(tmp_path: Path) -> None:
    touch(tmp_path, *shards("train", 2))
    config = judge(
        [item("tensorflow", "training"), item("pytorch", "inference", "synthetic")], tmp_path
    )
    assert list(shared_of(config).found) == [("records", "train")]
    (line,) = datasets.which_data(config)
    assert line.startswith("real data: 2 ") and line.endswith(f" train in {tmp_path}")
    with pytest.raises(pytest.UsageError, match=f"{tmp_path} has train .* validation"):
        judge([item("tensorflow", "inference")], tmp_path)


def test_sample_images_are_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATASETS_DIR", raising=False)
    monkeypatch.setenv("IPUBENCH_CACHE_DIR", str(tmp_path / "cache"))
    config = judge([item("tensorflow", "training")], None)
    (line,) = datasets.which_data(config)
    assert "sample images" in line
    assert shared_of(config).found == {("records", "train"): None}


def test_importing_this_loads_no_framework() -> None:
    program = (
        "import sys, ipubench.fixtures.data.provider, ipubench.fixtures.data.imagenet.pipeline\n"
        "import ipubench.plugins.selection.datasets, ipubench.fixtures.pytest_fixtures\n"
        "print(sorted({'torch', 'tensorflow', 'onnx', 'PIL', 'tqdm'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE)
    assert result.stdout == b"[]\n"
