"""The data sets that the application trains on, as its program of weight updates sees them."""

from __future__ import annotations

from typing import Dict, NamedTuple, Tuple


class Dataset(NamedTuple):
    """Images of both splits, their shape (height, width, channels), and their classes."""

    train_images: int
    validation_images: int
    image_shape: Tuple[int, int, int]
    classes: int
    preprocess: str  # what is done to pixels on the device where accelerator_side_preprocess is on


DATASETS: Dict[str, Dataset] = {
    "imagenet": Dataset(1281167, 50000, (224, 224, 3), 1000, "imagenet"),
    "cifar10": Dataset(50000, 10000, (32, 32, 3), 10, "cifar10"),
    "cifar100": Dataset(50000, 10000, (32, 32, 3), 100, "cifar10"),
    "mnist": Dataset(60000, 10000, (28, 28, 1), 10, "mnist"),
}
