"""The measured networks, folded and in bfloat16, compared with plain float32."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import weakref
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import numpy as np
import pytest

from ipubench.bench_inference.bench_cnn_torch import HOST
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.machine.packages import version_of
from ipubench.fixtures.runtimes import model_cache
from ipubench.fixtures.runtimes.model_cache import ModelCache
from ipubench.fixtures.runtimes.torch.host.turns import seconds_in_turns
from ipubench.models.published import STAGES as published
from tests.support.harness import ROOT
from tests.support.threads import torch_on_one_thread

pytestmark = pytest.mark.framework

#: Norm of the difference over the norm of the logits. bfloat16 has 8 bits: 0.4% per operation.
BOUNDS = {"bfloat16": 0.06, "float32": 2e-3}
IMAGES = 2
# The meaning of 16.16 on this machine.
DTYPE = CpuDevice().half
DTYPES = sorted({DTYPE, "float32"})


@pytest.fixture(scope="module")
def torch() -> Any:
    return torch_on_one_thread()


@pytest.fixture(scope="module")
def paths() -> List[str]:
    """Sample images, as in the cases with real data."""
    from ipubench.fixtures.data.cache import cache_dir
    from ipubench.fixtures.data.images.samples import sample_folder

    return list(sample_folder(cache_dir()).paths[:IMAGES])


@pytest.fixture
def quick_compiler(torch: Any) -> Iterator[None]:
    """torch.compile without its six programs that test the compiler and the CPU's instructions, and
    without a header that saves time only for many kernels.
    """
    from torch._inductor import config

    with config.patch({"cpp.vec_isa_ok": True, "cpp_cache_precompile_headers": False}):
        yield


def needs_openvino(engine: str = "openvino") -> None:
    """Import OpenVINO; pytest's own importorskip would let it send telemetry about the tests."""
    from ipubench.fixtures.runtimes.torch.host.engines import import_openvino

    if engine == "openvino":
        try:
            import_openvino()
        except ImportError:
            pytest.skip("needs OpenVINO: make setup installs it")


def small_resnet(torch: Any, blocks: Sequence[int] = (1, 1, 1, 1), **changes: Any) -> Any:
    """A ResNet of four blocks, which compiles faster than any measured one."""
    from ipubench.models.torch.torchvision_import import import_torchvision

    torch.manual_seed(0)
    models = import_torchvision().models
    return models.ResNet(models.resnet.BasicBlock, list(blocks), **changes).eval()


def tiny(torch: Any) -> Any:
    """Layers that a ResNet lacks: groups of channels, a group norm, SiLU."""
    nn = torch.nn
    torch.manual_seed(0)
    first = nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.GroupNorm(8, 32), nn.SiLU()
    second = nn.Conv2d(32, 32, 3, padding=1, groups=2, bias=False), nn.BatchNorm2d(32), nn.SiLU()
    last = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
    return nn.Sequential(*first, *second, *last).eval()


def of_every_kind(torch: Any) -> Any:
    """A network with one layer of each kind: torch.compile runs a C++ compiler for each kernel.

    It has a residual block of MobileNet v3 with a depthwise convolution, squeeze and excitation and
    hard swish; groups of channels, a batch norm to fold, SiLU, a group norm, and a ResNet's
    pooling.
    """
    nn, network = torch.nn, HOST["mobilenet-v3-small"].network()()
    network.mb_block = nn.Sequential(network.mb_block[4])
    torch.manual_seed(0)
    network.stem[0] = nn.Conv2d(3, 40, 3, stride=2, padding=1, bias=False)
    network.stem[1] = nn.BatchNorm2d(40)
    grouped = nn.Conv2d(40, 96, 3, padding=1, groups=2, bias=False)
    norms = nn.BatchNorm2d(96), nn.SiLU(), nn.GroupNorm(8, 96)
    network.head = nn.Sequential(grouped, *norms, nn.MaxPool2d(3, stride=2, padding=1))
    network.classifier = nn.Sequential(nn.Linear(96, 10), nn.Hardswish())
    return network.eval()


def images(paths: List[str], size: int, torch: Any) -> Any:
    from ipubench.fixtures.data.images.preprocess import load_image

    return torch.from_numpy(np.stack([load_image(path, size) for path in paths]))


