"""From a file to a network's input: torchvision's pixels, and one error for every bad file."""

from __future__ import annotations

import importlib
import io
import os
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from ipubench.fixtures.data.build_tfrecords.writer import encode
from ipubench.fixtures.data.images import preprocess, samples
from ipubench.fixtures.data.images.preprocess import (
    CorruptImage,
    load_for_gpu,
    load_image,
    normalize_host,
    scale_shift,
)
from tests.support.tries import tries

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIZES = [(500, 375), (375, 500), (257, 256), (224, 224), (81, 103), (17, 400), (1, 3), (1023, 767)]
SMALL = [(81, 103), (17, 400), (1, 3), (100, 200)]


def pixels(width: int, height: int, channels: int = 3) -> NDArray[np.uint8]:
    shape = (height, width, channels) if channels > 1 else (height, width)
    return np.random.RandomState(width).randint(0, 256, shape, dtype=np.uint8)


def encoded(image: Image.Image, kind: str = "JPEG") -> bytes:
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture(scope="module")
def transforms() -> Any:
    pytest.importorskip("torch", reason="needs PyTorch: pip install torch")
    from ipubench.models.torch.torchvision_import import import_torchvision

    try:
        import_torchvision()
    except ImportError:
        pytest.skip("needs torchvision: pip install torchvision")
    return importlib.import_module("torchvision.transforms")


@pytest.mark.framework
@pytest.mark.parametrize(
    ("width", "height", "size"), [*((*s, 224) for s in SIZES), *((*s, 31) for s in SMALL)]
)
def test_pixels_equal_torchvision(
    transforms: Any, tmp_path: Path, width: int, height: int, size: int
) -> None:
    path = write(tmp_path / "x.jpg", encoded(Image.fromarray(pixels(width, height))))
    with Image.open(path) as image:
        steps = [transforms.Resize(int(size * 256 / 224)), transforms.CenterCrop(size)]
        expected = np.asarray(transforms.Compose(steps)(image.convert("RGB")))
    assert np.array_equal(load_image(path, size), expected.transpose(2, 0, 1))


