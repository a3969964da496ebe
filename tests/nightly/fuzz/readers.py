"""Readers of files and messages that others may have written, each with a valid input.

A reader accepts any bytes and returns a value or raises its own error.
"""

from __future__ import annotations

import io
import itertools
import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Type

import numpy as np
from PIL import Image

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.yaml_reader import YamlError
from ipubench.fixtures.data.imagenet.shards import fault_of_file
from ipubench.fixtures.data.images.preprocess import load_for_gpu, load_image
from ipubench.fixtures.data.tfds import find
from ipubench.fixtures.devices import lease
from ipubench.fixtures.runtimes.model_cache import ModelCache
from ipubench.fixtures.runtimes.step import Work
from ipubench.fixtures.runtimes.tensorflow.application import checkpoints
from ipubench.plugins.baseline.format import BaselineError
from ipubench.plugins.baseline.runs import read_run
from ipubench.plugins.baseline.store import load_all
from ipubench.plugins.benchmarks_yml.reader import read_entries
from ipubench.plugins.gate.policy_file import Policy, PolicyError
from ipubench.plugins.measure.peaks import Peaks
from ipubench.plugins.record.files import write_json
from ipubench.plugins.record.structs import as_plain
from tests.support.baselines import STORED, document, entry

if TYPE_CHECKING:
    from numpy.typing import NDArray


class NeverRaised(Exception):
    """The error of a reader that accepts anything."""


@dataclass(frozen=True)
class Reader:
    """One reader: ``read(folder, content)`` puts the content where the product reads it."""

    sound: Callable[[Path], bytes]  # made in a folder
    read: Callable[[Path, bytes], Any]
    error: Type[Exception] = NeverRaised


def _file(name: str, read: Callable[[Path], Any]) -> Callable[[Path, bytes], Any]:
    """Return a reader of one file."""

    def put_and_read(folder: Path, content: bytes) -> Any:
        path = folder / name
        path.write_bytes(content)
        return read(path)

    return put_and_read


def _baseline(folder: Path) -> bytes:
    write_json(folder / "sound.json", as_plain(document(entry("a"), entry("b"))))
    return (folder / "sound.json").read_bytes()


def _journal(folder: Path) -> bytes:
    lines = [
        {
            "type": "run",
            "format": 2,
            "command": ["-k", "a"],
            "started": 1.0,
            "pid": 1,
            "circumstances": {},
        },
        {"type": "selected", "cases": ["bench_x.py::bench_x[a]"]},
        {"type": "case", "benchmark": as_plain(entry("a"))},
        {"type": "begin", "case": "bench_x.py::bench_x[a]"},
        {"type": "outcome", "case": "bench_x.py::bench_x[a]", "outcome": "passed"},
        {"type": "end", "exit_code": 0, "ended": 2.0},
    ]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def _spec(folder: Path) -> bytes:
    return b"""\
common_options: &common
  env: {A: b}
  data:
    throughput: {regexp: 'throughput: (.*?) img', skip: 1, reduction_type: mean}
one_pod4_gen:
  <<: *common
  cmd: python3 x.py --batch-size {bs} --n {{1}}
  parameters: {bs: '1,2'}
two:
  <<: *common
  cmd: python3 y.py {m}
  parameters: [[m], [a], [b]]
  derived: {double: {expr: throughput * 2}}
"""


def _policy(folder: Path) -> bytes:
    return b"default: {throughput: 2%}\ncases:\n  '*hmc*': ignore\n  '*dense*': {throughput: 3%}\n"


def _peaks(folder: Path) -> bytes:
    return b'{"cpu/x": {"copy": 1e10, "product": 3e12}}'


def _read_peaks(path: Path) -> Any:
    # Work that takes a second by its clock; the stored peak is read, compared and replaced.
    work = Work(lambda: None, 1e10)
    return Peaks(path, "cpu/x", itertools.count().__next__).get("copy", lambda: work)


def _holder(folder: Path) -> bytes:
    return b'{"pid": 12, "command": "pytest -k dense", "since": 1700000000.0}'


def _read_holder(folder: Path, content: bytes) -> Any:
    (folder / "cpu-0.lock").write_bytes(content)
    text = lease.describe_holder(folder / "cpu-0.lock")
    assert text.isprintable() and len(text) < 500
    return text


def _checkpoint(folder: Path) -> bytes:
    arrays: Dict[str, NDArray[Any]] = {
        "weights/0": np.arange(6, dtype=np.float32),
        "draws": np.asarray(3, np.int64),
    }
    return checkpoints.save(folder, 3, arrays, {"epoch": 1}).read_bytes()


def _read_checkpoint(path: Path) -> Any:
    return checkpoints.newest(path.parent).arrays()


def _model_facts(folder: Path) -> bytes:
    return json.dumps({"compile_seconds": 3.5}).encode()


def _read_model_facts(folder: Path, content: bytes) -> Any:
    cache = ModelCache(str(folder / "models"), {"a": 1}, ".pt")
    cache.path.with_suffix(".json").write_bytes(content)
    cache.hit = True
    return cache.note(1.0)


def _dataset_info(folder: Path) -> bytes:
    for number in range(2):
        (folder / f"cifar10-train.tfrecord-{number:05}-of-00002").write_bytes(_records(folder))
    return json.dumps(
        {
            "name": "cifar10",
            "fileFormat": "tfrecord",
            "splits": [
                {
                    "name": "train",
                    "shardLengths": ["2", "1"],
                    "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
                }
            ],
        }
    ).encode()


def _read_dataset_info(path: Path) -> Any:
    return find.find_prepared(path.parent, "cifar10", "train")


def _records(folder: Path) -> bytes:
    return b"".join(struct.pack("<Q", 5) + bytes(4) + b"image" + bytes(4) for _ in range(3))


def _picture(folder: Path) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.zeros((16, 24, 3), np.uint8)).save(file, "JPEG")
    return file.getvalue()


READERS: Dict[str, Reader] = {
    "baseline": Reader(_baseline, _file("main.json", load_all), BaselineError),
    "file of pytest-benchmark": Reader(
        lambda folder: (STORED / "pytest-benchmark.json").read_bytes(),
        _file("0001_x.json", load_all),
        BaselineError,
    ),
    "journal": Reader(_journal, _file("run-20260101T000000-1.jsonl", read_run), BaselineError),
    "benchmarks.yml": Reader(
        _spec, _file("benchmarks.yml", lambda path: read_entries(path, "benchmarks.yml")), YamlError
    ),
    "gate.yml": Reader(_policy, _file("gate.yml", Policy.load), PolicyError),
    "peaks.json": Reader(_peaks, _file("peaks.json", _read_peaks)),
    "holder of a lock": Reader(_holder, _read_holder),
    "checkpoint": Reader(
        _checkpoint, _file("checkpoint-00000003.npz", _read_checkpoint), CaseError
    ),
    "facts of a kept model": Reader(_model_facts, _read_model_facts, CaseError),
    "dataset_info.json": Reader(
        _dataset_info, _file("dataset_info.json", _read_dataset_info), CaseError
    ),
    "TFRecord": Reader(
        _records, _file("train-00000-of-00001", lambda path: fault_of_file(str(path)))
    ),
    "image": Reader(_picture, _file("image.jpeg", lambda path: load_image(path, 32)), CaseError),
    "image for a GPU": Reader(
        _picture, _file("image.jpeg", lambda path: load_for_gpu(path, 32)), CaseError
    ),
}
