"""PyTorch on the CPU: a step on the three kinds of data, and its facts for the meter."""

from __future__ import annotations

import dataclasses
import itertools
import weakref
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator, List

import numpy as np
import pytest

from ipubench.bench_inference.bench_cnn_torch import HOST
from ipubench.bench_inference.classifier import Classifier
from ipubench.fixtures import devices
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.data.images.feed import ImageFeed, find_images
from ipubench.fixtures.devices.base import DeviceInfo
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.devices.cuda import CudaDevice
from ipubench.fixtures.machine.processor import read_topology
from ipubench.fixtures.runtimes import shared
from ipubench.fixtures.runtimes.step import Work, ask
from tests.support.threads import torch_on_one_thread

pytestmark = pytest.mark.framework
SMALL = dataclasses.replace(HOST["resnet18"], engine="eager", micro_batch_size=2, data="synthetic")


@pytest.fixture(scope="module")
def torch() -> Any:
    return torch_on_one_thread()


@pytest.fixture(scope="module")
def host(torch: Any) -> Iterator[Any]:
    from ipubench.fixtures.runtimes.torch.host.torch_host import TorchHost

    device = CpuDevice()
    device.attach()
    device.threads = 1
    yield TorchHost(device)
    device.release()


def feed(config: Classifier, **changes: Any) -> ImageFeed:
    facts = {
        "mode": config.data,
        "batch_size": config.micro_batch_size,
        "image_size": config.image_size,
        "eight_bit": config.eight_bit_io,
        "normalization": config.normalization_location,
    }
    return ImageFeed(**{**facts, **changes})


def test_an_unknown_pipeline_split_is_refused_on_a_host_too(host: Any) -> None:
    config = dataclasses.replace(SMALL, pipeline_splits=("layer3/0/conv9",))
    step = host.inference(config.network(), config, feed(config))
    with pytest.raises(CaseError, match=r"no layer 'layer3/0/conv9'.*layer3/0/conv1"):
        step.build()


