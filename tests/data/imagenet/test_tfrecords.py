"""TFRecords on disk, the images they are built from, and the feed that reads them."""

from __future__ import annotations

import errno
import os
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
from ipubench.fixtures.data.imagenet.feed import ImageNetFeed
from ipubench.fixtures.data.imagenet.shards import (
    SHARD_NAME,
    ShardSet,
    fault_of_file,
    find_shards,
    shard_name,
)
from ipubench.fixtures.data.options import RecordOptions
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.data.sources import found_key, source
from ipubench.plugins.selection import datasets
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


def test_a_pipe_is_no_shard(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / shard_name("train", 0, 1))
    with pytest.raises(DataError):
        find_shards(tmp_path, "train")
    assert fault_of_file(str(tmp_path / shard_name("train", 0, 1)))


def test_a_shard_that_is_one_large_hole_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / shard_name("train", 0, 1)
    with path.open("wb") as file:
        file.truncate(1 << 42)
    assert "record 0, at byte 0" in fault_of_file(str(path))


@pytest.mark.parametrize("place", [".", "imagenet-data", "a/imagenet-data", "a/b/imagenet-data"])
def test_places(tmp_path: Path, place: str) -> None:
    touch(tmp_path, *shards("train", 3, place), *shards("validation", 2, place), "labels.txt")
    found = find_shards(tmp_path, "train")
    assert [Path(path).name for path in found.paths] == [
        shard_name("train", i, 3) for i in range(3)
    ]
    assert found.root == str(tmp_path / place)
    assert len(find_shards(tmp_path, "validation").paths) == 2
    assert found.describe() == {"source": found.root, "split": "train", "shards": 3}


def test_the_nearest_folder_is_taken(tmp_path: Path) -> None:
    touch(tmp_path, *shards("train", 1), *shards("train", 2, "imagenet-data"))
    assert find_shards(tmp_path, "train").root == str(tmp_path)


