"""Writes files in the layout of TensorFlow Datasets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Tuple

from ipubench.fixtures.data.tfds.files import IMAGE, LABEL
from ipubench.fixtures.data.tfds.find import INFO, SPLIT_NAMES, TEMPLATE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Labelled = Tuple[NDArray[np.uint8], NDArray[np.integer[Any]]]


VERSION = "3.0.2"
FEATURES = "tensorflow_datasets.core.features"


def write_prepared(
    tf: Any,
    root: Path,
    dataset: str,
    splits: Mapping[str, Labelled],
    classes: int,
    shards: int = 1,
) -> Path:
    """Write ``root/<version>`` and return that folder.

    ``splits`` maps ``train`` and ``validation`` to images uint8 [n, H, W, C] and labels [n], each
    for ``shards`` files.
    """
    folder = root / VERSION
    folder.mkdir(parents=True, exist_ok=True)
    entries: List[Dict[str, Any]] = []
    for split, (images, labels) in splits.items():
        lengths = []
        for index in range(shards):
            chosen = range(index * len(labels) // shards, (index + 1) * len(labels) // shards)
            name = f"{dataset}-{SPLIT_NAMES[split]}.tfrecord-{index:05}-of-{shards:05}"
            with tf.io.TFRecordWriter(str(folder / name)) as writer:
                for number in chosen:
                    writer.write(_example(tf, images[number], int(labels[number])))
            lengths.append(str(len(chosen)))
        entries.append(
            {"name": SPLIT_NAMES[split], "shardLengths": lengths, "filepathTemplate": TEMPLATE}
        )
    image_shape = next(iter(splits.values()))[0].shape[1:]
    _write_json(folder / "features.json", _features(image_shape, classes))
    info = {"name": dataset, "version": VERSION, "fileFormat": "tfrecord", "splits": entries}
    _write_json(folder / INFO, info)
    return folder


def _example(tf: Any, pixels: NDArray[np.uint8], label: int) -> bytes:
    train = tf.train
    png = tf.io.encode_png(pixels).numpy()
    feature = {
        IMAGE: train.Feature(bytes_list=train.BytesList(value=[png])),
        LABEL: train.Feature(int64_list=train.Int64List(value=[label])),
    }
    record: bytes = train.Example(features=train.Features(feature=feature)).SerializeToString(
        deterministic=True
    )
    return record


def _features(image_shape: Tuple[int, ...], classes: int) -> Dict[str, Any]:
    dimensions = [str(length) for length in image_shape]
    features = {
        IMAGE: {
            "pythonClassName": f"{FEATURES}.image_feature.Image",
            "image": {"dtype": "uint8", "shape": {"dimensions": dimensions}},
        },
        LABEL: {
            "pythonClassName": f"{FEATURES}.class_label_feature.ClassLabel",
            "classLabel": {"numClasses": str(classes)},
        },
    }
    return {
        "pythonClassName": f"{FEATURES}.features_dict.FeaturesDict",
        "featuresDict": {"features": features},
    }


def _write_json(path: Path, content: Dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
