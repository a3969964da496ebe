"""The `data` fixture: from a configuration and the command line to a feed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List

import pytest

from ipubench.fixtures.case.errors import DataError
from ipubench.fixtures.data.feeds import TensorSpec
from ipubench.fixtures.data.images import samples
from ipubench.fixtures.data.images.feed import ImageFolder
from ipubench.fixtures.data.options import ImageOptions
from ipubench.fixtures.data.provider import Data, default_workers
from ipubench.fixtures.data.sources import source
from tests.support.harness import ROOT, WITHOUT_OTHERS

pytest_plugins = "pytester"

SIZES = (4, 380)  # images of a batch, pixels of a side
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


@pytest.mark.parametrize(
    ("location", "means"), [("ipu", "device"), ("device", "device"), ("none", "none")]
)
def test_places_of_normalisation(data: Data, location: str, means: str) -> None:
    assert data.images(Config(normalization_location=location), *SIZES).normalization == means


def test_integers_are_normalised_on_the_device_with_a_warning(data: Data) -> None:
    with pytest.warns(UserWarning, match=r"normalization_location is device, not host"):
        feed = data.images(Config(eight_bit_io=True), *SIZES)
    assert (feed.eight_bit, feed.normalization) == (True, "device")


def test_workers_default_to_the_cpus_of_the_process(data: Data) -> None:
    feed = data.images(Config(dataloader_worker=0), *SIZES)
    assert feed.workers == default_workers() == min(32, len(os.sched_getaffinity(0)))


@pytest.mark.parametrize("mode", ["synthetic", "generated"])
def test_images_are_searched_for_real_data_only(mode: str) -> None:
    def find(*key: str) -> ImageFolder:
        raise AssertionError("not to be called")

    feed = Data(find).images(Config(data=mode), *SIZES)
    assert (feed.folder, feed.workers) == (None, 0)


def test_arrays(data: Data) -> None:
    spec = TensorSpec("x", (2, 3))
    feed = data.arrays(Config(data="generated"), [spec], period=7)
    assert (feed.mode, feed.specs, feed.period, feed.zero_values) == (
        "generated",
        (spec,),
        7,
        False,
    )
    assert data.arrays(Config(data="synthetic"), [spec], zero_values=True).zero_values


def test_closing_closes_the_feeds(data: Data) -> None:
    closed: List[str] = []
    data.images(Config(), *SIZES).on_close(lambda: closed.append("one"))
    data.images(Config(), *SIZES).on_close(lambda: closed.append("other"))
    data.close()
    assert sorted(closed) == ["one", "other"]


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dict[str, str]:
    """An environment with a cache of its own, and few samples."""
    monkeypatch.setattr(samples, "SAMPLE_CLASSES", 1)
    return {"IPUBENCH_CACHE_DIR": str(tmp_path / "cache")}


def test_the_option_comes_before_the_environment(tmp_path: Path, environ: Dict[str, str]) -> None:
    for name in ("option", "variable"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.jpg").touch()
    environ["DATASETS_DIR"] = str(tmp_path / "variable")
    assert source(("images",), str(tmp_path / "option"), environ).root == str(tmp_path / "option")
    assert source(("images",), None, environ).root == str(tmp_path / "variable")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("unset", [{}, {"DATASETS_DIR": ""}])
def test_samples_come_last(environ: Dict[str, str], unset: Dict[str, str]) -> None:
    folder = source(("images",), None, {**environ, **unset})
    assert folder.samples
    assert all(map(os.path.isfile, folder.paths))


def test_messages_name_the_source_of_the_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^DATASETS_DIR is set to .*: no image found"):
        source(("images",), None, {"DATASETS_DIR": str(tmp_path)})
    with pytest.raises(DataError, match=r"^--dataset-dir= names no folder"):
        source(("images",), "", {})


CASE = """
    from ipubench.fixtures.data.options import ImageOptions

    def test_case(data):
        feed = data.images(ImageOptions(data="real"), 1, 32)
        print("images in", feed.folder.root)
        feed.on_close(lambda: print("closed"))
"""


def test_fixture_without_a_plugin_and_its_teardown(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.jpg").touch()
    monkeypatch.setenv("DATASETS_DIR", str(tmp_path))
    pytester.makepyfile(CASE)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    result = pytester.runpytest_subprocess(
        *WITHOUT_OTHERS, "-s", "-p", "ipubench.fixtures.pytest_fixtures"
    )
    result.stdout.fnmatch_lines([f"*images in {tmp_path}", "*closed*"])
    result.assert_outcomes(passed=1)


def test_fixture_reads_the_option(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "x.jpg").touch()
    pytester.makepyfile(CASE)
    plugins = (
        "-p",
        "ipubench.fixtures.pytest_fixtures",
        "-p",
        "ipubench.plugins.command_line.options",
    )
    words = (*WITHOUT_OTHERS, "-s", *plugins, f"--dataset-dir={tmp_path}")
    result = pytester.runpytest_subprocess(*words)
    result.stdout.fnmatch_lines([f"*images in {tmp_path}"])


def test_importing_the_fixtures_is_light() -> None:
    program = (
        "import sys, ipubench.fixtures.pytest_fixtures\n"
        "heavy = {'torch', 'tensorflow', 'onnx', 'PIL'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    root = ROOT
    result = subprocess.run([sys.executable, "-c", program], cwd=root, stdout=subprocess.PIPE)
    assert result.stdout == b"[]\n"
