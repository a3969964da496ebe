"""Batches of the TensorFlow 2 CNN application: pixels, labels, order, passes, damaged files."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, Tuple

import numpy as np
import pytest

from ipubench.fixtures.case.errors import DataError
from ipubench.fixtures.data.cache import SAMPLES
from ipubench.fixtures.data.feed_options import DATASETS
from ipubench.fixtures.data.tfds.feed import ApplicationFeed
from ipubench.fixtures.data.tfds.find import find_prepared
from ipubench.fixtures.data.tfds.pipeline import dataset as batches_of
from ipubench.fixtures.data.tfds.samples import read_samples, sample_examples, textures
from ipubench.fixtures.runtimes.tensorflow.images import ImageInput
from tests.support.examples import learnable, learnable_cifar
from tests.support.records import jpeg, labelled, smooth, write_shards

if TYPE_CHECKING:
    from numpy.typing import NDArray

pytestmark = pytest.mark.framework
tf = pytest.importorskip("tensorflow", reason="these batches are made with TensorFlow")

TRAIN, VALIDATION = 50, 13


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of 50 and 13 images, all different, in three files per split."""
    root = tmp_path_factory.mktemp("cifar")
    learnable_cifar(root, TRAIN, VALIDATION, shards=3)
    return root


def feed_of(
    root: Path, training: bool, dataset: str = "cifar10", **options: Any
) -> ApplicationFeed:
    kind = DATASETS[dataset]
    source = find_prepared(root, dataset, "train" if training else "validation")
    assert source is not None
    return ApplicationFeed(
        mode="real",
        dataset=dataset,
        image_shape=kind.image_shape,
        classes=kind.classes,
        total=0,
        training=training,
        prepared=source,
        **{"batch_size": 4, "parallel": 2, "eight_bit": False, **options},
    )


def batches(feed: ApplicationFeed, count: int = -1, start: int = 0) -> List[Tuple[Any, Any]]:
    taken = batches_of(tf, feed, "float32", start).take(count)
    return [(images.numpy(), labels.numpy()) for images, labels in taken]


def joined(parts: List[Tuple[Any, Any]]) -> Tuple[NDArray[Any], NDArray[Any]]:
    return np.concatenate([images for images, _ in parts]), np.concatenate([n for _, n in parts])


def standardised(images: NDArray[Any]) -> NDArray[np.float64]:
    pixels = images.astype(np.float64)
    mean = pixels.mean(axis=(1, 2, 3), keepdims=True)
    result: NDArray[np.float64] = (pixels - mean) / pixels.std(axis=(1, 2, 3), keepdims=True)
    return result


def written(split: str, dataset: str = "cifar10") -> Tuple[NDArray[Any], NDArray[Any]]:
    count, seed = (TRAIN, 1) if split == "train" else (VALIDATION, 2)
    return textures(count, DATASETS[dataset].image_shape, DATASETS[dataset].classes, seed)


# ------------------------------------------------------------------ pixels


def test_one_pass_of_validation_is_padded_with_zero_images(cifar: Path) -> None:
    feed = feed_of(cifar, training=False, eight_bit=True, device_preprocess=True)
    found = batches(feed)
    assert (len(found), feed.batches_per_epoch, feed.examples) == (4, 4, VALIDATION)
    images, labels = joined(found)
    assert images.dtype == np.uint8
    assert labels.dtype == np.int32
    pixels, numbers = written("validation")
    assert (images[:VALIDATION] == pixels).all()
    assert (labels[:VALIDATION] == numbers).all()
    assert not images[VALIDATION:].any()
    assert labels[VALIDATION:].tolist() == [10, 10, 10]


@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_validation_images_are_normalised_on_the_host_or_the_device(
    cifar: Path, compute: str
) -> None:
    feed = feed_of(cifar, training=False, batch_size=VALIDATION)
    pixels, _ = written("validation")
    for device, expected in ((True, pixels), (False, standardised(pixels))):
        ((images, _),) = batches_of(tf, replace(feed, device_preprocess=device), compute)
        assert images.dtype == tf.as_dtype(compute)
        exact = 1e-5 if compute == "float32" else 2.0**-8
        values = tf.cast(images, tf.float32).numpy()
        assert (np.abs(values - expected) <= exact * np.maximum(1, np.abs(expected))).all()


def test_greyscale(tmp_path: Path) -> None:
    learnable(tf, tmp_path, "mnist", 10, 5)
    ((images, _),) = batches(feed_of(tmp_path, False, "mnist", batch_size=5))
    pixels, _ = textures(5, (28, 28, 1), 10, seed=2)
    assert np.abs(images - pixels / 255).max() < 1e-6
    ((images, labels),) = batches(
        feed_of(tmp_path, True, "mnist", batch_size=10, shuffle=False), count=1
    )
    pixels, numbers = textures(10, (28, 28, 1), 10, seed=1)
    assert np.abs(images - pixels / 255).max() < 1e-6  # neither mirrored nor shifted
    assert (labels == numbers).all()