def expected(network: Any, raw: Any, torch: Any) -> Any:
    """Return float32 logits without folding or compiling, with images normalised beforehand."""
    mean = torch.tensor([0.485, 0.456, 0.406]).view(-1, 1, 1)
    deviation = torch.tensor([0.229, 0.224, 0.225]).view(-1, 1, 1)
    with torch.inference_mode():
        return network((raw / 255 - mean) / deviation)


def build(
    network: Any, raw: Any, engine: str, dtype: str, torch: Any, normalise: bool = True, **more: Any
) -> Any:
    from ipubench.fixtures.runtimes.torch.host.engines import build_engine

    kind, device = getattr(torch, dtype), torch.device("cpu")
    shape = tuple(raw.shape)
    return build_engine(
        engine, network, shape, raw.dtype, kind, device, normalise=normalise, **more
    )


def run(network: Any, raw: Any, engine: str, dtype: str, torch: Any, **more: Any) -> Any:
    built = build(network, raw, engine, dtype, torch, **more)
    with torch.inference_mode():
        return built.run(raw).float().clone()


def agree(found: Any, wanted: Any, bound: float, torch: Any) -> None:
    """Check that logits are within the bound, and top-1 is equal if its margin exceeds rounding."""
    error = float((found - wanted).norm() / wanted.norm())
    assert error < bound, f"relative error {error:.2g}"
    rounding = (found - wanted).square().mean(dim=1).sqrt()
    best = wanted.topk(2, dim=1)
    clear = best.values[:, 0] - best.values[:, 1] > 4 * rounding
    assert torch.equal(found.argmax(1)[clear], best.indices[:, 0][clear])


# They repeat blocks of other tested networks. ResNeXts have resnet50's blocks with groups of
# channels, like efficientnet-b0-g16-gn.
DEEPER = {
    *("resnet34", "resnet101", "resnet152", "resnext50", "resnext101", "mobilenet-v3-large"),
    *("efficientnet-b4", "efficientnet-b4-g16-gn"),
}
# Measured before each change; the others at night.
FIRST = {"resnet50", "mobilenet-v3-small"}
# Each kind of an EfficientNet's stages; one has a second block with a residual. The parameter
# counts show how many a published one has (tests/models/test_torch.py).
STAGES = [published[index]._replace(blocks=2 if index == 1 else 1) for index in (0, 1, 2, 4)]


@pytest.mark.numeric
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in FIRST else pytest.mark.nightly)
        for name in HOST
        if name not in DEEPER
    ],
)
def test_what_is_measured_is_the_network(
    name: str,
    paths: List[str],
    torch: Any,
    monkeypatch: pytest.MonkeyPatch,
    quick_compiler: None,
) -> None:
    from ipubench.models.torch import efficientnet

    config = HOST[name]
    # The one with group norms is compiled to C++, which takes seconds for each kind of layer.
    stages = STAGES if config.norm_type == "batch" else STAGES[:2]
    monkeypatch.setattr(efficientnet, "STAGES", stages)
    network, size = config.network()(), config.image_size
    if config.model.startswith("resn"):
        # The other blocks of a layer repeat its second one. Small images are rounded like large
        # ones.
        size = 96
        for layer in ("layer1", "layer2", "layer3", "layer4"):
            setattr(network, layer, getattr(network, layer)[: 2 if layer == "layer1" else 1])
    raw = images(paths, size, torch)
    wanted = expected(network, raw, torch)
    # One network shows that float32 is float32, while others are measured in 16 bits.
    for dtype in DTYPES if name == "mobilenet-v3-small" else [DTYPE]:
        agree(run(network, raw, "auto", dtype, torch), wanted, BOUNDS[dtype], torch)


@pytest.mark.numeric
@pytest.mark.parametrize(
    "engine", ["compile", pytest.param("best", marks=pytest.mark.nightly), "openvino"]
)
def test_other_engines_take_every_kind_of_layer(
    engine: str, paths: List[str], torch: Any, quick_compiler: None
) -> None:
    needs_openvino(engine)
    network = of_every_kind(torch)
    raw = images(paths[:1], 96, torch)
    found = run(network, raw, engine, DTYPE, torch)
    agree(found, expected(network, raw, torch), BOUNDS[DTYPE], torch)


