"""Small images and TFRecords for tests."""

from __future__ import annotations

import io
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Sequence, Tuple

import numpy as np
import pytest
from PIL import Image

from ipubench.fixtures.data.imagenet.shards import ShardSet, find_shards, shard_name

if TYPE_CHECKING:
    from numpy.typing import NDArray


def smooth(height: int, width: int) -> NDArray[np.uint8]:
    """Return [height, width, 3]: red grows from left to right, green from top to bottom."""
    rows, columns = np.mgrid[0:height, 0:width]
    planes = [columns * 255 / (width - 1), rows * 255 / (height - 1), np.full(rows.shape, 90)]
    pixels: NDArray[np.uint8] = np.rint(np.stack(planes, -1)).astype(np.uint8)
    return pixels


def jpeg(pixels: NDArray[np.uint8]) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "JPEG", quality=90, subsampling=0)
    return content.getvalue()


def image_tree(root: Path, classes: int = 3, per_class: int = 8) -> Path:
    """Write small JPEGs of noise, all different, in class folders n00, n01, ..."""
    for label in range(classes):
        (root / f"n{label:02}").mkdir(parents=True, exist_ok=True)
        for number in range(per_class):
            generator = np.random.RandomState(label * per_class + number)
            pixels = generator.randint(0, 256, (24, 32, 3)).astype(np.uint8)
            (root / f"n{label:02}" / f"{number}.jpg").write_bytes(jpeg(pixels))
    return root


def record(tf: Any, **features: Any) -> bytes:
    """Return a serialised tf.train.Example; ``__`` in a name means ``/``."""
    kinds: Dict[str, Any] = {}
    for name, value in features.items():
        values = value if isinstance(value, list) else [value]
        if values and isinstance(values[0], bytes):
            feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        elif values and isinstance(values[0], int):
            feature = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        else:
            feature = tf.train.Feature(float_list=tf.train.FloatList(value=values))
        kinds[name.replace("__", "/")] = feature
    message: bytes = tf.train.Example(features=tf.train.Features(feature=kinds)).SerializeToString()
    return message


def labelled(tf: Any, encoded: bytes, label: int, **more: Any) -> bytes:
    """Return a record of an image and its label, 1-based."""
    return record(tf, image__encoded=encoded, image__class__label=label, **more)


def write_shards(tf: Any, root: Path, split: str, *shards: Iterable[bytes]) -> ShardSet:
    """Write records as the files of a split."""
    write: Sequence[Iterable[bytes]] = shards
    for index, records in enumerate(write):
        with tf.io.TFRecordWriter(str(root / shard_name(split, index, len(write)))) as writer:
            for message in records:
                writer.write(message)
    return find_shards(root, split)


def fill_the_cache_here(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> List[Tuple[str, ...]]:
    """Have a module fill the cache in this process instead of a separate one; return its runs.

    TensorFlow is imported here already; tests/data/test_cache.py tests the process.
    """
    made: List[Tuple[str, ...]] = []

    def make(name: str, what: str, *words: str) -> None:
        made.append((name, *words))
        monkeypatch.setattr(sys, "argv", [name, *words])
        runpy.run_path(str(module.__file__), run_name="__main__")

    monkeypatch.setattr(module, "run_module", make)
    return made