def seen(image: NDArray[Any], whole: NDArray[Any]) -> Tuple[int, int, bool]:
    """Return the visible part of an image padded with 4 zeros: (row, column, is mirrored)."""
    padded = np.pad(whole, ((4, 4), (4, 4), (0, 0)))
    for row in range(9):
        for column in range(9):
            part = padded[row : row + 32, column : column + 32]
            for mirrored in (False, True):
                if np.abs(image - (part[:, ::-1] if mirrored else part)).max() < 1e-4:
                    return row, column, mirrored
    raise AssertionError("no part of the image")


@pytest.mark.parametrize("device", [False, True])
def test_training_sees_random_parts(cifar: Path, device: bool) -> None:
    """The host mirrors half of them, unless the device does."""
    feed = feed_of(cifar, True, shuffle=False, device_preprocess=device, eight_bit=device)
    images, labels = joined(batches(feed, 50))  # 200 images, four times each
    pixels, numbers = written("train")
    assert (labels == np.tile(numbers, 4)).all()
    wholes = np.tile(pixels.astype(int) if device else standardised(pixels), (4, 1, 1, 1))
    parts = [seen(image, whole) for image, whole in zip(images.astype(wholes.dtype), wholes)]
    # With 200 draws each of the nine positions is missing once in 10 ** 10 times.
    assert {row for row, _, _ in parts} == {column for _, column, _ in parts} == set(range(9))
    mirrored = sum(was for _, _, was in parts)
    assert mirrored == 0 if device else 65 < mirrored < 135  # five standard deviations
    # Another epoch or another instance sees an image differently.
    assert sum(parts[i] == parts[i + 50] for i in range(50)) < 10
    other = batches(replace(feed, instance=1, instances=2), 1)[0][0].astype(wholes.dtype)
    assert any(seen(*pair) != part for *pair, part in zip(other, wholes[1::2], parts[1::2]))


# ------------------------------------------------------------------ order


def labels_of(feed: ApplicationFeed, count: int) -> List[int]:
    """Return the numbers that some batches' images have in the data set."""
    pixels, _ = written("train" if feed.training else "validation")
    number = {image.tobytes(): index for index, image in enumerate(pixels)}
    return [number[image.tobytes()] for images, _ in batches(feed, count) for image in images]


@pytest.fixture
def uncropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipubench.fixtures.data.tfds.pipeline.PADDING", 0)


def test_shuffling(cifar: Path, uncropped: None) -> None:
    feed = feed_of(cifar, True, batch_size=10, eight_bit=True, device_preprocess=True)
    order = labels_of(feed, 15)
    epochs = [order[:50], order[50:100], order[100:]]
    for epoch in epochs:
        assert sorted(epoch) == list(range(50))
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert labels_of(feed, 15) == order
    assert labels_of(replace(feed, seed=1), 15) != order
    assert labels_of(replace(feed, shuffle=False), 10) == list(range(50)) * 2


# In the first pass, in the second one, and with batches larger than a pass.
@pytest.mark.parametrize(("batch", "start"), [(3, 1), (3, 20), (128, 2)])
def test_training_continues_from_its_position(cifar: Path, batch: int, start: int) -> None:
    feed = feed_of(cifar, True, batch_size=batch)
    whole = batches(feed, start + 3)[start:]
    for (images, labels), (same, numbers) in zip(whole, batches(feed, 3, start)):
        assert (images == same).all()
        assert (labels == numbers).all()


def test_instances_share_the_images(cifar: Path, uncropped: None) -> None:
    for training, total in ((True, TRAIN), (False, VALIDATION)):
        feed = feed_of(cifar, training, eight_bit=True, device_preprocess=True, instances=3)
        parts = [replace(feed, instance=index) for index in range(3)]
        if training:
            found = [labels_of(replace(part, batch_size=part.examples), 2) for part in parts]
            found = [sorted(set(numbers)) for numbers in found]
        else:
            every = [joined(batches(part)) for part in parts]
            assert len({len(labels) for _, labels in every}) == 1
            assert sum((labels < 10).sum() for _, labels in every) == total
            found = [labels_of(replace(part, batch_size=part.examples), 1) for part in parts]
        assert sorted(number for part in found for number in part) == list(range(total))


def test_more_instances_than_images(cifar: Path) -> None:
    feed = feed_of(cifar, True, instance=50, instances=51)
    with pytest.raises(DataError, match="51 instances"):
        batches_of(tf, feed, "float32")


