"""The sample images: like ImageNet's for a decoder, the same everywhere, made once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from ipubench.fixtures.case.errors import DataError
from ipubench.fixtures.data import cache
from ipubench.fixtures.data.cache import cache_dir
from ipubench.fixtures.data.images import samples
from ipubench.fixtures.data.images.feed import ImageFolder, find_images
from ipubench.fixtures.machine.locks import locked
from tests.support.harness import ROOT

if TYPE_CHECKING:
    from numpy.typing import NDArray


@pytest.fixture(scope="module")
def folder() -> ImageFolder:
    """Return the images that all tests of a run share: to draw them takes seconds."""
    return samples.sample_folder(cache_dir())


def test_layout_is_an_image_folder(folder: ImageFolder) -> None:
    found = find_images(Path(folder.root))
    assert found.paths == folder.paths
    assert len(folder.paths) == 64
    classes = [Path(path).parent.name for path in folder.paths]
    assert classes == [f"class{number}" for number in range(8) for _ in range(8)]
    assert folder.samples
    assert folder.describe()["source"] == "sample images made by the project"


def test_size_of_images_and_files(folder: ImageFolder) -> None:
    for path in folder.paths:
        with Image.open(path) as image:
            assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (500, 375))
    assert np.mean([os.path.getsize(path) for path in folder.paths]) == pytest.approx(
        110e3, rel=0.1
    )


def test_amplitude_falls_as_one_over_frequency(folder: ImageFolder) -> None:
    amplitude = np.mean(
        [np.abs(np.fft.fft2(_pixels(path).mean(axis=2))) for path in folder.paths[::4]], axis=0
    )
    frequency = np.hypot(np.fft.fftfreq(375)[:, None], np.fft.fftfreq(500)[None])
    band = (frequency > 0.01) & (frequency < 0.25)
    slope, _ = np.polyfit(np.log(frequency[band]), np.log(amplitude[band]), 1)
    assert slope == pytest.approx(-1, abs=0.1)


def test_colours_are_those_of_natural_images(folder: ImageFolder) -> None:
    pixels = np.concatenate([_pixels(path).reshape(-1, 3) for path in folder.paths[::8]]) / 255
    assert pixels.mean(axis=0) == pytest.approx(samples.MEAN_COLOUR, abs=0.02)
    assert pixels.std(axis=0) == pytest.approx([samples.CONTRAST] * 3, abs=0.03)
    correlation = np.corrcoef(pixels.T)
    # Neighbours in the spectrum resemble each other more than red and blue do.
    assert min(correlation[0, 1], correlation[1, 2]) > correlation[0, 2] > 0.7


def test_pixels_depend_on_the_index_alone() -> None:
    first = samples.sample_pixels(5)
    np.random.seed(1)
    assert np.array_equal(first, samples.sample_pixels(5))
    assert not np.array_equal(first, samples.sample_pixels(6))


def test_a_half_made_folder_is_remade_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "SAMPLE_CLASSES", 1)
    first = samples.sample_folder(tmp_path)
    before = [Path(path).read_bytes() for path in first.paths]
    for damage in (Path.unlink, lambda path: path.write_bytes(b"")):
        damage(Path(first.paths[3]))
        (tmp_path / f"{samples.NAME}.unfinished").mkdir()
        assert samples.sample_folder(tmp_path) == first
        assert [Path(path).read_bytes() for path in first.paths] == before
    assert {path.name for path in tmp_path.iterdir()} <= {samples.NAME, f"{samples.NAME}.lock"}


def test_complete_images_are_not_touched(folder: ImageFolder) -> None:
    before = [os.stat(path).st_mtime_ns for path in folder.paths]
    samples.sample_folder(Path(folder.root).parent)
    assert [os.stat(path).st_mtime_ns for path in folder.paths] == before


def test_two_processes_at_once_make_them_once(tmp_path: Path) -> None:
    program = (
        "import os, sys, pathlib\n"
        "from ipubench.fixtures.data.images import samples\n"
        "samples.SAMPLE_CLASSES = 1\n"
        "make = samples._make\n"
        "samples._make = lambda *args: (print('made'), make(*args))\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
        "folder = samples.sample_folder(pathlib.Path(sys.argv[1]))\n"
        "print(all(os.path.getsize(path) for path in folder.paths))\n"
    )
    root = str(ROOT)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            universal_newlines=True,
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:  # both go on now, and the eight images take a while
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    lines = [line for process in processes for line in process.communicate()[0].split()]
    assert sorted(lines) == ["True", "True", "made"]


def test_a_cache_that_cannot_be_written_is_one_clear_message(tmp_path: Path) -> None:
    (tmp_path / samples.NAME).write_text("in the way")
    with pytest.raises(DataError, match=r"cannot make the sample images in .*IPUBENCH_CACHE_DIR"):
        samples.sample_folder(tmp_path)


def test_waiting_for_another_process_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LOCK_SECONDS", 0.01)
    held = locked(tmp_path / f"{samples.NAME}.lock")
    with held, pytest.raises(DataError, match=r"waited 0.01 s for another process"):
        samples.sample_folder(tmp_path)


def _pixels(path: str) -> NDArray[np.float64]:
    with Image.open(path) as image:
        return np.asarray(image, dtype=np.float64)
