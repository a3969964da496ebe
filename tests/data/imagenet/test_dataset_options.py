"""No pipeline is tuned during the measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ipubench.fixtures.data.feeds import ArrayFeed, TensorSpec
from ipubench.fixtures.data.imagenet import pipeline as imagenet
from ipubench.fixtures.data.imagenet.feed import ImageNetFeed
from ipubench.fixtures.data.tf_data import plain_options
from ipubench.fixtures.data.tfds import pipeline as tfds
from ipubench.fixtures.data.tfds.feed import ApplicationFeed
from ipubench.fixtures.data.tfds.find import find_prepared
from ipubench.fixtures.runtimes.tensorflow.images import repeated
from ipubench.fixtures.runtimes.tensorflow.model import generated_batches
from tests.support.examples import learnable_cifar
from tests.support.records import jpeg, labelled, smooth, write_shards

pytestmark = pytest.mark.framework
tf = pytest.importorskip("tensorflow", reason="these batches are made with TensorFlow")


def tuned(dataset: Any) -> bool:
    """Return whether tf.data may tune a pipeline, as it does by default."""
    options = dataset.options()
    if hasattr(options, "autotune"):
        return options.autotune.enabled is not False
    return options.experimental_optimization.autotune is not False


def test_the_default_is_the_tuner() -> None:
    plain = tf.data.Dataset.range(3)
    assert tuned(plain)
    assert not tuned(plain.with_options(plain_options(tf)).prefetch(2))


@pytest.mark.parametrize("mode", ["generated", "real"])
def test_pipelines(tmp_path: Path, mode: str) -> None:
    shards = write_shards(tf, tmp_path, "validation", [labelled(tf, jpeg(smooth(8, 8)), 1)])
    feed = ImageNetFeed(mode, batch_size=1, image_shape=(8, 8, 3), classes=10, shards=shards)
    assert not tuned(imagenet.dataset(tf, feed, "float32").prefetch(2))
    learnable_cifar(tmp_path, 8, 8)
    for training, split in ((True, "train"), (False, "validation")):
        source = find_prepared(tmp_path, "cifar10", split)
        kind: Any = {"training": training, "dataset": "cifar10", "total": 8, "prepared": source}
        examples = ApplicationFeed(mode, 4, (32, 32, 3), 10, **kind)
        assert not tuned(tfds.dataset(tf, examples, "float32").prefetch(2))


def test_arrays() -> None:
    feed = ArrayFeed("generated", (TensorSpec("x", (2, 3)),))
    assert not tuned(generated_batches(tf, feed, "float32").prefetch(2))


def test_held_batches() -> None:
    """They replace a pipeline's, and dropping an iterator would wait for its tuner."""
    batches = [(tf.zeros([2, 8, 8, 3]), tf.constant([1, 2]))] * 3
    assert not tuned(repeated(tf, batches))