# ------------------------------------------------------------------ damaged files


def broken(root: Path, change: Callable[[Path], None]) -> str:
    """Return the message for a data set that changed after it was found."""
    feed = feed_of(root, True)
    assert feed.prepared is not None
    change(Path(feed.prepared.paths[-1]))
    with pytest.raises(DataError) as caught:
        batches_of(tf, feed, "float32")
    return str(caught.value)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    learnable_cifar(tmp_path, 6, 2, shards=2)
    return tmp_path


def rewritten(*records: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for each in records:
                writer.write(each)

    return write


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-100] ^= 4
    path.write_bytes(content)


def example(image: bytes, label: int) -> bytes:
    features = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    message: bytes = tf.train.Example(
        features=tf.train.Features(feature=features)
    ).SerializeToString()
    return message


def test_damaged_files(small: Path) -> None:
    path = small / "cifar10" / "3.0.2" / "cifar10-train.tfrecord-00001-of-00002"
    png = tf.io.encode_png(np.zeros((32, 32, 3), np.uint8)).numpy()
    other = tf.io.encode_png(np.zeros((28, 28, 3), np.uint8)).numpy()
    assert f"record 2 of {path} cannot be used" in broken(small, flip)
    for bad in (b"nothing", example(png, 10), example(other, 1), example(b"text", 1)):
        text = broken(small, rewritten(example(png, 1), bad))
        assert f"record 1 of {path} cannot be used" in text and "copy it again" in text
    assert f"record 0 of {path}" in broken(small, rewritten(labelled(tf, png, 1)))
    for number in (1, 5):
        text = broken(small, rewritten(*[example(png, 1)] * number))
        assert re.search(f"{path.parent}.* 6 images .*dataset_info.json", text)
    assert f"record 0 of {path}" in broken(small, Path.unlink)


# ------------------------------------------------------------------ ImageNet


@pytest.fixture
def records(tmp_path: Path) -> Callable[..., ApplicationFeed]:
    """Return a feed of ImageNet records of one image with labels 1 to 7, in two files per split."""

    def feed(training: bool, **options: Any) -> ApplicationFeed:
        picture = jpeg(smooth(40, 60))
        contents = [[labelled(tf, picture, n) for n in some] for some in ((1, 2, 3, 4), (5, 6, 7))]
        split = "train" if training else "validation"
        return ApplicationFeed(
            mode="real",
            dataset="imagenet",
            image_shape=(16, 16, 3),
            classes=1000,
            total=1281167,
            training=training,
            shards=write_shards(tf, tmp_path, split, *contents),
            **{"batch_size": 3, "deterministic": True, "eight_bit": False, **options},
        )

    return feed