@pytest.mark.numeric
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("engine", ["eager", "onednn", "openvino"])
def test_a_network_gives_the_same_logits_as_float32_also_from_the_cache(
    engine: str, dtype: str, paths: List[str], torch: Any, tmp_path: Path
) -> None:
    needs_openvino(engine)
    network, raw = tiny(torch), images(paths, 64, torch)
    wanted, found = expected(network, raw, torch), []
    for hit in (False, True):
        cache = ModelCache(str(tmp_path), {}, ".pt")
        # The entry is the same for every engine.
        built = build(network, raw, engine, dtype, torch, cache=lambda engine, kept=cache: kept)
        with torch.inference_mode():
            for _ in range(3):
                found.append(built.run(raw).float().clone())
        assert (built.name, cache.hit) == (engine, hit and engine != "eager")
    agree(found[0], wanted, BOUNDS[dtype], torch)
    assert all(torch.equal(found[0], again) for again in found)
    if engine == "onednn":
        assert "oneDNNFusionGroup" in str(built.run.graph_for(raw))
        assert not torch.jit.onednn_fusion_enabled()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_message(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PyTorch's own way to write a file ends the process there.
    full = contextlib.nullcontext(Path("/dev/full"))
    monkeypatch.setattr(model_cache, "replacing", lambda target: full)
    cache = ModelCache(str(tmp_path), {}, ".pt")
    raw = torch.zeros((1, 3, 32, 32), dtype=torch.uint8)
    with pytest.raises(CaseError, match="No space left"):
        build(tiny(torch), raw, "onednn", "float32", torch, cache=lambda engine: cache)


def test_a_failure_of_torch_compile_is_one_message(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no C++ compiler")

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    raw = torch.zeros((1, 3, 32, 32), dtype=torch.uint8)
    with pytest.raises(CaseError, match=r"(?s)engine=eager.*RuntimeError: no C\+\+ compiler$"):
        build(tiny(torch), raw, "compile", "float32", torch)


def test_a_compiled_network_goes_when_its_engine_does(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: List[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        def compiled(*given: Any) -> Any:
            return graph(*given)

        made.append(weakref.ref(compiled))
        return compiled

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    raw = torch.zeros((1, 3, 32, 32))
    built = build(tiny(torch), raw, "compile", "float32", torch)
    assert made[0]() is not None
    del built
    gc.collect()
    assert made[0]() is None


@pytest.mark.parametrize("engine", ["eager", "onednn", "openvino"])
@pytest.mark.parametrize(
    ("eight_bit", "normalization"), [(True, "none"), (False, "none"), (False, "host")]
)
def test_every_engine_takes_images_as_they_are_sent(
    engine: str, eight_bit: bool, normalization: str, paths: List[str], torch: Any
) -> None:
    needs_openvino(engine)
    network, dtype = tiny(torch), getattr(torch, DTYPE)
    raw = images(paths, 64, torch)
    given = raw if eight_bit else (raw / 255 if normalization == "host" else raw.float()).to(dtype)
    with torch.inference_mode():
        wanted = network(given.float())
    found = run(network, given, engine, DTYPE, torch, normalise=False)
    agree(found, wanted, BOUNDS[DTYPE], torch)


@pytest.mark.numeric
# In float32 such blocks have crashed OpenVINO's compiler unless they are expanded.
@pytest.mark.parametrize(
    ("engine", "dtype"), [("openvino", "float32"), *(("onednn", dtype) for dtype in DTYPES)]
)
def test_engines_take_residual_blocks_with_group_norms(
    engine: str, dtype: str, paths: List[str], torch: Any
) -> None:
    needs_openvino(engine)
    network = small_resnet(torch, (2, 1, 1, 1), norm_layer=partial(torch.nn.GroupNorm, 8))
    # The blocks after the first one with a stride repeat it.
    network.layer3 = network.layer4 = torch.nn.Identity()
    network.fc = torch.nn.Linear(128, 10)
    raw = images(paths, 64, torch)
    found = run(network, raw, engine, dtype, torch)
    agree(found, expected(network, raw, torch), BOUNDS[dtype], torch)


@pytest.mark.numeric
def test_the_fastest_engine_takes_a_fourth_channel(paths: List[str], torch: Any) -> None:
    from ipubench.models.torch.layers import pad_input

    network = small_resnet(torch)
    raw = images(paths, 64, torch)
    wanted = expected(network, raw, torch)
    pad_input(network)
    agree(run(network, raw, "auto", DTYPE, torch), wanted, BOUNDS[DTYPE], torch)


@pytest.mark.parametrize("idle", [False, True])
def test_on_a_gpu_the_next_images_are_copied_while_the_network_computes(
    torch: Any, monkeypatch: pytest.MonkeyPatch, idle: bool
) -> None:
    """Doubles replace streams and graphs, and note the order in which work starts."""
    from ipubench.fixtures.runtimes.torch.host import cuda_graph

    started: List[str] = []
    inputs: List[Any] = []

    def replay(name: str, results: Any, work: Any) -> None:
        started.append(name)
        results.copy_(work())

    def record(work: Any, recorded: Any) -> Any:
        inputs.append(work.args[0])
        results = work()
        graph = SimpleNamespace(results=results)
        graph.replay = partial(replay, f"network {len(inputs)}", results, work)
        return graph

    class Stream:
        def wait_event(self, event: Any) -> None:
            started.append(f"waits for {event.name}")

        def wait_stream(self, other: Any) -> None:
            started.append("waits for the images")

    class Event:
        def __init__(self) -> None:
            self.name = "nothing"

        def record(self) -> None:
            self.name = started[-1]

        def query(self) -> bool:
            return idle or self.name == "nothing"

    monkeypatch.setattr(cuda_graph, "record", record)
    for name, value in (("Stream", Stream), ("Event", Event), ("current_stream", Stream)):
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    run = cuda_graph.TakingTurns(lambda images: images * 2, torch.zeros(1))
    assert [float(run(torch.tensor([value]))) for value in (1.0, 2.0, 3.0)] == [2.0, 4.0, 6.0]
    assert inputs[0].data_ptr() != inputs[1].data_ptr()
    first, second = "network 1", "network 2"
    if idle:
        assert started == [first] * 3
    else:
        beside = [[f"waits for {name}", "waits for the images"] for name in ("nothing", first)]
        assert started == [first, *beside[0], second, *beside[1], first]


@pytest.mark.parametrize("from_host", [True, False])
@pytest.mark.parametrize("engine", ["compile", "eager"])
def test_a_gpu_gives_the_logits_of_float32(engine: str, from_host: bool, torch: Any) -> None:
    from ipubench.fixtures.runtimes.torch.host.engines import build_engine

    if not torch.cuda.is_available():
        pytest.skip("needs a GPU that PyTorch sees")
    network = small_resnet(torch)
    sizes, gpu = (4, 3, 64, 64), torch.device("cuda")
    batches = [torch.randint(0, 255, sizes, dtype=torch.uint8) for _ in range(6)]
    built = build_engine(
        engine, network, sizes, torch.uint8, torch.float16, gpu, normalise=True
    )  # fmt: skip
    with torch.inference_mode():
        found = []
        for batch in batches:
            given = batch.pin_memory() if from_host and built.uploads else batch.to(gpu)
            found.append(built.run(given).to("cpu", non_blocking=True))
        torch.cuda.synchronize()
    for raw, logits in zip(batches, found):
        agree(logits.float(), expected(network, raw, torch), 0.02, torch)


@pytest.mark.parametrize(
    ("device", "python", "group_norms", "compiler", "engine"),
    [
        ("cpu", (3, 13), False, True, "onednn"),
        ("cpu", (3, 13), True, True, "compile"),
        ("cpu", (3, 13), True, False, "onednn"),
        ("cpu", (3, 14), False, True, "compile"),
        ("cpu", (3, 14), True, False, "eager"),
        ("cuda", (3, 11), False, False, "compile"),
    ],
)
def test_auto_is_pytorchs_fastest_engine(
    device: str,
    python: Tuple[int, int],
    group_norms: bool,
    compiler: bool,
    engine: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ipubench.fixtures.runtimes.torch.host import engines

    monkeypatch.setattr(engines, "sys", SimpleNamespace(version_info=python))
    monkeypatch.setenv("CXX", sys.executable if compiler else "no-such-compiler")
    assert engines.default_engine(device, group_norms) == engine


@pytest.mark.parametrize("strided", [False, True])
def test_group_norms_of_both_kinds_are_found(strided: bool, torch: Any) -> None:
    from ipubench.fixtures.runtimes.torch.host.engines import has_group_norms
    from ipubench.models.torch.architectures import Norm
    from ipubench.models.torch.norms import apply_norm

    network = small_resnet(torch)
    assert not has_group_norms(network)
    apply_norm(network, Norm("group", groups=8, strided=strided))
    assert has_group_norms(network)


class Engines:
    """Stand-ins for engines: a call moves the clock by the engine's seconds, each seventh more."""

    def __init__(self, seconds: Dict[str, float]) -> None:
        self.seconds = seconds
        self.now, self.calls = 0.0, 0
        self.made: Dict[str, Any] = {}

    def compile(self, name: str, job: Any) -> Any:
        def run(images: Any) -> Any:
            self.calls += 1
            self.now += self.seconds[name] * (20 if self.calls % 7 == 0 else 1)
            return name

        self.made[name] = weakref.ref(run)
        return run


@pytest.mark.parametrize("slow", ["onednn", "compile"])
@pytest.mark.parametrize(("batch", "most_calls"), [(1e-4, 20000), (0.1, 80), (30.0, 20)])
def test_best_keeps_the_faster_engine_and_both_times(
    slow: str, batch: float, most_calls: int, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ipubench.fixtures.runtimes.torch.host import engines

    doubles = Engines({"onednn": batch, "compile": batch, slow: 1.1 * batch})
    for name in doubles.seconds:
        monkeypatch.setitem(engines._COMPILERS, (name, "cpu"), partial(doubles.compile, name))
    timed = partial(seconds_in_turns, clock=lambda: doubles.now)
    monkeypatch.setattr(engines, "seconds_in_turns", timed)
    built = build(tiny(torch), torch.zeros((1, 3, 32, 32)), "best", "float32", torch)
    assert built.run(None) == built.name != slow
    assert doubles.made[slow]() is None  # freed
    found = built.candidates
    assert found[slow] / found[built.name] == pytest.approx(1.1, rel=0.02)
    assert doubles.calls < most_calls


def test_an_engine_of_another_device_is_refused(torch: Any) -> None:
    from ipubench.fixtures.runtimes.torch.host.engines import build_engine

    gpu, network = torch.device("cuda"), torch.nn.Identity()
    with pytest.raises(CaseError, match="engine=onednn .* cuda"):
        build_engine("onednn", network, (1,), torch.uint8, torch.float16, gpu, normalise=False)


# Every attempt to reach another host is refused and recorded.
WATCHED = """
import sys
def watch(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        print(event, arguments[-1] if event == "socket.connect" else arguments[0], flush=True)
        raise OSError("this test has no network")
sys.addaudithook(watch)
{program}
"""
PLAIN = "import openvino"
OURS = """
import torch
from ipubench.fixtures.runtimes.torch.host.engines import build_engine
network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval()
kind, device = torch.float32, torch.device("cpu")
build_engine("openvino", network, (1, 3, 16, 16), kind, kind, device, normalise=False)
"""


def watched(program: str, home: Path) -> str:
    home.mkdir()
    environment: Dict[str, str] = {
        # Without these variables OpenVINO assumes a CI machine.
        **{name: value for name, value in os.environ.items() if name in ("PATH", "LANG")},
        "HOME": str(home),
        "PYTHONPATH": str(ROOT),
    }
    words = [sys.executable, "-c", WATCHED.format(program=program)]
    done = subprocess.run(
        words, cwd=str(home), env=environment, capture_output=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode()


def test_openvino_sends_no_telemetry(tmp_path: Path) -> None:
    needs_openvino()
    if not version_of("openvino-telemetry"):
        pytest.skip("needs openvino-telemetry, which OpenVINO installs")
    # Without the suite OpenVINO does send telemetry, and the test sees it.
    assert "socket." in watched(PLAIN, tmp_path / "plain")
    assert watched(OURS, tmp_path / "ours") == ""
    assert not (tmp_path / "ours" / "intel").exists()
