"""Batches from TFRecords: pixels, labels, order, and messages for unusable files."""

from __future__ import annotations

import io
import struct
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, Tuple

import numpy as np
import pytest
from PIL import Image

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.data.imagenet.faults import explain
from ipubench.fixtures.data.imagenet.feed import ImageNetFeed
from ipubench.fixtures.data.imagenet.pipeline import dataset, one_pass
from ipubench.fixtures.data.imagenet.shards import BUILDER, ShardSet
from tests.support.records import jpeg, labelled, record, smooth, write_shards

if TYPE_CHECKING:
    from numpy.typing import NDArray

pytestmark = pytest.mark.framework
tf = pytest.importorskip("tensorflow", reason="these batches are made with TensorFlow")

Shards = Callable[..., ShardSet]


@pytest.fixture
def shards(tmp_path: Path) -> Shards:
    """Write shards of records; a number makes a record of a tiny image with that label."""

    def write(*contents: List[Any], split: str = "validation") -> ShardSet:
        tiny = jpeg(smooth(8, 8))
        messages = [
            [labelled(tf, tiny, each) if isinstance(each, int) else each for each in content]
            for content in contents
        ]
        return write_shards(tf, tmp_path, split, *messages)

    return write


def feed_of(found: ShardSet, **options: Any) -> ImageNetFeed:
    defaults = {"batch_size": 4, "image_shape": (8, 8, 3), "classes": 100}
    return ImageNetFeed("real", shards=found, **{**defaults, **options})


def batches(feed: ImageNetFeed, count: int = 1, compute: str = "float32") -> List[Tuple[Any, Any]]:
    taken = dataset(tf, feed, compute).take(count)
    return [(images.numpy(), labels.numpy()) for images, labels in taken]


def labels_of(feed: ImageNetFeed, count: int) -> List[int]:
    return [int(label) for _, labels in batches(feed, count) for label in labels]


# ------------------------------------------------------------------ pixels


def bilinear(pixels: NDArray[Any], size: int) -> NDArray[np.float64]:
    """Resize [height, width, 3] to a square: pixel centres at 0.5, no antialiasing."""
    result = np.asarray(pixels, np.float64)
    for axis in (0, 1):
        length = result.shape[axis]
        at = np.clip((np.arange(size) + 0.5) * length / size - 0.5, 0, length - 1)
        low = np.floor(at).astype(int)
        high = np.minimum(low + 1, length - 1)
        share = (at - low).reshape([-1 if a == axis else 1 for a in range(3)])
        result = result.take(low, axis) * (1 - share) + result.take(high, axis) * share
    return result


def decoded(encoded: bytes) -> NDArray[Any]:
    with Image.open(io.BytesIO(encoded)) as image:
        return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize(("height", "width"), [(75, 100), (120, 64), (64, 64), (20, 31)])
