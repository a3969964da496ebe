"""Small image classifier cases for tests of the TensorFlow runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List

import numpy as np

from ipubench.bench_training.training import Training
from ipubench.fixtures.data.imagenet.shards import find_shards
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.runtimes.tensorflow.host.tensorflow_host import TensorFlowHost
from ipubench.fixtures.runtimes.tensorflow.host.training import TrainingStep
from tests.support.tensorflow_cnn import network

# Without batch norms, so that a batch's images are independent.
SMALL = {
    "name": "small",
    "model_size": "10",  # if a test asks for the configuration's own network
    "image_size": 32,
    "micro_batch_size": 4,
    "data": "synthetic",
    "precision": "32.32",
    "warmup_epochs": 0.0,
    "normalise_input": True,
}
SIDE = 48  # of the images in files
COLOURS = {"blue": (40, 60, 200), "green": (50, 190, 60), "red": (200, 50, 40)}
IMAGES_PER_CLASS = 8


def small(**options: Any) -> Training:
    """Return a small training configuration."""
    return Training(**{**SMALL, **options})


def nothing(*_: Any) -> Any:
    """Replaces a data set that must not be used."""
    raise AssertionError("this case needs no data set")


def data_of(shards: Path) -> Data:
    """Return a function that opens the feeds of the TFRecords in a folder."""
    return Data(lambda kind, split: find_shards(shards, split))


def trained(
    config: Training, shards: Any = None, own_network: bool = False, keep: float = 1.0
) -> TrainingStep:
    """Return a configuration's step on this machine's CPU, built and not yet compiled.

    By default it trains three convolutions and a dense layer instead of the configuration's own
    network: TensorFlow takes seconds to trace even a ResNet-10. ``keep`` is dropout's.
    """
    data = data_of(shards) if shards else Data(nothing)
    runtime = TensorFlowHost(CpuDevice())
    feed = config.feed(data)
    norm = "batch" if config.batch_norm else "group"
    built = config.classifier() if own_network else network(norm, keep, feed.classes)
    step = runtime.training(built, config, feed)
    step.build()
    return step


def weights(step: TrainingStep) -> List[Any]:
    """Return the values of the trainable variables."""
    return [variable.numpy() for variable in step.classifier.trainable_variables]


def image_folder(root: Path) -> Path:
    """Write images in class folders, train/ and val/, with a noisy colour for each class."""
    from PIL import Image

    generator = np.random.RandomState(0)
    for split in ("train", "val"):
        for name, colour in COLOURS.items():
            folder = root / split / name
            folder.mkdir(parents=True)
            for number in range(IMAGES_PER_CLASS):
                noise = generator.normal(0, 40, (SIDE, SIDE, 3))
                pixels = np.clip(np.asarray(colour) + noise, 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.jpg")
    return root


def record_folder(root: Path) -> Path:
    """Return a folder with TFRecords of :func:`image_folder`, two shards per split."""
    from ipubench.fixtures.data.build_tfrecords.__main__ import main

    source, target = image_folder(root / "images"), root / "records"
    shards = ["--train-shards", "2", "--validation-shards", "2"]
    assert main([str(source), str(target), *shards]) == 0
    return target
