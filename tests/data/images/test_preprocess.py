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
from ipubench.fixtures.data.images.preprocess import (
    CorruptImage,
    load_image,
    normalize_host,
    scale_shift,
)
from tests.support.tries import tries

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIZES = [
    (500, 375),
    (375, 500),
    (501, 333),
    (257, 256),
    (256, 256),
    (255, 257),
    (224, 224),
    (100, 80),
    (81, 103),
    (17, 400),
    (1, 3),
    (1023, 769),
]


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
@pytest.mark.parametrize("size", [224, 380, 63])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_pixels_equal_torchvision(
    transforms: Any, tmp_path: Path, width: int, height: int, size: int
) -> None:
    path = write(tmp_path / "x.jpg", encoded(Image.fromarray(pixels(width, height))))
    with Image.open(path) as image:
        steps = [transforms.Resize(int(size * 256 / 224)), transforms.CenterCrop(size)]
        expected = np.asarray(transforms.Compose(steps)(image.convert("RGB")))
    assert np.array_equal(load_image(path, size), expected.transpose(2, 0, 1))


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
    if mode == "I;16":  # white is 65535, not all above 255
        eight_bits = write(tmp_path / "y.png", encoded(grey, "PNG"))
        assert np.array_equal(loaded, load_image(eight_bits, 32))


def test_orientation_tag_is_ignored(tmp_path: Path) -> None:
    image = Image.fromarray(pixels(40, 30))
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: turned
    image.save(tmp_path / "turned.jpg", exif=exif)
    image.save(tmp_path / "plain.jpg")
    turned, plain = (load_image(tmp_path / name, 32) for name in ("turned.jpg", "plain.jpg"))
    assert np.array_equal(turned, plain)


def test_truncated_file(tmp_path: Path) -> None:
    content = encoded(Image.fromarray(pixels(200, 150)))
    path = write(tmp_path / "cut.jpg", content[: len(content) // 2])
    with pytest.raises(
        CorruptImage, match=r"cannot use the image .*cut.jpg: .*truncated"
    ) as caught:
        load_image(path, 32)
    assert caught.value.path == str(path)


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"\xff\xd8\xff", encoded(Image.new("L", (9, 9)), "GIF")]
)
def test_not_an_image(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(CorruptImage, match=r"neither a JPEG nor a PNG image"):
        load_image(write(tmp_path / "x.jpg", content), 32)


@pytest.mark.parametrize(
    "read", [lambda path: load_image(path, 32), lambda path: encode(str(path))]
)
def test_missing_file_and_directory(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "zero.jpg").symlink_to("/dev/zero")
    with (tmp_path / "large.jpg").open("wb") as file:
        file.truncate(1 << 40)
    for name in ("gone.jpg", ".", "pipe.jpg", "zero.jpg", "large.jpg"):
        with pytest.raises(CorruptImage):
            read(tmp_path / name)


@pytest.mark.parametrize("side", [10_000, 20_000])
@pytest.mark.filterwarnings("error")
def test_decompression_bomb(tmp_path: Path, side: int) -> None:
    # Its header is all that is read, and has a checksum.
    content = bytearray(encoded(Image.new("1", (9, 9)), "PNG"))
    content[16:24] = struct.pack(">II", side, side)
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    path = write(tmp_path / "bomb.png", bytes(content))
    with pytest.raises(CorruptImage, match=r"pixels"):
        load_image(path, 32)


def test_an_image_too_long_to_be_resized(tmp_path: Path) -> None:
    path = write(tmp_path / "line.png", encoded(Image.new("L", (60_000, 1)), "PNG"))
    with pytest.raises(CorruptImage, match=r"15360000 x 256 pixels are more than"):
        load_image(path, 224)


JPEG = encoded(Image.fromarray(pixels(24, 18)))
PNG = encoded(Image.fromarray(pixels(24, 18)), "PNG")


@tries(150)
@given(
    start=st.sampled_from([b"", JPEG[:3], JPEG[:200], PNG[:8], PNG[:33], PNG[:60]]),
    rest=st.binary(max_size=300),
)
def test_arbitrary_bytes(scratch: Path, start: bytes, rest: bytes) -> None:
    _loads_or_is_corrupt(write(scratch / "x.jpg", start + rest))


@tries(150)
@given(
    content=st.sampled_from([JPEG, PNG]),
    changes=st.dictionaries(st.integers(0, 400), st.integers(0, 255), min_size=1, max_size=8),
)
def test_damaged_bytes(scratch: Path, content: bytes, changes: Dict[int, int]) -> None:
    damaged = bytearray(content)
    for position, value in changes.items():
        damaged[position] = value
    _loads_or_is_corrupt(write(scratch / "x.jpg", bytes(damaged)))


def _loads_or_is_corrupt(path: Path) -> None:
    try:
        shape = load_image(path, 16).shape
    except CorruptImage:
        return
    assert shape == (3, 16, 16)


def test_memory_shortage_is_no_corrupt_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(*args: object, **options: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Image, "open", short)
    with pytest.raises(MemoryError):
        load_image(write(tmp_path / "x.jpg", b""), 32)


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