@tries(30)
@given(split=st.sampled_from(["train", "validation"]), total=st.integers(1, 40), data=st.data())
def test_every_shard_is_found_in_order_and_a_missing_one_is_named(
    split: str, total: int, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = touch(Path(folder), *shards(split, total))
        found = find_shards(root, split)
        parsed = [SHARD_NAME.fullmatch(Path(path).name) for path in found.paths]
        assert [(m["split"], int(m["index"]), int(m["total"])) for m in parsed if m] == [
            (split, index, total) for index in range(total)
        ]
        if total == 1:
            return
        gone = data.draw(st.sets(st.integers(0, total - 1), min_size=1, max_size=total - 1))
        for index in gone:
            (root / shard_name(split, index, total)).unlink()
        with pytest.raises(DataError) as error:
            find_shards(root, split)
        assert f"lacks {len(gone)} of its {total} {split} files" in str(error.value)
        for index in sorted(gone)[:5]:
            assert shard_name(split, index, total) in str(error.value)
        assert (f"and {len(gone) - 5} more" in str(error.value)) == (len(gone) > 5)


def test_two_totals_in_one_folder(tmp_path: Path) -> None:
    touch(tmp_path, *shards("train", 2), *shards("train", 3))
    with pytest.raises(DataError, match=r"2 sets, -of-00002 and -of-00003: leave the files of one"):
        find_shards(tmp_path, "train")


def test_an_index_beyond_the_total(tmp_path: Path) -> None:
    touch(tmp_path, *shards("train", 2), "train-00002-of-00002")
    with pytest.raises(DataError, match=r"has train-00002-of-00002, but numbers end at 1"):
        find_shards(tmp_path, "train")


def test_an_empty_folder_says_what_was_looked_for_and_how_to_build(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        find_shards(tmp_path, "train")
    for part in (
        "train-NNNNN-of-MMMMM",
        "imagenet-data",
        "ipubench.fixtures.data.build_tfrecords",
    ):
        assert part in str(error.value)


@pytest.mark.parametrize("name", ["n01/a.JPEG", "val/n01/a.jpg", "train/n01/a.png"])
def test_images_instead_of_shards_say_how_to_build(tmp_path: Path, name: str) -> None:
    touch(tmp_path, name)
    with pytest.raises(DataError, match=rf"build_tfrecords {tmp_path} TARGET` makes them"):
        find_shards(tmp_path, "validation")


def test_the_other_split_alone(tmp_path: Path) -> None:
    touch(tmp_path, *shards("train", 2))
    with pytest.raises(DataError, match=r"has train files only: no validation-.*--split valid"):
        find_shards(tmp_path, "validation")


def test_no_directory(tmp_path: Path) -> None:
    touch(tmp_path, "file")
    with pytest.raises(DataError, match=r"no such directory: .*gone"):
        find_shards(tmp_path / "gone", "train")
    with pytest.raises(DataError, match=r"not a directory: .*file"):
        find_shards(tmp_path / "file", "train")


def test_a_name_that_no_file_system_takes(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read .*: File name too long; name a folder"):
        find_shards(tmp_path / ("x" * 300), "train")
    with pytest.raises(BuildUsageError, match=r"cannot read .*: File name too long; SOURCE"):
        find_sources(tmp_path / ("x" * 300), "both", NO_COUNT)


def refuse(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Make a folder unreadable, as for a user who is not root; its entries cannot be looked up."""
    inside = f"{folder}{os.sep}"

    def refusing(function: Any, listed: bool) -> Any:
        def call(path: Any = ".", *args: Any, **options: Any) -> Any:
            text = str(path)
            if text.startswith(inside) or (listed and text == str(folder)):
                raise PermissionError(errno.EACCES, "Permission denied", text)
            return function(path, *args, **options)

        return call

    monkeypatch.setattr(os, "stat", refusing(os.stat, False))
    monkeypatch.setattr(os, "scandir", refusing(os.scandir, True))
    monkeypatch.setattr(os, "listdir", refusing(os.listdir, True))


def test_unreadable_neighbours_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "private").mkdir()
    touch(tmp_path, *shards("train", 2, "set/imagenet-data"))
    refuse(monkeypatch, tmp_path / "private")
    assert find_shards(tmp_path, "train").root == str(tmp_path / "set/imagenet-data")


def test_an_unreadable_data_set_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, *shards("train", 2, "set"), "images/train/a/1.jpg", "images/train/b/1.jpg")
    refuse(monkeypatch, tmp_path / "set")
    with pytest.raises(DataError, match=r"cannot read .*set: Permission denied; name a folder"):
        find_shards(tmp_path / "set", "train")
    with pytest.raises(BuildUsageError, match=r"cannot read .*set: Permission denied; SOURCE"):
        find_sources(tmp_path / "set", "train", NO_COUNT)
    monkeypatch.undo()
    refuse(monkeypatch, tmp_path / "images/train/b")
    with pytest.raises(BuildUsageError, match=r"cannot read .*train/b: Permission denied"):
        find_sources(tmp_path / "images", "train", NO_COUNT)


# ------------------------------------------------------------------ what they are built from


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


def test_class_folders_with_blanks(tmp_path: Path) -> None:
    touch(tmp_path, "train/golden retriever/1.jpg", "train/ant/1.jpg")
    (tmp_path / "labels.txt").write_text("golden retriever\nant\n")
    (source,) = find_sources(tmp_path, "train", NO_COUNT, tmp_path / "labels.txt")
    assert {image.name: image.label for image in source.images} == {
        "golden retriever/1.jpg": 0,
        "ant/1.jpg": 1,
    }


def both(root: Path, *options: Any) -> List[SplitSource]:
    return find_sources(root, "both", NO_COUNT, *options)


@pytest.mark.parametrize("validation", ["val", "validation"])
def test_both_splits_have_the_labels_of_training(tmp_path: Path, validation: str) -> None:
    touch(tmp_path, "train/a/1.jpg", "train/b/1.jpg", "train/c/1.jpg", f"{validation}/c/1.jpg")
    train, valid = both(tmp_path)
    assert (train.split, valid.split) == ("train", "validation")
    assert [(image.name, image.label) for image in valid.images] == [("c/1.jpg", 2)]
    assert train.classes == valid.classes == Classes(("a", "b", "c"), ("a", "b", "c"))


def test_every_image_is_in_one_shard(tmp_path: Path) -> None:
    touch(tmp_path, *(f"train/{c}/{i}.jpg" for c in "abc" for i in range(7)))
    (source,) = find_sources(tmp_path, "train", {"train": 4, "validation": None})
    parts = [source.shard(index) for index in range(4)]
    assert sorted(map(len, parts)) == [5, 5, 5, 6]
    assert sorted(image for part in parts for image in part) == sorted(source.images)
    assert [image.label for image in source.images] != sorted(i.label for i in source.images)
    (again,) = find_sources(tmp_path, "train", {"train": 4, "validation": None})
    assert again == source


def test_published_numbers_of_shards_as_far_as_there_are_images(tmp_path: Path) -> None:
    touch(tmp_path, *(f"train/a/{i}.jpg" for i in range(1030)), "val/a/1.jpg")
    assert [source.shards for source in both(tmp_path)] == [1024, 1]


def test_challenge_layout_with_its_table_of_validation_classes(tmp_path: Path) -> None:
    place = "ILSVRC/Data/CLS-LOC"
    touch(tmp_path, f"{place}/train/n01/t.JPEG", f"{place}/train/n02/t.JPEG")
    touch(tmp_path, f"{place}/val/v_1.JPEG", f"{place}/val/v_2.JPEG")
    table = tmp_path / "LOC_val_solution.csv"
    table.write_text("ImageId,PredictionString\nv_2,n01 1 2 3 4\nv_1,n02 1 2 3 4 n02 5 6 7 8\n")
    names = tmp_path / "LOC_synset_mapping.txt"
    names.write_text("n01 tench, Tinca tinca\nn02 goldfish\n")
    _, valid = both(tmp_path, names, table)
    assert {image.name: image.label for image in valid.images} == {"v_1.JPEG": 1, "v_2.JPEG": 0}
    assert valid.classes.texts == ("tench, Tinca tinca", "goldfish")
    table.write_text("ImageId,PredictionString\nv_2,n01 1 2 3 4\nv_1,\n")
    with pytest.raises(BuildUsageError, match=r"does not say the class of v_1\.JPEG"):
        both(tmp_path, names, table)
    lines = tmp_path / "classes.txt"
    lines.write_text("n01\nn02\n")
    _, valid = both(tmp_path, None, lines)
    assert {image.name: image.label for image in valid.images} == {"v_1.JPEG": 0, "v_2.JPEG": 1}
    lines.write_text("n01\n")
    with pytest.raises(BuildUsageError, match=r"has 1 lines and .* 2 images"):
        both(tmp_path, None, lines)
    lines.write_text("n01\nn03\n")
    with pytest.raises(BuildUsageError, match=r"n03 is no class of the 2 labels"):
        both(tmp_path, None, lines)


@pytest.mark.parametrize(
    ("names", "split", "message"),
    [
        (["a/1.jpg"], "both", r"one tree of class folders, say which split"),
        (["train/a/1.jpg"], "both", r"no validation images: looked for val, .*--split train"),
        (["train/a/1.jpg", "val/b/1.jpg"], "both", r"class b of .*val is not among the 1 labels"),
        (["train/a/1.jpg", "val/1.jpg"], "both", r"1 images lie in it .*--validation-labels"),
        (["train/a/notes.txt"], "train", r"no image found in class folders of .*train"),
        (["1.jpg"], "train", r"has no class folders"),
        ([os.fsdecode(b"train/\xe9/1.jpg")], "train", r"'\\udce9' of .*train has a name .* UTF-8"),
        (["train/a\rb/1.jpg"], "train", r"'a\\rb' of .*train has a name of several lines.*rename"),
    ],
)
def test_sources_that_cannot_be_built(
    tmp_path: Path, names: List[str], split: str, message: str
) -> None:
    touch(tmp_path, *names)
    with pytest.raises(BuildUsageError, match=message):
        find_sources(tmp_path, split, NO_COUNT)


def test_more_shards_than_images(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg")
    with pytest.raises(BuildUsageError, match=r"--train-shards=2 is more than the 1 images"):
        find_sources(tmp_path, "train", {"train": 2, "validation": None})


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "is empty"), ("a\na\n", "line 2 is a for the second"), ("a\n\nb\n", "line 2 is empty")],
)
def test_labels_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    touch(tmp_path, "train/a/1.jpg")
    (tmp_path / "labels").write_text(text)
    with pytest.raises(BuildUsageError, match=message):
        find_sources(tmp_path, "train", NO_COUNT, tmp_path / "labels")


# ------------------------------------------------------------------ the feed


@dataclass(frozen=True)
class Config(RecordOptions):
    data: str = "real"
    mode: str = "training"
    eight_bit_io: bool = True
    normalise_input: bool = True
    pipeline_num_parallel: int = 8
    seed: int = 7


SIZES = (4, 32)  # images of a batch, pixels of a side


def data_of(asked: List[str]) -> Data:
    def find(kind: str, split: str) -> ShardSet:
        assert kind == "records"
        asked.append(split)
        return SHARDS

    return Data(find)


@pytest.mark.parametrize(
    ("mode", "split"),
    [("training", "train"), ("inference", "validation"), ("evaluation", "validation")],
)
def test_a_feed_follows_the_configuration(mode: str, split: str) -> None:
    asked: List[str] = []
    feed = data_of(asked).records(Config(mode=mode), *SIZES)
    assert asked == [split]
    assert (feed.batch_size, feed.image_size, feed.parallel, feed.seed) == (4, 32, 8, 7)
    assert (feed.training, feed.cache) == (mode == "training", True)
    assert feed.shards is SHARDS


def test_training_with_the_preprocessing_of_validation() -> None:
    asked: List[str] = []
    feed = data_of(asked).records(Config(), *SIZES, augmented=False)
    assert (asked, feed.training) == (["train"], False)


@pytest.mark.parametrize("mode", ["synthetic", "generated"])
def test_shards_are_searched_for_real_data_only(mode: str) -> None:
    asked: List[str] = []
    feed = data_of(asked).records(Config(data=mode), *SIZES)
    assert (asked, feed.shards) == ([], None)


def test_integers_are_normalised_on_the_device_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"the device normalises them, not the host"):
        feed = data_of([]).records(Config(hostside_norm=True), *SIZES)
    assert feed.normalization == "device"
    floats = data_of([]).records(Config(hostside_norm=True, eight_bit_io=False), *SIZES)
    assert floats.normalization == "host"


def test_generated_batch_is_one_image_and_one_label() -> None:
    images, labels = ImageNetFeed("generated", 3, (64, 64, 3), classes=10).generated()
    assert images.shape == (3, 64, 64, 3)
    assert [images.dtype, labels.dtype] == [np.dtype("uint8"), np.dtype("int32")]
    assert (images == images[0]).all()
    assert len(set(labels)) == 1
    assert 0 <= labels[0] <= 8
    exact, _ = ImageNetFeed("generated", 1, eight_bit=False).generated()
    assert exact.dtype == np.float32
    assert 7 <= exact.min() < 8
    assert 246 < exact.max() <= 247
    # The deviation of a normal distribution that is cut off at two of them is 0.88 of it.
    assert exact.mean() == pytest.approx(127, abs=0.5)
    assert exact.std() == pytest.approx(60 * 0.8796, abs=0.3)


def test_what_the_record_says() -> None:
    facts = ImageNetFeed("real", 1, shards=SHARDS, training=True).describe()
    assert facts["source"] == "/data"
    assert (facts["transfer"], facts["augmented"], facts["parallel"]) == (
        "uint8",
        True,
        48,
    )
    assert "seed 0" in ImageNetFeed("generated", 1).describe()["values"]
    assert ImageNetFeed("synthetic", 1).describe()["values"] == "random, made on the device"


# ------------------------------------------------------------------ where they come from


def test_the_option_comes_before_the_environment(tmp_path: Path) -> None:
    for name in ("option", "variable"):
        touch(tmp_path / name, *shards("train", 1))
    environ = {"DATASETS_DIR": str(tmp_path / "variable")}
    option = str(tmp_path / "option")
    assert source(("records", "train"), option, environ).root == option
    assert source(("records", "train"), None, environ).root == environ["DATASETS_DIR"]
    with pytest.raises(DataError, match=r"^DATASETS_DIR is set to .*gone: no such directory"):
        source(("records", "train"), None, {"DATASETS_DIR": str(tmp_path / "gone")})


OURS = SimpleNamespace(func=source)  # what pytest says of a fixture


def item(fixture: str, mode: str, data: str = "real") -> Any:
    case = Case(CaseConfig(mode=mode, data=data), id=f"{fixture}-{mode}")
    return SimpleNamespace(
        callspec=SimpleNamespace(params={"ipubench_case": case}),
        _fixtureinfo=SimpleNamespace(name2fixturedefs={fixture: [OURS], "data": [OURS]}),
    )


def judge(items: List[Any], folder: Any, **options: bool) -> Any:
    option = SimpleNamespace(
        **{"collectonly": False, "describe": False, "dry_run": False, **options},
        dataset_dir=folder and str(folder),
    )
    config = SimpleNamespace(option=option, stash=pytest.Stash())
    session: Any = SimpleNamespace(items=items, config=config)
    datasets.find_data(session)
    return config


def test_images_are_judged_for_cases_that_read_images(tmp_path: Path) -> None:
    touch(tmp_path, "1.jpg")
    theirs = item("tensorflow", "training")  # a project's own fixture is the last of its name
    theirs._fixtureinfo.name2fixturedefs["data"] = [OURS, SimpleNamespace(func=item, argnames=())]
    generated = item("tensorflow", "training", "generated")
    config = judge([item("pytorch", "inference"), generated, theirs], tmp_path)
    assert list(config.stash[found_key]) == [("images",)]
    assert config.stash[found_key]["images",].root == str(tmp_path)


def test_tfrecords_are_judged_for_the_splits_that_are_read(tmp_path: Path) -> None:
    touch(tmp_path, *shards("train", 2))
    config = judge(
        [item("tensorflow", "training"), item("pytorch", "inference", "synthetic")], tmp_path
    )
    assert list(config.stash[found_key]) == [("records", "train")]
    lines = datasets.which_data(config)
    assert lines == [f"real data: 2 TFRecord files of train in {tmp_path}"]
    with pytest.raises(pytest.UsageError, match=r"has train files only"):
        judge([item("tensorflow", "inference")], tmp_path)


def test_images_alone_end_a_run_of_cases_that_read_tfrecords(tmp_path: Path) -> None:
    touch(tmp_path, "val/n01/1.jpg")
    with pytest.raises(pytest.UsageError, match=r"build_tfrecords .* makes them"):
        judge([item("tensorflow", "inference"), item("pytorch", "inference")], tmp_path)
    judge([item("tensorflow", "inference")], tmp_path, dry_run=True)


def test_samples_are_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATASETS_DIR", raising=False)
    monkeypatch.setenv("IPUBENCH_CACHE_DIR", str(tmp_path / "cache"))
    config = judge([item("tensorflow", "training")], None)
    (line,) = datasets.which_data(config)
    assert "sample images made by ipubench, as TFRecords, not a data set" in line
    assert config.stash[found_key] == {("records", "train"): None}


def test_nothing_here_imports_a_framework() -> None:
    program = (
        "import sys, ipubench.fixtures.data.provider, ipubench.fixtures.data.imagenet.pipeline\n"
        "import ipubench.plugins.selection.datasets\n"
        "import ipubench.fixtures.data.imagenet.shards\n"
        "print(sorted({'torch', 'tensorflow', 'PIL', 'tqdm'} & set(sys.modules)))"
    )
    root = ROOT
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=root, stdout=subprocess.PIPE, env=dict(os.environ)
    )
    assert result.stdout == b"[]\n"
