"""The networks as they are measured, folded and in bfloat16, against float32 as it is written."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from pathlib import Path
from typing import Any, List, Sequence

import numpy as np
import pytest

from ipubench.bench_inference.bench_cnn_torch import HOST
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.models.published import STAGES as published
from tests.support.openvino import needs_openvino

pytestmark = pytest.mark.framework

#: Norm of the difference over the norm of the logits. bfloat16 has 8 bits: 0.4 % per operation.
BOUNDS = {"bfloat16": 0.06, "float32": 2e-3}
IMAGES = 2
# What 16.16 means on this machine.
DTYPE = "bfloat16" if CpuDevice().fast_bfloat16 else "float32"


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch", reason="needs PyTorch: make setup installs it")


@pytest.fixture(scope="module")
def paths() -> List[str]:
    """Sample images, as the cases with real data have them."""
    from ipubench.fixtures.data.cache import cache_dir
    from ipubench.fixtures.data.images.samples import sample_folder

    return list(sample_folder(cache_dir()).paths[:IMAGES])


def small_resnet(torch: Any, blocks: Sequence[int] = (1, 1, 1, 1), **changes: Any) -> Any:
    """A ResNet of four blocks: less to compile than any that is measured."""
    from ipubench.models.torch.torchvision_import import import_torchvision

    torch.manual_seed(0)
    models = import_torchvision().models
    return models.ResNet(models.resnet.BasicBlock, list(blocks), **changes).eval()


def tiny(torch: Any) -> Any:
    """What a ResNet lacks: groups of channels, a group norm, SiLU."""
    nn = torch.nn
    torch.manual_seed(0)
    first = nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.GroupNorm(8, 32), nn.SiLU()
    second = nn.Conv2d(32, 32, 3, padding=1, groups=2, bias=False), nn.BatchNorm2d(32), nn.SiLU()
    last = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
    return nn.Sequential(*first, *second, *last).eval()


def of_every_kind(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A network with one layer of each kind: torch.compile runs a C++ compiler for each kernel.

    A MobileNet of one residual block, which has a depthwise convolution, squeeze and excitation and
    hard swish. Behind it are groups of channels, a batch norm to fold, SiLU, a group norm and the
    pooling of a ResNet.
    """
    from ipubench.models.torch.mobilenet_v3 import STEM_CHANNELS, VARIANTS

    nn, variant = torch.nn, VARIANTS["small"]
    block = variant.blocks[3]._replace(outputs=STEM_CHANNELS, stride=1)
    monkeypatch.setitem(VARIANTS, "small", variant._replace(blocks=(block,)))
    network = HOST["mobilenet-v3-small"].network()()
    width = 6 * STEM_CHANNELS
    torch.manual_seed(0)
    grouped = nn.Conv2d(width, width, 3, padding=1, groups=2, bias=False)
    norms = nn.BatchNorm2d(width), nn.SiLU(), nn.GroupNorm(8, width)
    pool = nn.MaxPool2d(3, stride=2, padding=1)
    network.head = nn.Sequential(network.head, grouped, *norms, pool)
    return network.eval()


@pytest.fixture
def unguarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile with OpenVINO in this process alone: none of these networks crashes its compiler.

    What a crash ends in: tests/runtimes/torch/test_openvino_guard.py.
    """
    from ipubench.fixtures.runtimes.torch import engines

    monkeypatch.setattr(engines, "require_compilable", lambda model, settings: None)


def images(paths: List[str], size: int, torch: Any) -> Any:
    from ipubench.fixtures.data.images.preprocess import load_image

    return torch.from_numpy(np.stack([load_image(path, size) for path in paths]))


def expected(network: Any, raw: Any, torch: Any) -> Any:
    """The logits of float32, nothing folded or compiled, images normalised before."""
    mean = torch.tensor([0.485, 0.456, 0.406]).view(-1, 1, 1)
    deviation = torch.tensor([0.229, 0.224, 0.225]).view(-1, 1, 1)
    with torch.inference_mode():
        return network((raw / 255 - mean) / deviation)


def run(network: Any, raw: Any, engine: str, dtype: str, torch: Any) -> Any:
    from ipubench.fixtures.runtimes.torch.engines import build_engine

    kind, device = getattr(torch, dtype), torch.device("cpu")
    built = build_engine(engine, network, tuple(raw.shape), raw.dtype, kind, device, normalise=True)
    with torch.inference_mode():
        return built.run(raw).float()


def always(cache: Any) -> Any:
    """The entry that build_engine asks for, whichever engine it names."""
    return lambda engine: cache


def agree(found: Any, wanted: Any, bound: float, torch: Any) -> None:
    """Logits are within the bound; top-1 is the same where the margin is beyond rounding."""
    error = float((found - wanted).norm() / wanted.norm())
    assert error < bound, f"relative error {error:.2g}"
    rounding = (found - wanted).square().mean(dim=1).sqrt()
    best = wanted.topk(2, dim=1)
    clear = best.values[:, 0] - best.values[:, 1] > 4 * rounding
    assert torch.equal(found.argmax(1)[clear], best.indices[:, 0][clear])


# They repeat the blocks of others that are tested. ResNeXts have those of resnet50 with groups of
# channels, as efficientnet-b0-g16-gn has them.
DEEPER = {
    *("resnet34", "resnet101", "resnet152", "resnext50", "resnext101", "mobilenet-v3-large"),
    *("efficientnet-b4", "efficientnet-b4-g16-gn"),
}


# An EfficientNet's stages, of which one has a second block, whose input is added to its output.
# How many a published one has, its parameters tell (tests/models/test_torch.py).
STAGES = [stage._replace(blocks=2 if index == 1 else 1) for index, stage in enumerate(published)]


@pytest.mark.numeric
@pytest.mark.parametrize("name", [name for name in HOST if name not in DEEPER])
def test_what_is_measured_is_the_network(
    name: str, paths: List[str], torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ipubench.models.torch import efficientnet

    monkeypatch.setattr(efficientnet, "STAGES", STAGES)
    config = HOST[name]
    network = config.network()()
    # A ResNet rounds a small image as it does a large one. Other networks are further off there.
    size = 96 if config.model.startswith("resn") else config.image_size
    raw = images(paths, size, torch)
    wanted = expected(network, raw, torch)
    # One network shows that float32 is float32 where others are measured in 16 bits.
    for dtype in {DTYPE, "float32"} if name == "mobilenet-v3-small" else {DTYPE}:
        agree(run(network, raw, "auto", dtype, torch), wanted, BOUNDS[dtype], torch)


@pytest.mark.numeric
@pytest.mark.usefixtures("unguarded")
def test_openvino_takes_every_kind_of_layer(
    paths: List[str], torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's own fastest is the one that the networks above are measured with."""
    needs_openvino()
    network = of_every_kind(torch, monkeypatch)
    raw = images(paths[:1], 96, torch)
    found = run(network, raw, "openvino", DTYPE, torch)
    agree(found, expected(network, raw, torch), BOUNDS[DTYPE], torch)


