"""Helpers for tests of classifiers on IPUs: a small network, its data, the stand-ins."""

from __future__ import annotations

import sys
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest

from ipubench.fixtures.data.imagenet.feed import ImageNetFeed
from ipubench.fixtures.data.tf_data import plain_options
from ipubench.fixtures.devices.ipu import IpuDevice
from ipubench.fixtures.poplar.poplar_options import TF_FLAGS
from tests.doubles import popdist
from tests.doubles import tensorflow_ipu as double
from tests.support.tensorflow_cnn import CLASSES

HARDWARE = IpuDevice()
SYNTHETIC = "--use_synthetic_data --synthetic_data_initializer=normal"
SIZE, BATCH = 16, 4
SPLITS = {1: (), 2: ("b2",), 4: ("b1", "b2", "top")}


def install(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return TensorFlow with the SDK's modules, in use already with the flags of host data."""
    module = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    for name, part in double.modules().items():
        monkeypatch.setitem(sys.modules, name, part)
    monkeypatch.setitem(sys.modules, "popdist", None)
    monkeypatch.delenv(TF_FLAGS, raising=False)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    return module


def start_instance(
    monkeypatch: pytest.MonkeyPatch, index: int, instances: int, replicas: int, ipus: int
) -> None:
    """Make this process an instance that poprun started."""
    for name, part in {**popdist.as_modules(), **double.distribution()}.items():
        monkeypatch.setitem(sys.modules, name, part)
    job = popdist.recorder
    job.index, job.instances, job.replicas, job.ipus_per_replica = index, instances, replicas, ipus


def feed(mode: str = "generated", **changes: Any) -> ImageNetFeed:
    return ImageNetFeed(mode, BATCH, (SIZE, SIZE, 3), CLASSES, eight_bit=True, **changes)


def batches(count: int = 32) -> Tuple[Any, Any]:
    """Return uint8 images [count, BATCH, SIZE, SIZE, 3] and labels int32 [count, BATCH]."""
    generator = np.random.RandomState(3)
    labels = generator.randint(0, CLASSES, (32, BATCH)).astype(np.int32)
    images = generator.randint(0, 256, (count, BATCH, SIZE, SIZE, 3)).astype(np.uint8)
    return images, labels[:count]


def use_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all feeds repeat the batches of :func:`batches`."""

    def dataset(tf: Any, feed: ImageNetFeed, compute: str, start: int = 0) -> Any:
        endless = tf.data.Dataset.from_tensor_slices(batches()).repeat()
        return endless.skip(start).with_options(plain_options(tf))

    monkeypatch.setattr("ipubench.fixtures.data.imagenet.pipeline.dataset", dataset)


def values(variables: Any) -> List[Any]:
    return [variable.numpy() for variable in variables]


def given(name: str) -> Dict[str, Any]:
    """Return the arguments of the last call with this name."""
    return [arguments for called, arguments in double.recorder.calls if called == name][-1]
