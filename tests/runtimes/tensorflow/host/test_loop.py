"""TensorFlow's loop: its batches, their number and values, and its precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy as np
import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.data.feeds import ArrayFeed, TensorSpec
from ipubench.fixtures.devices.base import Device, DeviceError
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.runtimes.shared import compute_dtypes
from ipubench.fixtures.runtimes.tensorflow.host.loop import TensorFlowStep
from ipubench.fixtures.runtimes.tensorflow.host.tensorflow_host import TensorFlowHost
from ipubench.fixtures.runtimes.tensorflow.model import RING, block_length
from tests.support.loop_options import FewBatches

pytestmark = pytest.mark.framework


def a_device(kind: str = "cpu", half: str = "") -> Device:
    """Return a device with two threads, on a CPU without bfloat16 unless named."""
    device = devices.make(kind, pin=False)
    device.threads = 2
    if device.on_cpu and not device.poplar:
        device.half = half or "float32"
    return device


class Probe:
    """A model of one weight: output = inputs * weight, loss = mean(output). Counts its traces."""

    def __init__(self) -> None:
        self.traces = 0

    def __call__(self, tf: Any, dtype: Any) -> Any:
        probe = self

        class Layer(tf.Module):
            def __init__(self) -> None:
                super().__init__()
                self.parts = [tf.Variable(tf.ones([], dtype))]

            def __call__(self, batch: Dict[str, Any]) -> Any:
                probe.traces += 1
                return batch["inputs"] * self.parts[0]

            def loss(self, output: Any, batch: Dict[str, Any]) -> Any:
                return tf.reduce_mean(tf.cast(output, tf.float32))

        return Layer()


OFF_ON = ("off", "on")


def host(**device: Any) -> TensorFlowHost:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    return TensorFlowHost(a_device(**device))


def feed(mode: str, period: int = 1000, zero_values: bool = False) -> ArrayFeed:
    return ArrayFeed(mode, (TensorSpec("inputs", (2, 3)),), period, zero_values)


def ready(model: Callable[..., Any], data: ArrayFeed, **options: Any) -> TensorFlowStep:
    device = options.pop("device", {})
    step = host(**device).loop(model, FewBatches(**options), data)
    step.build()
    assert step.compile() is True
    return step


@pytest.mark.parametrize("xla", [False, True])
def test_synthetic_batches_exist_before_the_loop_and_alternate(xla: bool) -> None:
    step = host().loop(Probe(), FewBatches(xla=OFF_ON[xla]), feed("synthetic"))
    step.build()
    ring = step.ring["inputs"].numpy()
    assert ring.shape == (RING, 2, 3) and np.any(ring)
    step.compile()
    seen = ring.sum(axis=(1, 2)) if xla else ring[:, 0, 0]
    for batches in (1, RING + 1):
        expected = sum(seen[i % RING] for i in range(batches))
        assert step.run(batches) == pytest.approx(expected, rel=1e-4, abs=1e-5)
    zeros = ready(Probe(), feed("synthetic", zero_values=True))
    assert not np.any(zeros.ring["inputs"])


@pytest.mark.parametrize("xla", [False, True])
def test_generated_batches_count_up_and_repeat(xla: bool) -> None:
    step = ready(Probe(), feed("generated", period=5), xla=OFF_ON[xla])  # compiling took batch 0
    elements = 6 if xla else 1
    assert step.run(3) == elements * (1 + 2 + 3)
    assert step.run(4) == elements * (4 + 0 + 1 + 2)
    assert not step.ring
    # A call may begin and end in the middle of a block, and take several blocks.
    length = 64
    for batches, first in ((length, 3), (1, 2), (3 * length, 3)):  # so far 8 batches
        expected = sum((first + k) % 5 for k in range(batches))
        assert step.run(batches) == elements * expected


def test_only_small_batches_are_passed_together() -> None:
    shapes = ((3,), (1 << 12,), (1 << 16,), (1 << 20,))
    feeds = [ArrayFeed("generated", (TensorSpec("inputs", shape),)) for shape in shapes]
    assert [block_length(host().tf, each, "float32") for each in feeds] == [64, 16, 1, 1]


@pytest.mark.parametrize("xla", [False, True])
def test_every_batch_is_an_update_and_their_number_causes_no_retracing(xla: bool) -> None:
    probe = Probe()
    step = ready(probe, feed("generated"), mode="training", learning_rate=0.5, xla=OFF_ON[xla])
    traces, weight, batch = probe.traces, 1.0, 1
    assert float(step.layer.parts[0].numpy()) == weight  # compiling took batch 0
    for batches in (1, 2, 7):
        total = 0.0
        for _ in range(batches):  # the loss is batch * weight, the gradient of batch i is i
            total += batch * weight
            weight, batch = weight - 0.5 * batch, batch + 1
        assert step.run(batches) == pytest.approx(total)
        assert float(step.layer.parts[0].numpy()) == pytest.approx(weight)
    assert probe.traces == traces


@pytest.mark.nightly
def test_the_bare_comparison_loop_trains_the_same_layer() -> None:
    from scripts import bench_overhead

    step = ready(Probe(), feed("synthetic"), mode="training", learning_rate=0.5)
    means = step.ring["inputs"].numpy().mean(axis=(1, 2))
    weight = 1 - 0.5 * means[0]  # compiling took a batch
    bare = bench_overhead.tensorflow_loop(step)(2)
    assert bare == pytest.approx(means[0] * weight + means[1] * (weight - 0.5 * means[0]), rel=1e-3)


@pytest.mark.parametrize(
    ("device", "precision", "expected"),
    [
        ({"half": "bfloat16"}, "16.16", ("bfloat16", "bfloat16")),
        ({"half": "bfloat16"}, "16.32", ("bfloat16", "float32")),
        ({"half": "bfloat16"}, "32.32", ("float32", "float32")),
        ({}, "16.16", ("float32", "float32")),
        ({"kind": "cuda"}, "16.16", ("float16", "float16")),
        ({"kind": "cuda"}, "16.32", ("float16", "float32")),
        ({"kind": "ipu"}, "16.16", ("float16", "float16")),
        ({"kind": "ipu-model"}, "16.32", ("float16", "float32")),
    ],
)
def test_precision_follows_the_device(
    device: Dict[str, Any], precision: str, expected: Any
) -> None:
    assert compute_dtypes(a_device(**device), precision) == expected


def test_convolutions_are_in_float32_if_tensorflow_has_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime = host(half="bfloat16")
    from ipubench.models.tensorflow.cnn import operations

    for works, dtype in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr(operations, "has_bfloat16_convolutions", lambda tf, it=works: it)
        assert runtime.convolution_dtypes("16.16") == (dtype, dtype)


@pytest.mark.parametrize(
    ("precision", "change"), [("16.16", 0), ("16.32", 4 * 2.0**-12), ("32.32", 4 * 2.0**-12)]
)
def test_operations_and_variables_have_the_described_dtypes(precision: str, change: float) -> None:
    """Updates below half a bfloat16 step at 1 survive in float32 variables."""
    seen: List[str] = []

    def model(tf: Any, dtype: Any) -> Any:
        layer = Probe()(tf, dtype)

        class Spy(type(layer)):  # type: ignore[misc]
            def __call__(self, batch: Dict[str, Any]) -> Any:
                seen.extend([batch["inputs"].dtype.name, self.parts[0].dtype.name])
                return super().__call__(batch)

        return Spy()

    step = ready(
        model,
        feed("generated", period=2),  # gradients 0 and 1
        mode="training",
        precision=precision,
        learning_rate=2.0**-12,
        device={"half": "bfloat16"},
    )
    facts = step.describe()
    assert set(seen) == {facts["precision"]}
    assert step.layer.parts[0].dtype.name == facts["variables"]
    device = a_device(half="bfloat16")
    assert (facts["precision"], facts["variables"]) == compute_dtypes(device, precision)
    assert facts["constant_weights"] is facts["xla"] is False  # the only weight is not a matrix
    step.run(8)
    assert 1 - float(step.layer.parts[0].numpy()) == pytest.approx(change)


def test_cuda_without_a_gpu_is_refused_with_what_is_missing() -> None:
    tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    if tensorflow.config.list_physical_devices("GPU"):
        pytest.skip("this machine has a GPU")
    with pytest.raises(DeviceError, match="--device=cpu"):
        host(kind="cuda")


@pytest.mark.parametrize("xla", ["off", "on"])
def test_facts_for_the_meter(xla: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller work than in reality: tests/runtimes/onnx/test_onnx_host.py covers its size."""
    monkeypatch.setattr(CpuDevice, "peak_size", 256)
    monkeypatch.setattr(CpuDevice, "copy_bytes", 1 << 20)
    step = ready(Probe(), feed("synthetic"), mode="training", xla=xla)
    jobs = step.reference
    assert jobs.canary is not None and jobs.peak is not None and jobs.copy is not None
    jobs.canary()()
    peak, copy = jobs.peak(), jobs.copy()
    peak.run()
    copy.run()
    assert (peak.amount, copy.amount) == (4 * 2 * 256**3, 2 * 2**20)
    assert step.rounds.dropped == 1
    assert step.device_memory() is None
    step.save_graph(tmp_path)
    definition = host().tf.compat.v1.GraphDef()
    definition.ParseFromString((tmp_path / "graph.pb").read_bytes())
    assert any("while" in node.name.lower() for node in definition.node)
    assert list(tmp_path.glob("events.out.tfevents*"))
    step.profile(tmp_path)
    assert [path for path in tmp_path.rglob("*.xplane.pb") if path.stat().st_size > 0]
    step.close()
    assert step.layer is None
