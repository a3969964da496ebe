"""The sample images: as hard to decode as ImageNet's, the same everywhere, drawn once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, List, Optional

import numpy as np
import pytest
from PIL import Image

from ipubench.fixtures.case.errors import DataError
from ipubench.fixtures.data import cache
from ipubench.fixtures.data.cache import SAMPLES, cache_dir
from ipubench.fixtures.data.images import samples
from ipubench.fixtures.data.images.feed import ImageFolder, find_images
from ipubench.fixtures.machine.locks import locked

if TYPE_CHECKING:
    from numpy.typing import NDArray


@pytest.fixture(scope="module")
def folder() -> ImageFolder:
    """Return the images that all tests of a run share: drawing them takes seconds."""
    return samples.sample_folder(cache_dir())


def test_layout_is_an_image_folder(folder: ImageFolder) -> None:
    found = find_images(Path(folder.root))
    assert found.paths == folder.paths
    assert len(folder.paths) == 64
    classes = [Path(path).parent.name for path in folder.paths]
    assert classes == [f"class{number}" for number in range(8) for _ in range(8)]
    assert folder.samples
    assert folder.describe()["source"] == SAMPLES


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
    # Neighbouring frequencies are more alike than red and blue.
    assert min(correlation[0, 1], correlation[1, 2]) > correlation[0, 2] > 0.7


def test_an_incomplete_folder_is_drawn_again_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "SAMPLE_CLASSES", 1)
    monkeypatch.setattr(samples, "PER_CLASS", 3)
    first = samples.sample_folder(tmp_path)
    before = [Path(path).read_bytes() for path in first.paths]
    assert len(set(before)) == len(before)
    Path(first.paths[2]).write_bytes(b"")
    (tmp_path / f"{samples.NAME}.unfinished").mkdir()
    assert samples.sample_folder(tmp_path) == first
    assert [Path(path).read_bytes() for path in first.paths] == before
    assert {path.name for path in tmp_path.iterdir()} <= {samples.NAME, f"{samples.NAME}.lock"}


def test_processes_wait_for_the_one_that_draws_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: List[str] = []

    def make() -> None:
        found.append("made")

    def find() -> Optional[str]:
        return found[0] if found else None

    root = tmp_path / "samples"
    assert [cache.make_once(root, "them", find, make) for _ in range(2)] == ["made"] * 2
    assert len(found) == 1
    found.clear()
    monkeypatch.setattr(cache, "LOCK_SECONDS", 0.01)
    held = locked(tmp_path / "samples.lock")
    with held, pytest.raises(DataError, match=r"waited 0.01 s "):
        cache.make_once(root, "them", find, make)


def test_a_cache_that_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    (tmp_path / samples.NAME).write_text("in the way")
    with pytest.raises(DataError, match=f"{tmp_path}.*IPUBENCH_CACHE_DIR"):
        samples.sample_folder(tmp_path)


def _pixels(path: str) -> NDArray[np.float64]:
    with Image.open(path) as image:
        return np.asarray(image, dtype=np.float64)
