"""Small data sets: where they are found, messages for unusable ones, and their feeds."""

from __future__ import annotations

import json
import re
import struct
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator, List, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.bench_training.application.case import Application
from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.case.errors import DataError
from ipubench.fixtures.data.imagenet.shards import ShardSet
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.data.sources import source
from ipubench.fixtures.data.tfds import download
from ipubench.fixtures.data.tfds.feed import ApplicationFeed
from ipubench.fixtures.data.tfds.find import PreparedSplit, find_prepared
from ipubench.plugins.selection import datasets
from tests.support.command_line import given_options

SPLIT = PreparedSplit("/data/cifar10/3.0.2", "cifar10", "train", ("/data/x",), (7,))


def record(content: bytes) -> bytes:
    """Return a TFRecord with dummy checksums."""
    return struct.pack("<Q", len(content)) + bytes(4) + content + bytes(4)


def layout(folder: Path, name: str = "cifar10", lengths: Sequence[int] = (2, 1)) -> Path:
    """Write a version's folder with both splits; the records have no meaning."""
    folder.mkdir(parents=True)
    for split in ("train", "test"):
        for index, length in enumerate(lengths):
            path = folder / f"{name}-{split}.tfrecord-{index:05}-of-{len(lengths):05}"
            path.write_bytes(record(b"image") * length)
    shards = [str(length) for length in lengths]
    splits = [{"name": split, "shardLengths": shards} for split in ("test", "train")]
    (folder / "dataset_info.json").write_text(json.dumps({"name": name, "splits": splits}))
    return folder


# ------------------------------------------------------------------ on disk


@pytest.mark.parametrize(
    "below", ["cifar10/3.0.2", "tensorflow_datasets/cifar10/3.0.2", "", "1.0.0"]
)
def test_places(tmp_path: Path, below: str) -> None:
    folder = layout(tmp_path / "data" / below)
    layout(tmp_path / "data" / "mnist" / "3.0.1", "mnist")
    found = find_prepared(tmp_path / "data", "cifar10", "validation")
    assert found is not None
    assert (found.root, found.lengths) == (str(folder), (2, 1))
    assert [Path(path).name for path in found.paths] == [
        "cifar10-test.tfrecord-00000-of-00002",
        "cifar10-test.tfrecord-00001-of-00002",
    ]
    assert find_prepared(tmp_path / "data", "cifar100", "train") is None
    assert find_prepared(tmp_path / "nowhere", "cifar10", "train") is None


def test_the_highest_version_and_its_file_names(tmp_path: Path) -> None:
    for version in ("3.0.2", "10.0.0", "9.1.0"):
        layout(tmp_path / "cifar10" / version)
    # An interrupted download leaves this.
    layout(tmp_path / "cifar10" / "11.0.0.incompleteA1B2")
    (tmp_path / "cifar10" / "12.0.0").mkdir()
    folder = tmp_path / "cifar10" / "10.0.0"
    info = of_train(shardLengths=["3"], filepathTemplate="{SPLIT}-{SHARD_INDEX}.{FILEFORMAT}")
    (folder / "dataset_info.json").write_text(json.dumps({"name": "cifar10", **info}))
    (folder / "train-00000.tfrecord").write_bytes(record(b"x") * 3)
    found = find_prepared(tmp_path, "cifar10", "train")
    assert found is not None and found.paths == (str(folder / "train-00000.tfrecord"),)


def refused(root: Path) -> str:
    with pytest.raises(DataError) as caught:
        find_prepared(root, "cifar10", "train")
    return str(caught.value)


def test_missing_and_truncated_files(tmp_path: Path) -> None:
    folder = layout(tmp_path / "cifar10" / "3.0.2", lengths=(2, 2, 2))
    last = folder / "cifar10-train.tfrecord-00002-of-00003"
    last.write_bytes(last.read_bytes()[:-3])
    text = refused(tmp_path)
    assert re.search(rf"{last} .* record 1, .* 21\b", text) and f"remove {folder}" in text
    last.unlink()
    assert re.search(f"{folder} lacks 1 .* 3 train files: {last.name};", refused(tmp_path))


