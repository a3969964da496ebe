"""The `data` fixture: from a configuration and the command line to a feed."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import List

import numpy as np
import pytest

from ipubench.fixtures.case.errors import DataError
from ipubench.fixtures.data.feed_options import ImageOptions
from ipubench.fixtures.data.images import samples
from ipubench.fixtures.data.images.feed import ImageFeed, ImageFolder
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.data.sources import source
from tests.support.harness import ROOT, WITHOUT_OTHERS

pytest_plugins = "pytester"

SIZES = (4, 380)  # images per batch, pixels per side
FOLDER = ImageFolder("/data", ("/data/a.jpg",))


@dataclass(frozen=True)
class Config(ImageOptions):
    data: str = "real"
    dataloader_worker: int = 3


@pytest.fixture
def data() -> Data:
    return Data(lambda kind: FOLDER)


def test_a_feed_follows_the_configuration(data: Data) -> None:
    feed = data.images(Config(), *SIZES)
    assert (feed.mode, feed.batch_size, feed.image_size) == ("real", 4, 380)
    assert (feed.eight_bit, feed.normalization, feed.workers) == (False, "host", 3)
    assert feed.folder is FOLDER


def test_each_of_several_instances_reads_its_own_images() -> None:
    folder = ImageFolder("/data", ("a", "b", "c", "d", "e"))

    def read_by(instance: int, instances: int) -> ImageFolder:
        found = Data(lambda kind: folder, (instance, instances)).images(Config(), *SIZES).folder
        assert found is not None
        return found

    assert [read_by(i, 2).paths for i in range(2)] == [("a", "c", "e"), ("b", "d")]
    assert read_by(1, 2).describe() == {"source": "/data", "images": 2, "part": "2 of 2"}
    assert read_by(5, 6) is folder


def test_defaults_and_synonyms(data: Data) -> None:
    for location, means in (("ipu", "device"), ("device", "device"), ("none", "none")):
        config = Config(normalization_location=location)
        assert data.images(config, *SIZES).normalization == means
    feed = data.images(Config(dataloader_worker=0), *SIZES)
    assert feed.workers == min(32, len(os.sched_getaffinity(0)))
    for mode in ("synthetic", "generated"):
        feed = data.images(Config(data=mode), *SIZES)
        assert (feed.folder, feed.workers) == (None, 0)


def test_integers_are_normalised_on_the_device_with_a_warning(data: Data) -> None:
    with pytest.warns(UserWarning, match=r"normalization_location is device, not host"):
        feed = data.images(Config(eight_bit_io=True), *SIZES)
    assert (feed.eight_bit, feed.normalization) == (True, "device")


def test_generated_images_are_fixed() -> None:
    feed = ImageFeed("generated", batch_size=2, image_size=8)
    images = feed.generated(batches=3)
    assert images.shape == (6, 3, 8, 8)
    assert images.dtype == np.uint8
    assert np.array_equal(images, feed.generated(batches=3))
    assert images.max() <= 254


def test_each_corrupt_file_is_kept_once() -> None:
    folder = ImageFolder("/data", ("/data/a.jpg", "/data/b.jpg"))
    feed = ImageFeed("real", batch_size=1, folder=folder)
    feed.note_corrupt(["/data/b.jpg"])
    feed.note_corrupt(["/data/b.jpg", "/data/a.jpg"])
    facts = feed.describe()
    assert facts["corrupt"] == ["/data/b.jpg", "/data/a.jpg"]
    assert "task_images" not in facts
    assert dataclasses.replace(feed, task_images=4).describe() == {**facts, "task_images": 4}


def test_closing_closes_the_feeds_once_and_the_last_first(data: Data) -> None:
    closed: List[str] = []
    feed = data.images(Config(), *SIZES)
    feed.on_close(lambda: closed.append("first"))
    feed.on_close(lambda: closed.append("second"))
    data.images(Config(), *SIZES).on_close(lambda: closed.append("other"))
    for _ in range(2):
        data.close()
        feed.close()
    assert closed == ["other", "second", "first"]


def test_the_option_overrides_the_environment_which_overrides_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "SAMPLE_CLASSES", 1)
    monkeypatch.setattr(samples, "PER_CLASS", 1)
    environ = {"IPUBENCH_CACHE_DIR": str(tmp_path / "cache")}
    for name in ("option", "variable"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.jpg").touch()
    named = {**environ, "DATASETS_DIR": str(tmp_path / "variable")}
    assert source(("images",), str(tmp_path / "option"), named).root == str(tmp_path / "option")
    assert source(("images",), None, named).root == str(tmp_path / "variable")
    assert not (tmp_path / "cache").exists()
    folder = source(("images",), None, {**environ, "DATASETS_DIR": ""})
    assert folder.samples and all(map(os.path.isfile, folder.paths))


def test_messages_name_the_source_of_the_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"^DATASETS_DIR .*{tmp_path}: no image"):
        source(("images",), None, {"DATASETS_DIR": str(tmp_path)})
    with pytest.raises(DataError, match=r"^--dataset-dir= names no folder"):
        source(("images",), "", {})


CASE = """
    from ipubench.fixtures.data.feed_options import ImageOptions

    def test_case(data):
        feed = data.images(ImageOptions(data="real"), 1, 32)
        print("images in", feed.folder.root)
        feed.on_close(lambda: print("closed"))
"""


@pytest.mark.parametrize("option", [False, True])
def test_the_fixture_and_its_teardown(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: bool
) -> None:
    (tmp_path / "x.jpg").touch()
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(CASE)
    words = ["-p", "ipubench.fixtures.pytest_fixtures"]
    if option:
        words.append(f"--dataset-dir={tmp_path}")
        pytester.makeconftest(
            "from ipubench.plugins.command_line.registration import add_options\n"
            "def pytest_addoption(parser, pluginmanager):\n"
            "    add_options(parser, pluginmanager.get_plugin('pytestconfig'))\n"
        )
    else:
        monkeypatch.setenv("DATASETS_DIR", str(tmp_path))
    result = pytester.runpytest_subprocess(*WITHOUT_OTHERS, "-s", *words)
    result.stdout.fnmatch_lines([f"*images in {tmp_path}", "*closed*"])
    result.assert_outcomes(passed=1)
