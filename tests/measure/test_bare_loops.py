"""The bare loops of scripts/bench_overhead.py do the same work as the steps."""

from __future__ import annotations

import dataclasses
from typing import Any, List

import pytest

from ipubench.bench_inference.bench_cnn_torch import HOST
from ipubench.bench_kernels.bench_dense import Dense
from ipubench.fixtures.devices.cpu import CpuDevice
from scripts.bench_overhead import network_loop, tensorflow_loop
from tests.support.kernels import DATA, built

pytestmark = [pytest.mark.framework, pytest.mark.nightly]


def test_a_loop_in_tensorflow_runs_the_batches_of_the_step() -> None:
    step = built(Dense(batch_size=2, size=4))
    step.compile()
    assert tensorflow_loop(step)(3) == pytest.approx(step.run(3))


def test_a_loop_in_pytorch_runs_the_compiled_network() -> None:
    pytest.importorskip("torch", reason="needs PyTorch: make setup installs it")
    from ipubench.fixtures.runtimes.torch.host.engines import Engine
    from ipubench.fixtures.runtimes.torch.host.torch_host import TorchHost

    device = CpuDevice()
    device.info = device.attach()
    config = dataclasses.replace(HOST["resnet18"], data="synthetic")
    step: Any = TorchHost(device).inference(config.network(), config, config.feed(DATA))
    shapes: List[Any] = []
    step.network.engine = Engine("own", lambda images: shapes.append(images.shape), None)
    network_loop(step)(2)
    assert shapes == [step.network.shape] * 2