def test_a_pass_of_imagenet(records: Callable[..., ApplicationFeed]) -> None:
    feed = records(False, eight_bit=True, device_preprocess=True)
    images, labels = joined(batches(feed))
    assert (feed.examples, feed.batches_per_epoch) == (7, 3)
    assert labels.tolist() == [0, 4, 1, 5, 2, 6, 3, 1000, 1000]
    assert images.dtype == np.uint8
    assert images[:7].any(axis=(1, 2, 3)).all()
    assert not images[7:].any()
    parts = [joined(batches(replace(feed, instance=i, instances=2)))[1] for i in range(2)]
    assert [part.tolist() for part in parts] == [[0, 1, 2, 3, 1000, 1000], [4, 5, 6] + [1000] * 3]
    exact = batches(replace(feed, eight_bit=False))[0][0]
    normalised = batches(replace(feed, eight_bit=False, device_preprocess=False))[0][0]
    expected = (exact / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    assert np.abs(normalised - expected).max() < 1e-5


def test_training_on_imagenet(records: Callable[..., ApplicationFeed]) -> None:
    feed = records(True)
    found = batches(feed, 7)
    labels = joined(found)[1]
    assert sorted(labels.tolist()) == sorted(list(range(7)) * 3)
    assert labels.tolist()[:7] != labels.tolist()[7:14]
    for (images, numbers), (same, others) in zip(found[4:], batches(feed, 3, start=4)):
        assert (images == same).all()
        assert (numbers == others).all()
    unshuffled = replace(feed, shuffle=False, cache=True)
    assert joined(batches(unshuffled, 5))[1].tolist() == [0, 4, 1, 5, 2, 6, 3] * 2 + [0]
    free = replace(feed, deterministic=False)
    assert sorted(joined(batches(free, 7))[1].tolist()) == sorted(list(range(7)) * 3)


def test_damaged_records_of_imagenet(records: Callable[..., ApplicationFeed]) -> None:
    feed = records(True)
    assert feed.shards is not None
    path = Path(feed.shards.paths[1])
    flip(path)
    images = ImageInput(tf, "/CPU:0", feed, "float32")
    images.open()
    with pytest.raises(DataError, match=f"record 2 of {path} "):
        for _ in range(20):
            images.take()
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(DataError, match=f"{path} is damaged: record 2,"):
        _ = feed.examples


# ------------------------------------------------------------------ other modes, runtimes


def test_generated_batches() -> None:
    feed = ApplicationFeed(
        "generated", 4, (28, 28, 1), 10, eight_bit=False, dataset="mnist", total=10
    )
    pixels, labels = feed.generated()
    images, numbers = joined(batches(feed))
    assert np.abs(images[:10] - pixels[0] / 255).max() < 1e-6
    assert numbers.tolist() == [labels[0]] * 10 + [10, 10]
    endless = replace(feed, training=True, eight_bit=True, device_preprocess=True)
    ((images, _),) = batches(endless, 20)[19:]
    assert (images == pixels.astype(np.uint8)).all()


def test_runtimes_accept_such_feeds(cifar: Path) -> None:
    feed = feed_of(cifar, False, batch_size=8)
    images = ImageInput(tf, "/CPU:0", feed, "float32")
    images.open()
    passes = [images.take()[1].numpy().tolist() for _ in range(4)]
    assert passes[:2] == passes[2:]  # measuring continues after a pass
    for eight_bit in (True, False):
        synthetic = ApplicationFeed("synthetic", 6, (28, 28, 1), 10, eight_bit, dataset="mnist")
        ring = ImageInput(tf, "/CPU:0", synthetic, "bfloat16")
        ring.open()
        pixels, labels = ring.source()(tf.constant(1))
        assert (pixels.shape, labels.shape) == ((6, 28, 28, 1), (6,))
        assert pixels.dtype == (tf.uint8 if eight_bit else tf.bfloat16)


def test_sample_images(tmp_path: Path) -> None:
    found = sample_examples("mnist", "train")
    assert found.describe()["source"] == SAMPLES
    feed = replace(feed_of(learnable(tf, tmp_path, "mnist", 60), True, "mnist"), prepared=found)
    images, labels = joined(batches(feed, 50))
    assert images.shape == (200, 28, 28, 1)
    assert set(labels) == set(range(10))
    assert sample_examples("mnist", "validation").lengths == (500,)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_each_instance_reads_its_part_of_the_samples(split: str) -> None:
    found = sample_examples("cifar10", split)
    feed = ApplicationFeed(
        "real", 10, (32, 32, 3), 10, dataset="cifar10", prepared=found, instances=3
    )
    parts = [read_samples(found, replace(feed, instance=instance)) for instance in range(3)]
    assert [len(part) for _, part in parts] == found.images_per_instance(3)
    images, labels = textures(found.lengths[0], (32, 32, 3), 10, 1 if split == "train" else 2)
    for instance, part in enumerate(parts):
        np.testing.assert_array_equal(part[0], images[instance::3])
        np.testing.assert_array_equal(part[1], labels[instance::3])


def test_the_layout_is_that_of_tensorflow_datasets(cifar: Path, tmp_path: Path) -> None:
    reason = "pip install tensorflow-datasets importlib_resources compares the layouts"
    tfds = pytest.importorskip("tensorflow_datasets", reason=reason)
    builder = tfds.builder_from_directory(str(cifar / "cifar10" / "3.0.2"))
    read = list(tfds.as_numpy(builder.as_dataset(split="test", shuffle_files=False)))
    pixels, numbers = written("validation")
    order = {int(example["label"]): 0 for example in read}
    assert set(order) == set(numbers.tolist())
    theirs = {example["image"].tobytes(): int(example["label"]) for example in read}
    assert theirs == {image.tobytes(): int(n) for image, n in zip(pixels, numbers)}

    # And we read what the package writes.
    features = tfds.features.FeaturesDict(
        {
            "id": tfds.features.Text(),
            "image": tfds.features.Image(shape=(32, 32, 3)),
            "label": tfds.features.ClassLabel(num_classes=10),
        }
    )
    examples: Iterator[Any] = (
        (i, {"id": f"train_{i}", "image": image, "label": int(label)})
        for i, (image, label) in enumerate(zip(*written("train")))
    )
    tfds.dataset_builders.store_as_tfds_dataset(
        name="cifar10",
        version="3.0.2",
        data_dir=tmp_path,
        split_datasets={"train": list(examples)},
        features=features,
    )
    feed = feed_of(tmp_path, True, eight_bit=True, device_preprocess=True, batch_size=50)
    _, labels = batches(feed, 1)[0]
    assert sorted(labels.tolist()) == sorted(written("train")[1].tolist())
