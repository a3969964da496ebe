"""PyTorch on the CPU: the networks, the engines and the three kinds of data."""

from __future__ import annotations

import dataclasses
import itertools
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Tuple

import numpy as np
import pytest

from ipubench.bench_inference.bench_cnn_torch import HOST
from ipubench.bench_inference.classifier import Classifier
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.data.images.feed import ImageFeed, find_images
from ipubench.fixtures.devices.base import DeviceInfo
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.devices.cuda import CudaDevice
from ipubench.fixtures.runtimes import shared
from ipubench.fixtures.runtimes.step import Work
from tests.runtimes.torch.test_engines import small_resnet
from tests.runtimes.torch.test_engines import needs_openvino

pytestmark = pytest.mark.framework
SMALL = dataclasses.replace(HOST["resnet18"], micro_batch_size=2, data="synthetic")


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch", reason="needs PyTorch: make setup installs it")


@pytest.fixture(scope="module")
def host(torch: Any) -> Iterator[Any]:
    from ipubench.fixtures.runtimes.torch.host import TorchHost

    device = CpuDevice()
    device.attach()
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


def reference(torch: Any, module: Any, images: Any) -> Any:
    """Normalise and classify in float32, step by step."""
    mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    with torch.no_grad():
        return module((images.float() / 255 - mean) / std)