def of_train(**more: Any) -> Any:
    return {"splits": [{"name": "train", **more}]}


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("{", "cannot be used: "),
        ("[" * 999, "cannot be used: "),
        ("[]", "is not what"),
        ({"splits": [{}]}, "is not what"),
        ({"splits": 3}, "is not what"),
        ({"splits": {"name": "train"}}, "is not what"),
        (of_train(), "is not what"),
        (of_train(shardLengths=["x"]), "is not what"),
        (of_train(shardLengths=5), "is not what"),
        (of_train(shardLengths=["-1"]), "lists no images"),
        (of_train(shardLengths=[]), "lists no images"),
        (of_train(shardLengths=["1"], filepathTemplate="../x"), "other folders"),
        (of_train(shardLengths=["1"], filepathTemplate="{SPLIT:>999999999}"), "lacks 1 of its 1"),
        ({"splits": [{"name": "test", "shardLengths": ["1"]}]}, "has no split train"),
        ({"fileFormat": "array_record", "splits": []}, "TFRecords"),
    ],
)
def test_other_contents_of_the_metadata(tmp_path: Path, content: Any, what: str) -> None:
    folder = layout(tmp_path / "cifar10" / "3.0.2")
    if not isinstance(content, str):
        content = json.dumps({"name": "cifar10", **content})
    (folder / "dataset_info.json").write_text(content)
    text = refused(tmp_path)
    assert what in text and str(folder) in text