@pytest.mark.parametrize(("width", "height"), [(1100, 768), (2000, 1600), (3200, 2400)])
def test_a_large_image_that_is_halved_while_decoding_is_nearly_the_same(
    tmp_path: Path, width: int, height: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.jpg"
    monkeypatch.setattr(samples, "WIDTH", width)
    monkeypatch.setattr(samples, "HEIGHT", height)
    Image.fromarray(samples.sample_pixels(0)).save(path, quality=87)
    loaded = load_image(path, 224).astype(int)
    monkeypatch.setattr(preprocess, "SPARE", 1000)
    difference = abs(loaded - load_image(path, 224))
    assert 0 < difference.mean() < 2.5
    assert np.percentile(difference, 99) <= 8


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK", "RGBA", "P", "LA", "1", "I;16"])
def test_every_mode_becomes_rgb(tmp_path: Path, mode: str) -> None:
    grey = Image.fromarray(pixels(40, 30, channels=1))
    if mode == "I;16":
        image = Image.fromarray(pixels(40, 30, channels=1).astype(np.uint16) * 257)
    else:
        image = grey.convert("RGB").convert(mode)
    kind = "JPEG" if mode in ("L", "CMYK") else "PNG"
    path = write(tmp_path / "x.jpg", encoded(image, kind))
    loaded = load_image(path, 32)
    assert loaded.shape == (3, 32, 32)
    assert loaded.dtype == np.uint8
    assert loaded.flags.c_contiguous
    assert loaded.std() > 0
    if mode == "I;16":  # white is 65535; not everything above 255 is white
        eight_bits = write(tmp_path / "y.png", encoded(grey, "PNG"))
        assert np.array_equal(loaded, load_image(eight_bits, 32))


def test_orientation_tag_is_ignored(tmp_path: Path) -> None:
    image = Image.fromarray(pixels(40, 30))
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: rotated
    image.save(tmp_path / "turned.jpg", exif=exif)
    image.save(tmp_path / "plain.jpg")
    turned, plain = (load_image(tmp_path / name, 32) for name in ("turned.jpg", "plain.jpg"))
    assert np.array_equal(turned, plain)


def of_size(width: int, height: int) -> bytes:
    """Return a PNG with another size in its header, which has a checksum."""
    content = bytearray(encoded(Image.new("1", (9, 9)), "PNG"))
    content[16:24] = struct.pack(">II", width, height)
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    return bytes(content)


JPEG = encoded(Image.fromarray(pixels(24, 18)))
PNG = encoded(Image.fromarray(pixels(24, 18)), "PNG")


@pytest.mark.parametrize(
    ("mode", "kind", "options", "by_gpu"),
    [
        ("RGB", "JPEG", {}, True),
        ("L", "JPEG", {}, True),
        ("RGB", "JPEG", {"progressive": True}, False),
        ("RGB", "JPEG", {"keep_rgb": True}, False),
        ("CMYK", "JPEG", {}, False),
        ("RGB", "PNG", {}, False),
    ],
)
def test_a_gpu_gets_the_files_that_it_can_decode(
    tmp_path: Path, mode: str, kind: str, options: Dict[str, Any], by_gpu: bool
) -> None:
    path = tmp_path / "x.jpg"
    Image.fromarray(pixels(40, 30)).convert(mode).save(path, kind, **options)
    loaded = load_for_gpu(path, 32)
    expected = np.frombuffer(path.read_bytes(), np.uint8) if by_gpu else load_image(path, 32)
    assert np.array_equal(loaded, expected)


def test_a_gpu_gets_no_damaged_file(tmp_path: Path) -> None:
    with pytest.raises(CorruptImage):
        load_for_gpu(write(tmp_path / "x.jpg", JPEG[:-20]), 32)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (JPEG[: len(JPEG) // 2], "(?i)truncated"),
        (b"", "JPEG nor a PNG"),
        (b"hello", "JPEG nor a PNG"),
        (encoded(Image.new("L", (9, 9)), "GIF"), "JPEG nor a PNG"),
        (of_size(10_000, 10_000), "pixels"),
        (of_size(20_000, 20_000), "pixels"),
        (encoded(Image.new("L", (60_000, 1)), "PNG"), "pixels"),  # after resizing
    ],
)
def test_unusable_images(tmp_path: Path, content: bytes, reason: str) -> None:
    path = write(tmp_path / "x.jpg", content)
    with pytest.raises(CorruptImage, match=reason) as caught:
        load_image(path, 224)
    assert caught.value.path == str(path)


@pytest.mark.parametrize(
    "read", [lambda path: load_image(path, 32), lambda path: encode(str(path))]
)
def test_non_image_files(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    with (tmp_path / "large.jpg").open("wb") as file:
        file.truncate(1 << 40)
    for name in ("gone.jpg", ".", "pipe.jpg", "large.jpg"):
        with pytest.raises(CorruptImage):
            read(tmp_path / name)


@pytest.mark.nightly
@tries(150)
@given(
    content=st.sampled_from([JPEG, PNG]),
    changes=st.dictionaries(st.integers(0, 400), st.integers(0, 255), min_size=1, max_size=8),
    end=st.integers(0, 2000),
)
def test_damaged_bytes(scratch: Path, content: bytes, changes: Dict[int, int], end: int) -> None:
    damaged = bytearray(content)
    for position, value in changes.items():
        damaged[position] = value
    path = write(scratch / "x.jpg", bytes(damaged[:end]))
    try:
        assert load_image(path, 16).shape == (3, 16, 16)
    except CorruptImage:
        return


def test_normalisation_is_that_of_the_original() -> None:
    batch = pixels(8, 8).transpose(2, 0, 1)[np.newaxis]
    mean = np.reshape([0.485, 0.456, 0.406], (3, 1, 1))
    std = np.reshape([0.229, 0.224, 0.225], (3, 1, 1))
    normalized = normalize_host(batch)
    assert normalized.dtype == np.float32
    np.testing.assert_allclose(normalized, (batch / 255 - mean) / std, atol=1e-6)
    scale, shift = scale_shift()
    for part in (scale, shift):
        assert part.shape == (3, 1, 1)
        assert part.dtype == np.float32
    assert np.array_equal(normalized, batch * scale - shift)