def test_evaluation_shows_the_centre(shards: Shards, height: int, width: int) -> None:
    generator = np.random.RandomState(0)
    noise = generator.randint(0, 256, (height // 4 + 1, width // 4 + 1, 3)).astype(np.uint8)
    picture = Image.fromarray(noise).resize((width, height), Image.BICUBIC)
    encoded = jpeg(np.asarray(picture))
    ((images, labels),) = batches(
        feed_of(shards([labelled(tf, encoded, 5)]), image_shape=(56, 56, 3), batch_size=2)
    )
    assert (images.dtype, images.shape) == (np.uint8, (2, 56, 56, 3))
    assert labels.tolist() == [4, 4]
    side = round(min(height, width) * 56 / 64)
    top, left = (height - side) // 2, (width - side) // 2
    expected = bilinear(decoded(encoded)[top : top + side, left : left + side], 56)
    # The two decoders differ by a few levels: TensorFlow's runs in its fast mode.
    difference = np.abs(images[0] - expected)
    assert difference.mean() < 1.5
    assert difference.max() < 12
    # A shift by one pixel would be visible.
    beside = bilinear(decoded(encoded)[top : top + side, left - 1 : left - 1 + side], 56)
    assert np.abs(images[0] - beside).mean() > 5
    assert (images[0] == images[1]).all()


def test_evaluation_agrees_with_resizing_first(shards: Shards) -> None:
    """The original resizes the whole image first; Pillow does that here, on a smooth image."""
    encoded = jpeg(smooth(375, 500))
    ((images, _),) = batches(
        feed_of(shards([labelled(tf, encoded, 1)]), image_shape=(224, 224, 3), batch_size=1)
    )
    with Image.open(io.BytesIO(encoded)) as image:
        resized = image.resize((341, 256), Image.BILINEAR)
    expected = np.asarray(resized.crop((58, 16, 282, 240)), int)
    assert np.abs(images[0] - expected).max() <= 6
    assert np.abs(images[0] - expected).mean() < 1.5


def seen_part(image: NDArray[Any], height: int, width: int) -> Tuple[float, float, float, bool]:
    """Return the visible part of a smooth image: (x0, height, width, is mirrored), pixels."""
    red, green = image[..., 0].mean(axis=0), image[..., 1].mean(axis=1)
    across = (red[-1] - red[0]) * len(red) / (len(red) - 1) * width / 255
    down = (green[-1] - green[0]) * len(green) / (len(green) - 1) * height / 255
    return float(min(red[0], red[-1]) * width / 255), float(down), abs(float(across)), across < 0


def test_training_shows_random_parts_half_of_them_mirrored(shards: Shards) -> None:
    height, width = 300, 400
    found = shards([labelled(tf, jpeg(smooth(height, width)), 7)], split="train")
    feed = feed_of(found, training=True, image_shape=(32, 32, 3), batch_size=200, eight_bit=False)
    ((images, labels),) = batches(feed)
    assert set(labels) == {6}
    parts = [seen_part(image, height, width) for image in images]
    for _, down, across, _ in parts:
        assert down > 0
        # To a few pixels, the precision of the colours.
        assert 0.05 * 0.85 < down * across / (height * width) < 1.05
        assert 0.75 * 0.93 < across / down < 1.33 * 1.07
    areas = [down * across / (height * width) for _, down, across, _ in parts]
    assert min(areas) < 0.15
    assert max(areas) > 0.75
    assert np.ptp([left for left, _, _, _ in parts]) > width / 3
    # 200 throws of a coin: five standard deviations.
    assert 65 < sum(mirrored for _, _, _, mirrored in parts) < 135


def test_instances_see_different_parts(shards: Shards) -> None:
    """Each has a copy of the same image."""
    same = labelled(tf, jpeg(smooth(60, 80)), 7)
    feed = feed_of(shards([same], [same], split="train"), training=True, instances=2)
    (first, _), (second, _) = (batches(replace(feed, instance=i))[0] for i in range(2))
    assert not any((one == other).all() for one in first for other in second)


def test_training_covers_labelled_boxes(shards: Shards) -> None:
    sides = {"xmin": 0.0, "xmax": 0.1, "ymin": 0.0, "ymax": 0.1}
    boxes = {f"image__object__bbox__{side}": [value] for side, value in sides.items()}
    encoded = jpeg(smooth(300, 300))
    found = shards([labelled(tf, encoded, 1, **boxes)], split="train")
    ((images, _),) = batches(
        feed_of(found, training=True, image_shape=(32, 32, 3), batch_size=100, eight_bit=False)
    )
    # Every part must overlap the box at the left edge.
    assert max(seen_part(image, 300, 300)[0] for image in images) < 30 + 3


def test_pixels_are_rounded_to_eight_bits(shards: Shards) -> None:
    found = shards([labelled(tf, jpeg(smooth(70, 90)), 1)])
    exact, rounded = (
        batches(feed_of(found, image_shape=(32, 32, 3), eight_bit=eight_bit))[0][0]
        for eight_bit in (False, True)
    )
    assert exact.dtype == np.float32
    assert (np.rint(exact) == rounded).all()
    assert (exact != rounded).any()


@pytest.mark.parametrize("normalise_input", [True, False])
@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_normalisation_on_the_host(shards: Shards, normalise_input: bool, compute: str) -> None:
    feed = feed_of(shards([3]), eight_bit=False, normalise_input=normalise_input)
    raw = batches(feed)[0][0]
    host = replace(feed, hostside_norm=True)
    (images, _) = next(iter(dataset(tf, host, compute)))
    assert images.dtype == tf.as_dtype(compute)
    expected = raw - np.array([123.68, 116.78, 103.94])
    if normalise_input:
        expected = (raw / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    tolerance = 1e-3 if compute == "float32" else 2.0**-8 * np.abs(expected).max()
    assert np.abs(tf.cast(images, tf.float32).numpy() - expected).max() <= tolerance


def test_generated_batches() -> None:
    for eight_bit in (True, False):
        feed = ImageNetFeed(
            "generated", 3, (16, 16, 3), eight_bit=eight_bit, hostside_norm=not eight_bit
        )
        expected, labels = feed.generated()
        if not eight_bit:
            expected = (expected / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
        for got, numbers in batches(feed, 2):
            assert np.abs(got - expected).max() < 1e-5
            assert numbers.tolist() == labels.tolist()


# ------------------------------------------------------------------ order


def test_validation_comes_in_the_order_of_the_shards(shards: Shards) -> None:
    feed = feed_of(shards([1, 2], [11, 12]))
    assert labels_of(feed, 2) == [0, 10, 1, 11] * 2


def test_training_is_shuffled_by_the_seed(shards: Shards) -> None:
    found = shards(list(range(1, 21)), list(range(21, 41)), split="train")
    feed = feed_of(found, training=True, batch_size=10)
    order = labels_of(feed, 8)
    first, second = order[:40], order[40:]
    for epoch in (first, second):
        assert sorted(epoch) == list(range(40))
    assert first != second
    assert labels_of(feed, 4) == first
    assert labels_of(replace(feed, seed=5), 4) != first
    one, again = (batches(feed)[0][0] for _ in range(2))
    assert (again == one).all()
    assert (batches(replace(feed, seed=5))[0][0] != one).any()


@pytest.mark.parametrize("contents", [[[1, 2], [3, 4], [5, 6], [7, 8]], [[1, 2, 3, 4, 5, 6, 7, 8]]])
def test_instances_share_the_images(shards: Shards, contents: List[List[int]]) -> None:
    feed = feed_of(shards(*contents))
    parts = [labels_of(replace(feed, instance=index, instances=2), 1) for index in range(2)]
    assert sorted(parts[0] + parts[1]) == list(range(8))


def test_records_that_are_dealt_out_come_in_one_order_to_all(shards: Shards) -> None:
    """Even if a pass needs no order: otherwise two instances would read the same image."""
    feed = feed_of(shards(list(range(1, 41)), list(range(41, 81))), parallel=8)
    parts = []
    for index in range(3):
        part = replace(feed, instance=index, instances=3)
        records = one_pass(tf, part, shuffled=False, keep_order=False)
        parts += [record.numpy() for record in records]
    assert len(parts) == len(set(parts)) == 80


def test_the_cache_contains_the_read_images(shards: Shards) -> None:
    found = shards(list(range(1, 9)))
    cached, read = (iter(dataset(tf, feed_of(found, cache=c), "float32")) for c in (True, False))
    for _ in range(3):
        next(cached)
        next(read)
    Path(found.paths[0]).unlink()
    seen = [int(label) for _ in range(20) for label in next(cached)[1].numpy()]
    assert sorted(set(seen)) == list(range(8))
    with pytest.raises(tf.errors.NotFoundError):
        for _ in range(200):
            next(read)


# ------------------------------------------------------------------ failures


def message(feed: ImageNetFeed) -> str:
    """Return the message for a feed whose batches cannot be made."""
    iterator: Iterator[Any] = iter(dataset(tf, feed, "float32"))
    with pytest.raises((tf.errors.OpError, StopIteration)) as caught:
        for _ in range(50):
            next(iterator)
    error: Any = caught.value
    if isinstance(error, StopIteration):
        error = tf.errors.OutOfRangeError(None, None, "End of sequence")
    explained = explain(tf, error, feed)
    assert isinstance(explained, CaseError)
    return str(explained)


def said_to_be(encoded: bytes, height: int, width: int) -> bytes:
    """Return a JPEG with another size in its header."""
    at = encoded.index(b"\xff\xc0") + 5
    return encoded[:at] + struct.pack(">HH", height, width) + encoded[at + 4 :]


def png() -> bytes:
    content = io.BytesIO()
    Image.fromarray(smooth(8, 8)).save(content, "PNG")
    return content.getvalue()


NOISE = jpeg(np.random.RandomState(0).randint(0, 256, (64, 64, 3)).astype(np.uint8))
STRANGE = {
    "other features": record(tf, image=NOISE, label=3),
    "another kind": record(tf, image__encoded=NOISE, image__class__label=b"cat"),
    "no example": b"something else",
    "label 0": labelled(tf, NOISE, 0),
    "label 101": labelled(tf, NOISE, 101),
    "huge": labelled(tf, said_to_be(NOISE, 22_000, 22_001), 2),
    "cut": labelled(tf, NOISE[: len(NOISE) // 2], 2),
    "png": labelled(tf, png(), 2),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("strange", STRANGE)
def test_the_unusable_record_is_named(shards: Shards, strange: str, training: bool) -> None:
    found = shards([1, 2], [3, STRANGE[strange]], split="train")
    text = message(feed_of(found, training=training))
    assert f"record 1 of {found.paths[1]} cannot be used: " in text and BUILDER in text


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda content: content[:-20], "{path} is damaged: record 2,"),
        (lambda content: flipped(content, 5), "{path} is damaged: record 0,"),
        (lambda content: flipped(content, len(content) // 2), "record 1 of {path} "),
        (None, "{path} cannot be read: No such"),
    ],
)
def test_the_damaged_file_is_named(shards: Shards, change: Any, said: str) -> None:
    found = shards([1, 2, 3], [4, 5, 6])
    path = Path(found.paths[1])
    content = path.read_bytes()
    path.unlink()
    if change is not None:
        path.write_bytes(change(content))
    text = message(feed_of(found))
    assert said.format(path=path) in text and BUILDER in text


def test_no_records_and_a_fault_that_does_not_repeat(shards: Shards) -> None:
    assert "have no record" in message(feed_of(shards([], [])))
    error = tf.errors.InternalError(None, None, "out of luck\nand more")
    text = str(explain(tf, error, feed_of(shards([1], [2]))))
    assert text.endswith(": out of luck")
