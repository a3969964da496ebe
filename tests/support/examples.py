"""Small data sets for tests, in the layout of TensorFlow Datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ipubench.fixtures.data.feed_options import DATASETS
from ipubench.fixtures.data.tfds.samples import textures
from tests.support.tfds_files import write_prepared


def learnable(
    tf: Any, folder: Path, dataset: str, images: int, validation: int = 0, shards: int = 1
) -> Path:
    """Write a data set of ``images`` for training and ``validation`` (a fifth) into ``folder``.

    ``--dataset-dir=FOLDER`` reads it. Returns the folder with its files.
    """
    kind = DATASETS[dataset]
    counts = {"train": images, "validation": validation or max(1, images // 5)}
    splits = {
        split: textures(count, kind.image_shape, kind.classes, seed)
        for seed, (split, count) in enumerate(counts.items(), start=1)
    }
    return write_prepared(tf, folder / dataset, dataset, splits, kind.classes, shards)


def learnable_cifar(folder: Path, images: int = 1000, validation: int = 0, shards: int = 1) -> Path:
    """Write a data set in CIFAR-10's layout that a convolutional network can learn.

    Otherwise like :func:`learnable`.
    """
    import tensorflow as tf

    return learnable(tf, folder, "cifar10", images, validation, shards)
