"""The readers of what others may have written: their bounds, and a sound input of each.

A reader takes any bytes and ends in a value or in one of its own errors, within seconds and 500 MB.
test_readers.py finds readers that are not in this table.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import itertools
import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Tuple, Type

import numpy as np
from PIL import Image

from ipubench.fixtures.case import untrusted
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.yaml_reader import LARGEST, YamlError
from ipubench.fixtures.data.feeds import MAX_PIXELS, MOST_IMAGE_BYTES
from ipubench.fixtures.data.imagenet.shards import fault_of_file
from ipubench.fixtures.data.images.preprocess import load_image
from ipubench.fixtures.data.tfds import find
from ipubench.fixtures.devices import lease
from ipubench.fixtures.runtimes.model_cache import ModelCache
from ipubench.fixtures.runtimes.step import Work
from ipubench.fixtures.runtimes.tensorflow.application import checkpoints
from ipubench.plugins.baseline import format as baseline_format
from ipubench.plugins.baseline.format import BaselineError
from ipubench.plugins.baseline.runs import read_run
from ipubench.plugins.baseline.store import load_all
from ipubench.plugins.benchmarks_yml.reader import read_entries
from ipubench.plugins.compare.policy_file import Policy, PolicyError
from ipubench.plugins.measure.peaks import Peaks
from ipubench.plugins.record import files
from ipubench.plugins.record.files import write_json
from tests.support.baselines import document, entry

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Reader:
    """One reader: ``read(folder, content)`` puts the content where the product looks for it."""

    module: str  # of the product, whose function reads
    bound: str  # in words, for people
    sound: Callable[[Path], bytes]  # made in a folder
    read: Callable[[Path, bytes], Any]
    errors: Tuple[Type[Exception], ...] = ()


def _file(name: str, read: Callable[[Path], Any]) -> Callable[[Path, bytes], Any]:
    """Return a reader of one file."""

    def put_and_read(folder: Path, content: bytes) -> Any:
        path = folder / name
        path.write_bytes(content)
        return read(path)

    return put_and_read


def _baseline(folder: Path) -> bytes:
    stored = {**document(entry("a"), entry("b")), "ipubench": {"format": 2}}
    write_json(folder / "sound.json", stored)
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
        {"type": "case", "benchmark": entry("a")},
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
    # Work that takes a second by its clock: what is kept is read, compared with it and replaced.
    work = Work(lambda: None, 1e10)
    return Peaks(path, "cpu/x", itertools.count().__next__).get("copy", lambda: work)


def _holder(folder: Path) -> bytes:
    return b'{"pid": 12, "command": "pytest -k dense", "since": 1700000000.0}'


def _read_holder(folder: Path, content: bytes) -> Any:
    (folder / "cpu-0.holder").write_bytes(content)
    opened = os.open(str(folder), os.O_RDONLY)
    try:
        with (folder / "cpu-0.holder").open() as said:
            fcntl.flock(said, fcntl.LOCK_EX)
            text = lease.LeaseFolder(folder, opened, "").describe_holder("cpu-0")
    finally:
        os.close(opened)
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
    facts = {
        "sha256": hashlib.sha256(b"model").hexdigest(),
        "files": {"a.popef": "00"},
        "compile_seconds": 3.5,
    }
    return json.dumps(facts).encode()


def _read_model_facts(folder: Path, content: bytes) -> Any:
    cache = ModelCache(str(folder / "models"), {"a": 1}, ".pt")
    cache.path.write_bytes(b"model")
    cache.path.with_suffix(".json").write_bytes(content)
    cache.load(Path.read_bytes)
    cache.hit = True
    return cache.damaged(), cache.note(1.0)


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
    "baseline": Reader(
        "plugins/baseline/store.py",
        f"{baseline_format.MOST_BYTES >> 20} MiB, {baseline_format.MOST_VALUES:,} values, "
        f"{untrusted.MOST_LEVELS} levels, the first {baseline_format.MOST_PROBLEMS} problems",
        _baseline,
        _file("main.json", load_all),
        (BaselineError,),
    ),
    "journal": Reader(
        "plugins/record/files.py",
        f"{files.MOST_JOURNAL >> 30} GiB, {files.MOST_LINE >> 20} MiB a line, "
        f"{untrusted.MOST_LEVELS} levels; a damaged line is left out",
        _journal,
        _file("run-20260101T000000-1.jsonl", read_run),
        (BaselineError,),
    ),
    "benchmarks.yml": Reader(
        "fixtures/case/yaml_reader.py",
        f"{LARGEST >> 10} KiB, 200,000 merged names, 10,000 variants",
        _spec,
        _file("benchmarks.yml", lambda path: read_entries(path, "benchmarks.yml")),
        (YamlError,),
    ),
    "gate.yml": Reader(
        "plugins/compare/policy_file.py",
        "as benchmarks.yml",
        _policy,
        _file("gate.yml", Policy.load),
        (PolicyError,),
    ),
    "peaks.json": Reader(
        "plugins/measure/peaks.py",
        f"{untrusted.MOST_BYTES >> 20} MiB, {untrusted.MOST_LEVELS} levels, rates below 1e18",
        _peaks,
        _file("peaks.json", _read_peaks),
    ),
    "holder of a lock": Reader(
        "fixtures/devices/lease.py",
        f"{lease.MOST_HOLDER >> 10} KiB, no link, {lease.MOST_COMMAND} characters shown",
        _holder,
        _read_holder,
    ),
    "checkpoint": Reader(
        "fixtures/runtimes/tensorflow/application/checkpoints.py",
        "no larger in memory than on disk, facts of 1 MiB, numbers only",
        _checkpoint,
        _file("checkpoint-00000003.npz", _read_checkpoint),
        (CaseError,),
    ),
    "facts of a kept model": Reader(
        "fixtures/runtimes/model_cache.py",
        f"{untrusted.MOST_BYTES >> 20} MiB, names without folders",
        _model_facts,
        _read_model_facts,
        (CaseError,),
    ),
    "dataset_info.json": Reader(
        "fixtures/data/tfds/find.py",
        f"{find.MOST_INFO >> 20} MiB, names without folders, counts of 12 digits",
        _dataset_info,
        _file("dataset_info.json", _read_dataset_info),
        (CaseError,),
    ),
    "TFRecord": Reader(
        "fixtures/data/imagenet/shards.py",
        "reads lengths only, and seeks; no record is empty",
        _records,
        _file("train-00000-of-00001", lambda path: fault_of_file(str(path))),
    ),
    "image": Reader(
        "fixtures/data/images/preprocess.py",
        f"{MOST_IMAGE_BYTES >> 20} MiB, {MAX_PIXELS:,} pixels, before and after resizing",
        _picture,
        _file("image.jpeg", lambda path: load_image(path, 32)),
        (CaseError,),
    ),
}

#: Product modules that read what nobody else writes: why each may read it as it is.
TRUSTED: Dict[str, str] = {
    "fixtures/case/untrusted.py": "the bounded reader itself",
    "fixtures/case/values.py": "the value of --set, on the user's own command line",
    "fixtures/data/build_tfrecords/source.py": "lines of a file that was read within bounds",
    "fixtures/data/build_tfrecords/writer.py": "images that are packed as they are",
    "fixtures/devices/__init__.py": "a file of the installed PyTorch",
    "fixtures/instances/protocol.py": "messages of instances, which have the key",
    "fixtures/machine/cgroup.py": "files of the kernel",
    "fixtures/machine/contention.py": "files of the kernel",
    "fixtures/machine/files.py": "what this user keeps or has built, for its digest",
    "fixtures/machine/memory.py": "files of the kernel",
    "fixtures/machine/packages.py": "what an installed package says of itself",
    "fixtures/machine/process.py": "lines of our own supervisor, logs of what it started",
    "fixtures/machine/processor.py": "files of the kernel",
    "fixtures/machine/supervisor.py": "the order of our own parent",
    "fixtures/poplar/options.py": "the user's own --set, or our own YAML",
    "fixtures/runtimes/data_parallel.py": "a variable of our own parent",
    "fixtures/runtimes/model_cache.py": "our own code, for its digest",
    "fixtures/runtimes/torch/engines.py": "kept models: code, in a private folder",
    "fixtures/runtimes/torch/inductor_cache.py": "the name of a kept folder, in a private folder",
    "fixtures/runtimes/torch/openvino_guard.py": "words of our own parent",
    "fixtures/servers/arrivals.py": "the summary that LoadGen has just written for us",
    "fixtures/servers/client.py": "orders of our own parent",
    "fixtures/servers/clients.py": "lines of our own clients",
    "fixtures/servers/tensorflow_serving/client.py": "requests that our own parent wrote",
    "fixtures/servers/tensorflow_serving/prediction_service.py": "a file that our own parent wrote",
    "fixtures/servers/triton/classifiers.py": "facts that this run wrote",
    "fixtures/servers/triton/client.py": "images that our own parent wrote",
    "fixtures/servers/triton/network.py": "words of our own parent",
    "fixtures/servers/triton/python_model.py": "the configuration that this run wrote",
    "models/torch/classification.py": "weights of the user, read without pickle",
    "plugins/baseline/collected.py": "the list that our own child wrote",
    "plugins/baseline/format.py": "our own schema",
    "plugins/benchmarks_yml/command.py": "what the user's own command printed",
    "plugins/benchmarks_yml/metrics.py": "what the user's own command printed",
    "plugins/command_line/set_option.py": "our own table",
    "plugins/command_line/words.py": "words of the user's own command line",
    "plugins/compare/operations.py": "traces that this run wrote",
    "plugins/fleet/checkout.py": "the lock of a folder of this user alone",
    "plugins/fleet/connection.py": "what a member that we started says; ssh has let us in there",
    "plugins/fleet/facts.py": "a file of the kernel",
    "plugins/fleet/member.py": "the orders of our own controller",
    "plugins/processes/other_python.py": "what the user's own interpreter says",
    "plugins/processes/worker.py": "the order of our own controller",
    "plugins/record/pytest_benchmark_adapter.py": "a value of this process",
    "plugins/report/published.py": "our own table",
    "plugins/run/time_spent.py": "a file of the kernel",
    "plugins/web/templates.py": "our own templates, scripts and styles",
}