# ------------------------------------------------------------------ nothing on disk


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package tensorflow_datasets, here and in new processes, that writes one record."""
    place = tmp_path / "packages"
    place.mkdir()
    (place / "tensorflow_datasets.py").write_text(
        "import json, pathlib\n"
        "class builder:\n"
        "    def __init__(self, name, data_dir):\n"
        "        self.name, self.folder = name, pathlib.Path(data_dir, name, '3.0.2')\n"
        "    def download_and_prepare(self):\n"
        "        if self.name == 'mnist': raise OSError('the disk is full')\n"
        "        self.folder.mkdir(parents=True)\n"
        f"        one = {record(b'image')!r}\n"
        "        splits = [{'name': s, 'shardLengths': ['1']} for s in ('train', 'test')]\n"
        "        for s in ('train', 'test'):\n"
        "            name = f'{self.name}-{s}.tfrecord-00000-of-00001'\n"
        "            (self.folder / name).write_bytes(one)\n"
        "        info = {'name': self.name, 'splits': splits}\n"
        "        (self.folder / 'dataset_info.json').write_text(json.dumps(info))\n"
    )
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.setenv("PYTHONPATH", str(place))
    return place


@pytest.fixture
def reachable(monkeypatch: pytest.MonkeyPatch) -> Iterator[List[str]]:
    """A local server that stands for all sources, and the requests that it got."""
    asked: List[str] = []

    class Answers(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append(self.path)
            self.send_response(404 if "cifar100" in self.path else 200, "Answered \x1b[2J")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        for name in download.SOURCES:
            address = f"http://127.0.0.1:{server.server_port}/{name}"
            monkeypatch.setitem(download.SOURCES, name, address)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield asked
        server.shutdown()
        thread.join()


def test_a_named_folder_is_downloaded_once(
    tmp_path: Path, package: Path, reachable: List[str]
) -> None:
    root = tmp_path / "new" / "folder"
    for split in ("train", "validation", "train"):
        found = source(("prepared", "cifar10", split), None, {"DATASETS_DIR": str(root)})
        assert (found.root, found.samples) == (str(root / "cifar10" / "3.0.2"), False)
    assert reachable == ["/cifar10"]


def test_downloads_that_fail(
    tmp_path: Path, package: Path, reachable: List[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(dataset: str, folder: Path, said: str) -> None:
        with pytest.raises(DataError, match=said):
            source(("prepared", dataset, "train"), str(folder), {})

    fails("cifar100", tmp_path, r"HTTP Error 404: Answered \\x1b\[2J\)")
    fails("mnist", tmp_path, r"(?s)cannot make mnist in .*the disk is full")
    (tmp_path / "file").touch()
    fails("cifar10", tmp_path / "file", "cannot be written there: File exists; name a folder")
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        closed = f"http://127.0.0.1:{server.server_port}/cifar10"
    monkeypatch.setitem(download.SOURCES, "cifar10", closed)
    fails("cifar10", tmp_path, f"{closed} cannot be reached .*refused.*; copy a data set there")
    monkeypatch.setattr(download, "PACKAGE", "no_such_package")
    fails("cifar10", tmp_path, "`pip install tensorflow-datasets .*` enables the download")


def test_the_folder_of_the_package_needs_no_name(tmp_path: Path) -> None:
    layout(tmp_path / "cifar10" / "3.0.2")
    found = source(("prepared", "cifar10", "train"), None, {"TFDS_DATA_DIR": str(tmp_path)})
    assert found.root == str(tmp_path / "cifar10" / "3.0.2")


# ------------------------------------------------------------------ feeds


def test_feeds_follow_the_configuration() -> None:
    config = Application(
        name="x",
        data="real",
        micro_batch_size=8,
        validation_micro_batch_size=100,
        eight_bit_transfer=True,
        accelerator_side_preprocess=True,
        shuffle=False,
        seed=5,
        pipeline_num_parallel=3,
    )
    asked: List[Any] = []

    def find(kind: str, dataset: str, split: str) -> PreparedSplit:
        assert kind == "prepared"
        asked.append((dataset, split))
        return SPLIT

    data = Data(find, (1, 4))
    later = config.validation_feed(data)
    feed = config.feed(data)
    assert asked == [("cifar10", "train")]
    assert (feed.batch_size, feed.training, feed.source) == (8, True, SPLIT)
    assert (feed.eight_bit, feed.normalization, feed.preprocessing) == (True, "device", "cifar10")
    assert (feed.shuffle, feed.seed, feed.parallel) == (False, 5, 3)
    assert (feed.image_shape, feed.image_size, feed.classes) == ((32, 32, 3), 32, 10)
    assert feed.describe()["part"] == "2 of 4"
    validation = later()
    assert asked[1:] == [("cifar10", "validation")]
    assert (validation.batch_size, validation.training, validation.total) == (100, False, 10000)


def test_without_training_the_measured_feed_is_the_validation_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "validation-00000-of-00001"
    path.write_bytes(record(b"x") * 5)
    shards = ShardSet(str(tmp_path), "validation", (str(path),))
    config = Application(name="x", data="real", dataset="imagenet", training=False)
    feed = config.feed(Data(lambda kind, split: {"validation": shards}[split]))
    assert (feed.training, feed.shards, feed.cache) == (False, shards, True)
    assert (feed.examples, feed.normalization, feed.image_size) == (5, "host", 224)
    assert feed.describe()["source"] == str(tmp_path)
    # Files larger than a quarter of the memory do not stay in it.
    for total, cached in ((4 * shards.size(), True), (4 * shards.size() - 1, False)):
        monkeypatch.setattr("ipubench.fixtures.machine.memory.total", lambda total=total: total)
        feed = config.feed(Data(lambda kind, split: {"validation": shards}[split]))
        assert feed.cache == cached


def test_without_real_data_nothing_is_looked_up() -> None:
    def no_images(*names: str) -> Any:
        raise AssertionError("not to be searched for")

    for mode in ("synthetic", "generated"):
        feed = Application(name="x", data=mode, dataset="mnist").feed(Data(no_images))
        assert (feed.source, feed.examples) == (None, 60000)
        assert feed.describe()["dataset"] == "mnist"


@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    instances=st.integers(1, 8),
    batch=st.integers(1, 9),
    by_shard=st.booleans(),
)
def test_passes_of_instances_cover_all_images(
    counts: List[int], instances: int, batch: int, by_shard: bool
) -> None:
    class Shards(ShardSet):
        def images_per_instance(self, instances: int) -> List[int]:
            return [sum(counts[first::instances]) for first in range(instances)]

    source: Any = PreparedSplit("", "cifar10", "validation", (), tuple(counts))
    if by_shard:
        source = Shards("", "validation", ())
    feeds = [
        ApplicationFeed(
            *("real", batch, (32, 32, 3), 10),
            training=True,
            dataset="cifar10",
            **{"shards" if by_shard else "prepared": source},
            instance=index,
            instances=instances,
        )
        for index in range(instances)
    ]
    assert sum(feed.examples for feed in feeds) == feeds[0].all_examples == sum(counts)
    (batches,) = {feed.batches_per_epoch for feed in feeds}
    assert all(feed.examples <= batches * batch for feed in feeds)
    # One batch fewer would not suffice.
    assert max(feed.examples for feed in feeds) > (batches - 1) * batch


def test_problems_are_reported_before_the_first_case(tmp_path: Path) -> None:
    folder = layout(tmp_path / "cifar10" / "3.0.2", lengths=(4,))
    case = Case(Application(name="x", data="real"), id="x")
    data = SimpleNamespace(name2fixturedefs={"data": [SimpleNamespace(func=source)]})
    item = SimpleNamespace(
        callspec=SimpleNamespace(params={"ipubench_case": case}), _fixtureinfo=data
    )
    option = given_options(dataset_dir=str(tmp_path))
    config: Any = SimpleNamespace(option=option, stash=pytest.Stash())
    items: List[Any] = [item]
    datasets.find_data(config, items)
    lines = datasets.which_data(config)
    assert all(line.startswith("real data: 4 ") for line in lines)
    where = [line.split(" of ", 1)[1] for line in lines]
    assert where == [f"{split} of cifar10 in {folder}" for split in ("train", "validation")]
