"""The networks as they are measured, folded and in bfloat16, against float32 as it is written."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, List

import numpy as np
import pytest

from bench_inference.bench_cnn_torch import HOST
from fixtures.errors import CaseError

pytestmark = pytest.mark.framework

#: Norm of the difference over the norm of the logits. bfloat16 has 8 bits: 0.4 % per operation.
BOUNDS = {"bfloat16": 0.06, "float32": 2e-3}
IMAGES = 2


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch", reason="needs PyTorch: make setup installs it")


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> List[str]:
    """Sample images, as the cases with real data have them."""
    from fixtures.data.samples import sample_folder

    return list(sample_folder(tmp_path_factory.mktemp("cache")).paths[:IMAGES])


def images(paths: List[str], size: int, torch: Any) -> Any:
    from fixtures.data.preprocess import load_image

    return torch.from_numpy(np.stack([load_image(path, size) for path in paths]))


def expected(network: Any, raw: Any, torch: Any) -> Any:
    """The logits of float32, nothing folded or compiled, images normalised before."""
    mean = torch.tensor([0.485, 0.456, 0.406]).view(-1, 1, 1)
    deviation = torch.tensor([0.229, 0.224, 0.225]).view(-1, 1, 1)
    with torch.inference_mode():
        return network((raw / 255 - mean) / deviation)


def run(network: Any, raw: Any, engine: str, dtype: str, torch: Any) -> Any:
    from fixtures.runtimes.torch_engines import build_engine

    kind, device = getattr(torch, dtype), torch.device("cpu")
    built = build_engine(engine, network, tuple(raw.shape), raw.dtype, kind, device, normalise=True)
    with torch.inference_mode():
        return built.run(raw).float()


def agree(found: Any, wanted: Any, bound: float, torch: Any) -> None:
    """Logits are within the bound; top-1 is the same where the margin is beyond rounding."""
    error = float((found - wanted).norm() / wanted.norm())
    assert error < bound, f"relative error {error:.2g}"
    rounding = (found - wanted).square().mean(dim=1).sqrt()
    best = wanted.topk(2, dim=1)
    clear = best.values[:, 0] - best.values[:, 1] > 4 * rounding
    assert torch.equal(found.argmax(1)[clear], best.indices[:, 0][clear])


@pytest.mark.parametrize("name", HOST)
def test_what_is_measured_is_the_network(name: str, paths: List[str], torch: Any) -> None:
    config = HOST[name]
    network = config.network()()
    raw = images(paths, config.image_size, torch)
    found = run(network, raw, "auto", "bfloat16", torch)
    agree(found, expected(network, raw, torch), BOUNDS["bfloat16"], torch)


@pytest.mark.parametrize("name", ["resnet50", "mobilenet-v3-small", "efficientnet-b0-g16-gn"])
def test_float32_is_float32(name: str, paths: List[str], torch: Any) -> None:
    network = HOST[name].network()()
    raw = images(paths, HOST[name].image_size, torch)
    found = run(network, raw, "auto", "float32", torch)
    agree(found, expected(network, raw, torch), BOUNDS["float32"], torch)


@pytest.mark.parametrize("engine", ["onednn", "openvino", "compile"])
def test_every_engine_takes_every_kind_of_layer(
    engine: str, paths: List[str], torch: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if engine == "openvino":
        pytest.importorskip("openvino", reason="needs OpenVINO: make setup installs it")
    # Compiled kernels of an earlier run would hide one that no longer compiles.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    # Depthwise and grouped convolutions, squeeze and excitation, hard swish; group norms.
    names = ("mobilenet-v3-small", "efficientnet-b0-g16-gn")
    for name in names[: 1 if engine == "compile" else 2]:
        network = HOST[name].network()()
        raw = images(paths[:1], HOST[name].image_size, torch)
        found = run(network, raw, engine, "bfloat16", torch)
        agree(found, expected(network, raw, torch), BOUNDS["bfloat16"], torch)


@pytest.mark.parametrize("engine", ["onednn", "openvino"])
def test_a_kept_network_gives_the_same_logits(
    engine: str, paths: List[str], torch: Any, tmp_path: Path
) -> None:
    from fixtures.runtimes.model_cache import ModelCache
    from fixtures.runtimes.torch_engines import build_engine

    if engine == "openvino":
        pytest.importorskip("openvino", reason="needs OpenVINO: make setup installs it")
    network = HOST["resnet18"].network()()
    raw = images(paths, 224, torch)
    logits, hits = [], []
    for _ in range(2):
        cache = ModelCache(str(tmp_path), {"engine": engine}, ".pt")
        built = build_engine(
            engine, network, tuple(raw.shape), raw.dtype, torch.bfloat16, raw.device,
            normalise=True, cache=cache,
        )  # fmt: skip
        with torch.inference_mode():
            logits.append(built.run(raw).clone())
        hits.append(cache.hit)
    assert hits == [False, True]
    assert torch.equal(logits[0], logits[1])


def test_eager_has_nothing_to_keep(torch: Any, tmp_path: Path) -> None:
    from fixtures.runtimes.model_cache import ModelCache
    from fixtures.runtimes.torch_engines import build_engine

    cache = ModelCache(str(tmp_path), {}, ".pt")
    with pytest.raises(CaseError, match="engine=eager compiles nothing that could be kept"):
        build_engine(
            "eager", HOST["resnet18"].network()(), (1, 3, 224, 224), torch.uint8, torch.float32,
            torch.device("cpu"), normalise=True, cache=cache,
        )  # fmt: skip


@pytest.mark.parametrize("changes", [{"norm_type": "group"}, {"input_image_padding": True}])
def test_the_options_of_a_network_reach_what_is_measured(
    changes: Any, paths: List[str], torch: Any
) -> None:
    config = dataclasses.replace(HOST["resnet18"], **changes)
    network = config.network()()
    raw = images(paths, 224, torch)
    wanted = expected(network, raw, torch)
    agree(run(network, raw, "auto", "bfloat16", torch), wanted, BOUNDS["bfloat16"], torch)
    plain = expected(HOST["resnet18"].network()(), raw, torch)
    same = bool((plain - wanted).norm() < 1e-3 * wanted.norm())
    assert same == (changes == {"input_image_padding": True})