@pytest.mark.parametrize(
    ("kind", "fast", "precision", "dtype"),
    [
        ("cpu", True, "16.16", "bfloat16"),
        ("cpu", False, "16.16", "float32"),
        ("cpu", True, "32.32", "float32"),
        ("cuda", True, "16.16", "float16"),
    ],
)
def test_precision_follows_the_device(
    kind: str, fast: bool, precision: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = dataclasses.replace(read_topology(), flags=("avx512_bf16",) if fast else ())
    monkeypatch.setattr("ipubench.fixtures.devices.cpu.read_topology", lambda: topology)
    device = devices.make(kind)
    assert shared.compute_dtype(device, precision) == dtype


def test_a_cached_network_belongs_to_the_numbers_it_is_built_from(
    host: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ipubench.models import published

    config = dataclasses.replace(SMALL, model_cache_path=str(tmp_path / "kept"))
    monkeypatch.setattr(host.device, "info", DeviceInfo("cpu", "a CPU", "cpu", {}), raising=False)
    network = host.inference(config.network(), config, feed(config)).network
    before = network._cache("onednn").name
    monkeypatch.setattr(published, "__file__", str(tmp_path / "published.py"))
    (tmp_path / "published.py").write_text("STEM_CHANNELS = 40")
    assert network._cache("onednn").name != before


def test_the_record_has_the_engine_that_best_kept_and_the_times_of_both(host: Any) -> None:
    from ipubench.fixtures.runtimes.torch.host.engines import Engine

    step = host.inference(SMALL.network(), SMALL, feed(SMALL))
    assert step.counters() == {}
    times = {"onednn": 0.2, "compile": 0.1}
    step.network.engine = Engine("compile", lambda images: images, candidates=times)
    # describe() has no times: records whose settings differ are incomparable.
    assert step.describe()["engine"] == "compile"
    assert step.counters() == {"engine_candidates": times}


def test_cases_that_differ_in_data_share_one_compiled_network(host: Any) -> None:
    calls: List[int] = []

    def make() -> Any:
        from ipubench.models.torch.classification import build_classifier

        calls.append(1)
        return build_classifier("resnet18")

    compiled = []
    other = dataclasses.replace(SMALL, micro_batch_size=1)
    # SMALL comes last: the tests below also use its network.
    for config in (other, SMALL, dataclasses.replace(SMALL, data="generated")):
        step = host.inference(make, config, feed(config))
        step.build()
        compiled.append(step.compile())
        step()
        step.close()
    assert compiled == [True, True, False]
    assert len(calls) == 2


def ready(host: Any, config: Classifier, images: ImageFeed) -> Any:
    from ipubench.models.torch.classification import build_classifier

    step = host.inference(partial(build_classifier, config.model), config, images)
    step.build()
    step.compile()
    return step


def test_synthetic_inputs_are_made_once_and_alternate(host: Any, torch: Any) -> None:
    step = ready(host, SMALL, feed(SMALL))
    first, second, third = itertools.islice(step._source(), 3)
    assert first.dtype == torch.uint8 and not torch.equal(first, second)
    assert third.data_ptr() == first.data_ptr()


def test_generated_inputs_are_copied_for_every_batch(host: Any) -> None:
    config = dataclasses.replace(SMALL, data="generated")
    images = feed(config)
    inputs = ready(host, config, images)._source()
    target = next(inputs)
    assert np.array_equal(target.numpy(), images.generated())
    target.zero_()
    assert np.array_equal(next(inputs).numpy(), images.generated())


def test_a_step_runs_the_requested_batches(host: Any) -> None:
    step = ready(host, SMALL, feed(SMALL))
    calls: List[Any] = []
    inner = step.network

    class Counting:
        shape, input_dtype = inner.shape, inner.input_dtype

        def __call__(self, images: Any) -> Any:
            calls.append(images)
            return inner(images)

    step.network = Counting()
    step.batches_per_step = 5
    step()
    assert len(calls) == 5


def test_real_images_reach_the_network_and_a_step_has_two_halves(
    host: Any, tmp_path: Path, torch: Any
) -> None:
    """A corrupt image is reported; the halves are reading a burst and classifying a batch."""
    from PIL import Image

    from ipubench.fixtures.data.images.preprocess import load_image

    for index in range(3):
        pixels = np.random.RandomState(index).randint(0, 255, (300, 260, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{index}.jpg")
    (tmp_path / "1.jpg").write_bytes((tmp_path / "1.jpg").read_bytes()[:500])
    config = dataclasses.replace(SMALL, data="real")
    images = feed(config, folder=find_images(tmp_path), workers=1)
    step = ready(host, config, images)
    try:
        assert step.loading.prefetched > 0
        step()
        expected = [load_image(str(tmp_path / f"{index}.jpg"), 224) for index in (0, 2)]
        with torch.inference_mode():
            found = next(step._inputs)
        assert any(np.array_equal(found[0].numpy(), image) for image in expected)
        assert [Path(path).name for path in images.corrupt] == ["1.jpg"]

        taken: List[Any] = []
        batches = step._batches

        class Counting:
            def __next__(self) -> Any:
                taken.append(1)
                return next(batches)

        step._batches = Counting()
        loading, computing = step.loading.halves()
        # A task has 16 images: eight batches of two.
        assert (loading.amount, computing.amount, step.loading.burst) == (8.0, 1.0, 8)
        del taken[:]
        computing.run()
        assert not taken
        loading.run()
        assert len(taken) == 8
    finally:
        step.close()
    left = weakref.ref(step)
    del step, loading, computing
    assert left() is None  # without a garbage collection


def test_the_flop_of_a_network_are_the_published_ones(host: Any) -> None:
    """1.81 billion multiply-adds: torchvision's 1.814 GFLOPS counts one per multiply-add."""
    step = ready(host, SMALL, feed(SMALL))
    assert ask(step.work.flops_per_item) == pytest.approx(2 * 1.814e9, rel=0.001)
    size = 4 if step.describe()["precision"] == "float32" else 2
    assert ask(step.work.weight_traffic) == size * 11_689_512


def test_the_gpu_memory_of_a_case_excludes_the_meters_own_work(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ipubench.fixtures.runtimes.torch.host import torch_host as module
    from ipubench.fixtures.runtimes.torch.host.classifier import ClassifierStep

    memory = {"now": 0, "peak": 0}

    def hold(change: int) -> None:
        memory["now"] += change
        memory["peak"] = max(memory["peak"], memory["now"])

    def product(self: Any, size: int, dtype: str) -> Work:
        hold(3000)
        return Work(lambda: None, 2.0 * size**3)

    monkeypatch.setattr(module, "without_tf32", lambda: None)
    monkeypatch.setattr(module.TorchHost, "_product", product)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: memory["peak"])
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: memory["now"])
    monkeypatch.setattr(
        torch.cuda, "reset_peak_memory_stats", lambda: memory.update(peak=memory["now"])
    )
    gpu = module.TorchHost(CudaDevice(0))
    for compiling, running in ((900, 700), (10, 700)):

        def compile_(most: int = compiling) -> bool:
            hold(most)
            hold(-most)
            return False

        network: Any = SimpleNamespace(
            build=lambda: None,
            compile=compile_,
            engine=None,
            dtype="float32",
            flops_per_image=None,
            weight_bytes=None,
        )
        step = ClassifierStep(gpu, network, ImageFeed("synthetic", batch_size=1))
        step.build()
        hold(5000)  # the device's peaks, if they are not known yet
        hold(-5000)
        step.compile()
        assert step.reference.canary is not None
        step.reference.canary()()
        hold(running)
        assert ask(step.device_memory) == max(compiling, running)
        step.close()
        # The network stays for the case's other kinds of data, and part of it until the process
        # ends.
        network.engine = "compiled"
        network.compile = lambda: False
        other = ClassifierStep(gpu, network, ImageFeed("generated", batch_size=1))
        other.compile()
        assert ask(other.device_memory) == running
        hold(40 - running)
