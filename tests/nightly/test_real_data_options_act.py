"""Options for files act in an IPU's infeed, or are refused or declared idle.

As in tests/nightly/test_options_act.py, on a few files. The queue's data set is compared, with all
of its sources, and the order of its batches.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, Callable, Generator, List, Set

import pytest

from ipubench.bench_training.application.case import Application
from ipubench.bench_training.application.rules import settled
from ipubench.bench_training.bench_cnn_tensorflow import M2000
from ipubench.bench_training.training import Training
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.data.tfds.find import find_prepared
from ipubench.fixtures.runtimes.tensorflow.ipu.tensorflow_ipu import TensorFlowIpu
from tests.doubles.tensorflow_ipu import recorder
from tests.nightly.options_act import digest_of, without_effect
from tests.support.application_ipu import start
from tests.support.examples import learnable_cifar
from tests.support.records import jpeg, labelled, smooth, write_shards
from tests.support.tensorflow_cnn import network
from tests.support.tensorflow_ipu import HARDWARE, install

pytestmark = pytest.mark.framework

IMAGES = 50
APPLICATION = Application(
    name="small",
    system="ipu",
    data="real",
    model_name="toy_model_bn",
    precision="32.32",
    micro_batch_size=5,
    num_epochs=1,
    weight_updates_per_epoch=4,
    validation=False,
    eight_bit_transfer=True,
    accelerator_side_preprocess=True,
    pipeline_num_parallel=1,
)
#: Options for files only; tests of generated data cover the others.
OF_FILES = {"deterministic", "shuffle", "seed", "pipeline_num_parallel", "dataset_cache"}


@pytest.fixture(autouse=True)
def tf(monkeypatch: pytest.MonkeyPatch) -> Any:
    # A machine of some cores, wherever the tests run.
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    return install(monkeypatch)


@pytest.fixture
def data(tf: Any, tmp_path: Path) -> Data:
    """CIFAR-10 with 50 images, and seven of ImageNet's in two files per split."""
    learnable_cifar(tmp_path / "cifar", IMAGES, 10, shards=2)

    def shards(split: str) -> Any:
        picture = jpeg(smooth(40, 60))
        contents = [[labelled(tf, picture, n) for n in some] for some in ((1, 2, 3, 4), (5, 6, 7))]
        return write_shards(tf, tmp_path, split, *contents)

    def find(kind: str, *names: str) -> Any:
        return shards(*names) if kind == "records" else find_prepared(tmp_path / "cifar", *names)

    return Data(find)


def opened(step: Any, look: Callable[[Any], Any]) -> Any:
    """Return the visible properties of the data set that a step passes to its infeed."""
    try:
        step.build()
        return look(recorder.queues[-1]._dataset)
    finally:
        step.close()


def of_application(config: Application, data: Data, look: Callable[[Any], Any]) -> Any:
    recorder.reset()
    config = settled(config)
    runtime = TensorFlowIpu(HARDWARE)
    feed, validation = config.feed(data), config.validation_feed(data)
    step = runtime.application(config.classifier(), config, feed, validation)
    return opened(step, look)


def of_training(config: Training, data: Data, look: Callable[[Any], Any]) -> Any:
    recorder.reset()
    runtime = TensorFlowIpu(HARDWARE)
    step = runtime.training(network("group"), config, config.feed(data))
    return opened(step, look)


def made_of(tf: Any, dataset: Any) -> str:
    """Return a digest of a data set's graph: operations, their options and constants."""
    graph = tf.raw_ops.DatasetToGraphV2(input_dataset=dataset._variant_tensor)
    return digest_of(str(tf.compat.v1.GraphDef.FromString(graph.numpy())))


@pytest.mark.parametrize("dataset", ["cifar10", "imagenet"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_option_of_the_applications_files_acts(
    dataset: str, shuffle: bool, data: Data, tf: Any
) -> None:
    config = dataclasses.replace(APPLICATION, dataset=dataset, shuffle=shuffle)
    if dataset == "imagenet":
        config = dataclasses.replace(config, micro_batch_size=1, gradient_accumulation_count=2)
    others = {item.name for item in dataclasses.fields(config)} - OF_FILES

    def request(one: Application) -> Generator[str, None, None]:
        yield str(of_application(one, data, lambda found: made_of(tf, found)))

    assert without_effect(config, request, others) == set()


def test_every_option_of_a_trainings_files_acts(data: Data, tf: Any) -> None:
    config = dataclasses.replace(
        M2000["resnet50"],
        precision="32.32",
        shards=1,
        replicas=1,
        pipeline=False,
        pipeline_splits=(),
        available_memory_proportion=(),
        micro_batch_size=2,
        gradient_accumulation_count=2,
    )
    assert config.data == "real"
    others = {item.name for item in dataclasses.fields(config)} - OF_FILES

    def request(one: Training) -> Generator[str, None, None]:
        yield str(of_training(one, data, lambda found: made_of(tf, found)))

    assert without_effect(config, request, others) == set()


def test_the_infeed_has_the_requested_order(
    data: Data, tf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The images of CIFAR-10 differ: each pass has all of them, shuffled again or in order."""
    monkeypatch.setattr("ipubench.fixtures.data.tfds.pipeline.PADDING", 0)  # whole images

    def order(**changes: Any) -> List[List[int]]:
        config = dataclasses.replace(APPLICATION, **changes)
        found = of_application(config, data, lambda batches: list(batches.take(20)))
        sums = [int(tf.reduce_sum(tf.cast(i, tf.int64))) for batch in found for i in batch[0]]
        return [sums[:IMAGES], sums[IMAGES:]]

    first, second = order(shuffle=False)
    assert first == second
    assert order(deterministic=True) == [first, first]  # which disables shuffling
    shuffled, again = order(shuffle=True)
    assert sorted(shuffled) == sorted(again) == sorted(first)
    assert len({tuple(one) for one in (first, shuffled, again)}) == 3
    assert order(shuffle=True) == [shuffled, again]
    assert order(shuffle=True, seed=5)[0] != shuffled


@pytest.mark.parametrize("deterministic", [True, False])
def test_imagenet_images_keep_their_order_only_on_request(
    deterministic: bool, data: Data, tf: Any
) -> None:
    config = dataclasses.replace(
        APPLICATION, dataset="imagenet", micro_batch_size=1, deterministic=deterministic
    )

    def parallel(dataset: Any) -> Set[str]:
        graph = tf.raw_ops.DatasetToGraphV2(input_dataset=dataset._variant_tensor)
        nodes = tf.compat.v1.GraphDef.FromString(graph.numpy()).node
        named = [n for n in nodes if "Parallel" in n.op and "deterministic" in n.attr]
        assert {n.op.split("Dataset")[0] for n in named} >= {"ParallelInterleave", "ParallelMap"}
        return {n.attr["deterministic"].s.decode() for n in named}

    assert of_application(config, data, parallel) == {"true" if deterministic else "false"}


@pytest.mark.parametrize(("index", "labels"), [(0, {0, 1, 2, 3}), (1, {4, 5, 6})])
def test_an_instance_reads_its_share_of_the_files(
    index: int, labels: Set[int], data: Data, tf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(monkeypatch, index, 2, 2, 1)
    config = dataclasses.replace(
        APPLICATION, dataset="imagenet", micro_batch_size=1, replicas=2, instances=2
    )
    found = of_application(config, data, lambda batches: list(batches.take(14)))
    assert {int(batch[1][0]) for batch in found} == labels
