"""PopART's graphs as CUDA graphs on a GPU, or on a CPU without recording."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Sequence

import numpy as np
import pytest

from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.devices.cuda import CudaDevice
from ipubench.fixtures.runtimes.onnx.engine import RING
from tests.support.onnx_weights import weights_of
from tests.support.popart_graphs import (
    CONVS,
    LSTMS,
    batches_of,
    expected,
    first_batch,
    first_weights,
    gradients,
    ready,
)

pytestmark = pytest.mark.framework

KERNELS: List[Any] = [LSTMS[1], CONVS[0]]


@dataclass(frozen=True)
class Computed:
    """Replaces a recorded graph: computes again, into the same memory."""

    work: Callable[[], Dict[str, Any]]
    results: Dict[str, Any]
    inference: bool

    def replay(self) -> None:
        import torch

        with torch.inference_mode(self.inference):
            with torch.enable_grad():
                found = self.work()
            for name, value in self.results.items():
                value.copy_(found[name])


def compute(work: Callable[[], Dict[str, Any]], recorded: Sequence[Computed] = ()) -> Computed:
    import torch

    work()
    results = {name: value.detach().clone() for name, value in work().items()}
    return Computed(work, results, torch.is_inference_mode_enabled())


@pytest.fixture(params=["cpu", "cuda"])
def popart(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """PopART's host runtime with the GPU engine."""
    for module in ("onnx", "onnxruntime", "torch"):
        pytest.importorskip(module, reason=f"{module} is not installed: make setup installs it")
    import torch

    from ipubench.fixtures.runtimes.onnx import cuda_engine, torch_engine
    from ipubench.fixtures.runtimes.onnx.onnx_host import OnnxHost

    device: Any = CudaDevice(0) if request.param == "cuda" else CpuDevice()
    if request.param == "cpu":
        monkeypatch.setattr(torch_engine, "TorchEngine", cuda_engine.CudaEngine)
        monkeypatch.setattr(cuda_engine, "record", compute)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    elif not torch.cuda.is_available():
        pytest.skip("needs a GPU that PyTorch sees")
    device.attach()
    device.threads = 1  # next to pytest-xdist's other worker two threads take ten times as long
    yield OnnxHost(device)
    device.release()


@pytest.mark.parametrize("data", ["synthetic", "generated"])
@pytest.mark.parametrize("mode", ["inference", "evaluation"])
@pytest.mark.parametrize("config", KERNELS)
def test_each_alternating_batch_has_its_own_result(
    popart: Any, config: Any, mode: str, data: str
) -> None:
    config = dataclasses.replace(config, mode=mode, engine="torch", data=data, precision="32.32")
    step = ready(popart, config)  # ran the first batch
    assert step.describe()["cuda_graph"] is True
    weights, batches = first_weights(config), batches_of(step)
    ran = 1
    for count in (1, RING + 1):
        step.batches_per_step = count
        step()
        ran += count
        wanted = expected(config, weights, batches[(ran - 1) % RING])
        found = step.engine.results()
        assert set(found) == set(wanted)
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=5e-5)
        if data == "generated":
            delivered = found["output" if mode == "inference" else "loss"]
            np.testing.assert_array_equal(step.engine.delivered.numpy(), delivered)
    for before, after in zip(batches, batches_of(step)):
        np.testing.assert_array_equal(before["inputs"], after["inputs"])
    step.close()


@pytest.mark.parametrize("data", ["synthetic", "generated"])
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("config", KERNELS)
def test_every_batch_is_one_update(popart: Any, config: Any, recompute: bool, data: str) -> None:
    config = dataclasses.replace(
        config, mode="training", precision="32.32", data=data, learning_rate=1.0,
        recompute=recompute,
    )  # fmt: skip
    step = ready(popart, config)  # ran the first batch
    step.batches_per_step = 5
    step()
    weights, batches = first_weights(config), batches_of(step)
    for index in range(6):
        batch = batches[index % RING]
        wanted = expected(config, weights, batch)
        slopes = gradients(config, weights, batch)
        weights = {name: value - slopes[name] for name, value in weights.items()}
    # At this rate each update amplifies the rounding of the one before.
    for name, value in step.engine.results().items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-3, atol=1e-3)
    for name, value in weights_of(step.engine.kernel, weights).items():
        np.testing.assert_allclose(value, weights[name], rtol=1e-3, atol=1e-3)
    step.close()


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("config", KERNELS)
def test_sixteen_bits_are_near(popart: Any, config: Any, mode: str) -> None:
    kind = "float16" if popart.device.kind == "cuda" else "bfloat16"
    config = dataclasses.replace(config, mode=mode, engine="torch", precision="16.32")
    step = ready(popart, config)
    if step.describe()["precision"] != kind:
        pytest.skip("needs a CPU with AVX512_BF16 or AMX")
    wanted = expected(config, first_weights(config), first_batch(step))
    for name, value in step.engine.results().items():
        np.testing.assert_allclose(value, wanted[name], rtol=3e-2, atol=3e-2)
    step.close()