# Relative error of the logits, by norm: float32 differs by the order of sums, bfloat16 has 8 bits.
TOLERANCE = {"float32": 1e-4, "bfloat16": 3e-2}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
# torch.compile, which runs a C++ compiler: tests/runtimes/torch/test_engines.py.
@pytest.mark.parametrize("engine", ["eager", "onednn", "openvino"])
def test_every_engine_agrees_with_float32_eager(
    engine: str, dtype: str, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "openvino":
        needs_openvino()
    if dtype == "bfloat16" and not CpuDevice().fast_bfloat16:
        pytest.skip("needs a CPU with AVX512_BF16 or AMX")
    from ipubench.fixtures.runtimes.torch import engines

    # Whether it crashes is tests/runtimes/torch/test_openvino_guard.py's matter.
    asked: Dict[str, Any] = {}
    monkeypatch.setattr(engines, "require_compilable", lambda _, settings: asked.update(settings))
    module = small_resnet(torch)
    images = torch.randint(0, 255, (2, 3, 64, 64), dtype=torch.uint8)
    built = engines.build_engine(
        engine,
        module,
        (2, 3, 64, 64),
        torch.uint8,
        getattr(torch, dtype),
        torch.device("cpu"),
        normalise=True,
    )
    expected = reference(torch, module, images)
    with torch.inference_mode():
        for _ in range(3):
            found = built.run(images).float()
    error = (found - expected).norm() / expected.norm()
    assert error < TOLERANCE[dtype]
    assert built.name == engine
    if engine == "openvino":
        assert asked == {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16"}[dtype],
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        }
    if engine == "onednn":
        traced: Any = built.run
        assert "oneDNNFusionGroup" in str(traced.graph_for(images))
        assert not torch.jit.onednn_fusion_enabled()


@pytest.mark.parametrize(
    ("device", "python", "engine"),
    [("cpu", (3, 13), "onednn"), ("cpu", (3, 14), "compile"), ("cuda", (3, 11), "compile")],
)
def test_auto_is_the_fastest_of_pytorchs_own(
    device: str, python: Tuple[int, int], engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ipubench.fixtures.runtimes.torch import engines

    monkeypatch.setattr(engines, "sys", SimpleNamespace(version_info=python))
    assert engines.default_engine(device) == engine


def test_a_pipeline_split_that_names_no_layer_is_refused_on_a_host_too(host: Any) -> None:
    config = dataclasses.replace(SMALL, pipeline_splits=("layer3/0/conv9",))
    step = host.inference(config.network(), config, feed(config))
    with pytest.raises(CaseError, match=r"no layer 'layer3/0/conv9'.*layer3/0/conv1"):
        step.build()


def test_an_engine_of_another_device_is_refused(torch: Any) -> None:
    from ipubench.fixtures.runtimes.torch.engines import build_engine

    with pytest.raises(CaseError, match="engine=onednn does not run on cuda"):
        build_engine(
            "onednn",
            torch.nn.Identity(),
            (1, 3, 224, 224),
            torch.uint8,
            torch.float16,
            torch.device("cuda"),
            normalise=False,
        )


@pytest.mark.parametrize(
    ("kind", "fast", "precision", "dtype"),
    [
        ("cpu", True, "16.16", "bfloat16"),
        ("cpu", False, "16.16", "float32"),
        ("cpu", True, "32.32", "float32"),
        ("cuda", True, "16.16", "float16"),
    ],
)
def test_precision_means_what_the_device_is_fast_at(
    kind: str, fast: bool, precision: str, dtype: str, host: Any, torch: Any
) -> None:
    from ipubench.fixtures.runtimes.torch.host import TorchHost

    stand_in = TorchHost.__new__(TorchHost)
    stand_in.device = CpuDevice()
    stand_in.device.kind = kind
    stand_in.device.fast_bfloat16 = fast
    assert stand_in.dtype(precision) == getattr(torch, dtype)


def test_a_kept_network_is_that_of_the_numbers_it_is_built_of(
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


def test_cases_that_differ_in_data_share_one_compiled_network(host: Any) -> None:
    calls: List[int] = []

    def make() -> Any:
        from ipubench.models.torch.classification import build_classifier

        calls.append(1)
        return build_classifier("resnet18")

    compiled = []
    other = dataclasses.replace(SMALL, micro_batch_size=1)
    # SMALL comes last: the tests below have its network as well.
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


def test_generated_inputs_are_copied_for_every_batch(host: Any, torch: Any) -> None:
    config = dataclasses.replace(SMALL, data="generated")
    images = feed(config)
    step = ready(host, config, images)
    inputs = step._source()
    target = next(inputs)
    assert np.array_equal(target.numpy(), images.generated())
    target.zero_()
    assert np.array_equal(next(inputs).numpy(), images.generated())


def test_a_step_runs_the_batches_it_is_asked_for(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_real_images_reach_the_network_and_a_corrupt_one_is_noted(
    host: Any, tmp_path: Path, torch: Any
) -> None:
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
        assert step.prefetched_batches > 0
        step()
        expected = [load_image(str(tmp_path / f"{index}.jpg"), 224) for index in (0, 2)]
        with torch.inference_mode():
            found = next(step._inputs)
        assert any(np.array_equal(found[0].numpy(), image) for image in expected)
        assert [Path(path).name for path in images.corrupt] == ["1.jpg"]
    finally:
        step.close()


def test_the_parts_of_a_step_are_a_burst_read_and_a_batch_classified(
    host: Any, tmp_path: Path, torch: Any
) -> None:
    from PIL import Image

    for index in range(3):
        Image.new("RGB", (260, 240), (index, 0, 0)).save(tmp_path / f"{index}.png")
    config = dataclasses.replace(SMALL, data="real")
    step = ready(host, config, feed(config, folder=find_images(tmp_path), workers=1))
    assert step.loader_and_model() is None  # nothing is read before the first call
    try:
        step()
        loading, computing = step.loader_and_model()
        # A task has 16 images: eight batches of two.
        assert (loading.amount, computing.amount, step.burst) == (8.0, 1.0, 8)
        taken: List[Any] = []
        batches = step._batches

        class Counting:
            def __next__(self) -> Any:
                taken.append(1)
                return next(batches)

        step._batches = Counting()
        loading, computing = step.loader_and_model()
        del taken[:]
        computing.run()
        assert not taken
        loading.run()
        assert len(taken) == 8
    finally:
        step.close()


def test_the_flop_of_a_network_are_the_published_ones(host: Any) -> None:
    """1.81 billion multiply-adds: torchvision's 1.814 GFLOPS counts one per multiply-add."""
    step = ready(host, SMALL, feed(SMALL))
    assert step.flops_per_item() == pytest.approx(2 * 1.814e9, rel=0.001)
    size = 4 if step.describe()["precision"] == "float32" else 2
    assert step.weight_traffic() == size * 11_689_512


def test_the_jobs_for_the_meter_are_real_work(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller than they are: tests/runtimes/onnx/test_host.py has their sizes."""
    monkeypatch.setitem(shared.PEAK_SIZE, "cpu", 256)
    monkeypatch.setitem(shared.COPY_BYTES, "cpu", 1 << 20)
    step = ready(host, SMALL, feed(SMALL))
    step.canary()()
    work = step.copy_work()
    work.run()
    assert work.amount == 2 * (1 << 20)
    peak = step.peak_work()
    peak.run()
    assert peak.amount == 2 * 256**3


def test_the_memory_of_a_case_on_a_gpu_is_without_what_the_meter_measures_beside_it(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ipubench.fixtures.runtimes.torch import host as module
    from ipubench.fixtures.runtimes.torch.classifier import ClassifierStep

    memory = {"now": 0, "peak": 0}

    def hold(change: int) -> None:
        memory["now"] += change
        memory["peak"] = max(memory["peak"], memory["now"])

    def product(self: Any, size: int, dtype: str) -> Work:
        hold(shared.CANARY_BYTES)
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

        def compile_(most: int = compiling) -> bool:  # before there is a canary
            hold(most)
            hold(-most)
            return False

        network: Any = SimpleNamespace(build=lambda: None, compile=compile_, engine=None)
        step = ClassifierStep(gpu, network, ImageFeed("synthetic", batch_size=1))
        step.build()
        hold(5000)  # the device's peaks, where they are not known yet
        hold(-5000)
        step.compile()
        step.canary()()
        hold(running)
        step.canary()()
        assert step.device_memory() == max(compiling, running)
        step.close()
        # The network stays for the case's other kinds of data, and a part of it for ever.
        network.engine = "compiled"
        hold(-shared.CANARY_BYTES)
        other = ClassifierStep(gpu, network, ImageFeed("generated", batch_size=1))
        network.compile = lambda: False
        other.compile()
        assert other.device_memory() == running
        hold(40 - running)