@pytest.mark.usefixtures("unguarded")
@pytest.mark.parametrize("dtype", sorted({DTYPE, "float32"}))
@pytest.mark.parametrize("engine", ["onednn", "openvino"])
def test_a_kept_network_gives_the_same_logits(
    engine: str, dtype: str, paths: List[str], torch: Any, tmp_path: Path
) -> None:
    from ipubench.fixtures.runtimes.model_cache import ModelCache
    from ipubench.fixtures.runtimes.torch.engines import build_engine

    if engine == "openvino":
        needs_openvino()
    network = tiny(torch)
    raw = images(paths, 64, torch)
    logits, hits = [], []
    for _ in range(2):
        cache = ModelCache(str(tmp_path), {"engine": engine}, ".pt")
        built = build_engine(
            engine, network, tuple(raw.shape), raw.dtype, getattr(torch, dtype), raw.device,
            normalise=True, cache=always(cache),
        )  # fmt: skip
        with torch.inference_mode():
            logits.append(built.run(raw).clone())
        assert built.name == engine
        hits.append(cache.hit)
    assert hits == [False, True]
    assert torch.equal(logits[0], logits[1])
    agree(logits[1].float(), expected(network, raw, torch), BOUNDS[dtype], torch)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_without_room_for_a_network_is_one_message(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ipubench.fixtures.runtimes import model_cache
    from ipubench.fixtures.runtimes.torch.engines import build_engine

    # PyTorch's own way to write a file ends the process there.
    monkeypatch.setattr(
        model_cache, "replacing", lambda target: contextlib.nullcontext(Path("/dev/full"))
    )
    cache = model_cache.ModelCache(str(tmp_path), {}, ".pt")
    with pytest.raises(CaseError, match="the compiled model cannot be kept in .*No space left"):
        build_engine(
            "onednn", tiny(torch), (1, 3, 32, 32), torch.uint8, torch.float32,
            torch.device("cpu"), normalise=True, cache=always(cache),
        )  # fmt: skip


@pytest.mark.numeric
def test_torch_compile_takes_every_kind_of_layer_and_keeps_kernels_that_were_gone(
    paths: List[str], torch: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One network for both: to compile the C++ kernels anew takes most of the time."""
    from torch._inductor import config

    from ipubench.fixtures.runtimes.model_cache import ModelCache
    from ipubench.fixtures.runtimes.torch.engines import build_engine
    from ipubench.fixtures.runtimes.torch.inductor_cache import kept_by_inductor

    # Compiled for an empty folder alone: six programs that ask which instructions the compiler and
    # the CPU have, and a header that saves time from the second kernel on.
    monkeypatch.setattr(config.cpp, "vec_isa_ok", True)
    monkeypatch.setattr(config, "cpp_cache_precompile_headers", False)
    network, raw = of_every_kind(torch, monkeypatch), images(paths[:1], 96, torch)
    dtype = getattr(torch, DTYPE)

    def built(cache: ModelCache) -> Any:
        return build_engine(
            "compile", network, tuple(raw.shape), raw.dtype, dtype, raw.device,
            normalise=True, cache=always(cache),
        )  # fmt: skip

    cache, gone, kept = (ModelCache(str(tmp_path), {}, ".pt") for _ in range(3))
    cache.store(lambda path: _write(path, "some-folder"))
    with pytest.warns(UserWarning, match="some-folder is missing"):
        engines = [built(gone)]
    kernels = sorted(tmp_path.rglob("*.so"))
    engines.append(built(kept))
    assert (gone.hit, kept.hit) == (False, True)
    assert sorted(tmp_path.rglob("*.so")) == kernels != []
    # Nor does another process compile them: nothing has an address in its name.
    assert not any(" at 0x" in path.read_text() for path in tmp_path.rglob("*.main.cpp"))
    with torch.inference_mode():
        found, again = (engine.run(raw).clone() for engine in engines)
    assert torch.equal(found, again)
    agree(found.float(), expected(network, raw, torch), BOUNDS[DTYPE], torch)
    assert [engine.name for engine in engines] == ["compile"] * 2
    assert cache.load(_read) != "some-folder"
    # Where nothing is to be kept, it is compiled and no more.
    assert kept_by_inductor(lambda: network, None) is network


def test_what_torch_compile_cannot_compile_is_one_message(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from ipubench.fixtures.runtimes.model_cache import ModelCache
    from ipubench.fixtures.runtimes.torch.engines import build_engine

    def backend(graph: Any, inputs: Any) -> Any:
        kept = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
        (kept / "half").touch()
        raise RuntimeError("no C++ compiler")

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    with pytest.raises(
        CaseError,
        match=r"engine=eager runs without: [^:]*raised:\nRuntimeError: no C\+\+ compiler$",
    ):
        build_engine(
            "compile", tiny(torch), (1, 3, 32, 32), torch.uint8, torch.float32,
            torch.device("cpu"), normalise=True, cache=always(ModelCache(str(tmp_path), {}, ".pt")),
        )  # fmt: skip
    assert list(tmp_path.iterdir()) == []
    assert caplog.records == []


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def _read(path: Path) -> str:
    return path.read_text()


@pytest.mark.usefixtures("unguarded")
@pytest.mark.parametrize("engine", ["eager", "onednn", "openvino"])
@pytest.mark.parametrize(
    ("eight_bit", "normalization"), [(True, "none"), (False, "none"), (False, "host")]
)
def test_every_engine_takes_images_as_they_travel(
    engine: str, eight_bit: bool, normalization: str, paths: List[str], torch: Any
) -> None:
    from ipubench.fixtures.runtimes.torch.engines import build_engine

    if engine == "openvino":
        needs_openvino()
    network, dtype = tiny(torch), getattr(torch, DTYPE)
    raw = images(paths, 64, torch)
    given = raw if eight_bit else (raw / 255 if normalization == "host" else raw.float()).to(dtype)
    built = build_engine(
        engine, network, tuple(raw.shape), given.dtype, dtype, raw.device, normalise=False
    )
    with torch.inference_mode():
        wanted = network(given.float())
        agree(built.run(given).float(), wanted, BOUNDS[DTYPE], torch)


@pytest.mark.numeric
# In float32 such blocks have crashed OpenVINO's compiler.
@pytest.mark.parametrize(
    ("engine", "dtype"),
    [("openvino", "float32"), *(("onednn", dtype) for dtype in sorted({DTYPE, "float32"}))],
)
def test_engines_take_residual_blocks_with_group_norms(
    engine: str,
    dtype: str,
    paths: List[str],
    torch: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    if engine == "openvino":
        needs_openvino()
    # With an answer that is kept, a crash of OpenVINO's compiler would end this process.
    monkeypatch.setenv("IPUBENCH_CACHE_DIR", str(tmp_path))
    network = small_resnet(torch, (2, 1, 1, 1), norm_layer=partial(torch.nn.GroupNorm, 8))
    # The blocks behind the first with a stride repeat it.
    network.layer3 = network.layer4 = torch.nn.Identity()
    network.fc = torch.nn.Linear(128, 10)
    raw = images(paths, 64, torch)
    found = run(network, raw, engine, dtype, torch)
    agree(found, expected(network, raw, torch), BOUNDS[dtype], torch)


def test_eager_has_nothing_to_keep(torch: Any, tmp_path: Path) -> None:
    from ipubench.fixtures.runtimes.model_cache import ModelCache
    from ipubench.fixtures.runtimes.torch.engines import build_engine

    cache = ModelCache(str(tmp_path), {}, ".pt")
    with pytest.raises(CaseError, match="engine=eager compiles nothing that could be kept"):
        build_engine(
            "eager", tiny(torch), (1, 3, 32, 32), torch.uint8, torch.float32,
            torch.device("cpu"), normalise=True, cache=always(cache),
        )  # fmt: skip


@pytest.mark.numeric
def test_the_fastest_engine_takes_a_fourth_channel(paths: List[str], torch: Any) -> None:
    from ipubench.models.torch.layers import pad_input

    network = small_resnet(torch)
    raw = images(paths, 64, torch)
    wanted = expected(network, raw, torch)
    pad_input(network)
    agree(run(network, raw, "auto", DTYPE, torch), wanted, BOUNDS[DTYPE], torch)
