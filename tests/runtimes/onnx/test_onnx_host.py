"""PopART's graphs on a CPU: their results compared with NumPy, and the choice of engine."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest

from ipubench.bench_kernels.bench_popart_conv import PopartConv
from ipubench.bench_kernels.bench_popart_lstm import PopartLstm, lstm
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.devices.cuda import CudaDevice
from ipubench.fixtures.runtimes.onnx.engine import RING
from ipubench.fixtures.runtimes.step import ask
from ipubench.plugins.compare.operations import operations_in
from tests.support.onnx_weights import weights_of
from tests.support.popart_graphs import (
    CONVS,
    DATA,
    KERNELS,
    LSTMS,
    batches_of,
    expected,
    first_batch,
    first_weights,
    gradients,
    numpy_of,
    ready,
)

pytestmark = pytest.mark.framework

# A bfloat16 has 8 significant bits, and an LSTM rounds its state at every timestep.
FLOAT32, BFLOAT16 = 1e-4, 3e-2
ONE_OF_EACH = [LSTMS[1], CONVS[0]]


@pytest.fixture(scope="module")
def popart() -> Any:
    for module in ("onnx", "onnxruntime", "torch"):
        pytest.importorskip(module, reason=f"{module} is not installed: make setup installs it")
    from ipubench.fixtures.runtimes.onnx.onnx_host import OnnxHost

    device = CpuDevice()
    device.attach()
    device.threads = 1  # next to pytest-xdist's other worker two threads take ten times as long
    yield OnnxHost(device)
    device.release()


def needs_bfloat16(popart: Any) -> None:
    if popart.device.half != "bfloat16":
        pytest.skip("needs a CPU with AVX512_BF16 or AMX")


@pytest.mark.parametrize("config", KERNELS)
def test_the_reference_gradients_are_slopes_of_its_loss(config: Any) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed: make setup installs it")
    config = dataclasses.replace(config, mode="training")
    weights, generator = first_weights(config), np.random.RandomState(1)
    batch = {
        spec.name: spec.draw(generator).astype(np.int64 if spec.classes else np.float64)
        for spec in config.feed(DATA).specs
    }
    found = gradients(config, weights, batch)
    for name, value in weights.items():
        for _ in range(5):
            index = tuple(generator.randint(0, size) for size in value.shape)
            losses = []
            for change in (1e-5, -1e-5):
                moved = {key: array.copy() for key, array in weights.items()}
                moved[name][index] += change
                losses.append(expected(config, moved, batch)["loss"])
            slope = (losses[0] - losses[1]) / 2e-5
            assert found[name][index] == pytest.approx(slope, rel=1e-5, abs=1e-8), (name, index)


@pytest.mark.numeric
@pytest.mark.parametrize("engine", ["torch", "onnxruntime"])
@pytest.mark.parametrize("config", KERNELS)
def test_outputs_and_losses_of_alternating_batches_agree_with_numpy(
    popart: Any, config: Any, engine: str
) -> None:
    for mode, data in itertools.product(("inference", "evaluation"), ("synthetic", "generated")):
        one = dataclasses.replace(config, mode=mode, engine=engine, data=data, precision="32.32")
        step = ready(popart, one)  # ran the first batch
        weights, batches, ran = first_weights(one), batches_of(step), 1
        assert len({batch["inputs"].tobytes() for batch in batches}) == RING
        for count in (0, 1, RING + 1):
            step.batches_per_step = count
            step()
            ran += count
            wanted = expected(one, weights, batches[(ran - 1) % RING])
            found = step.engine.results()
            assert set(found) == set(wanted)
            for name, value in wanted.items():
                np.testing.assert_allclose(
                    found[name], value, rtol=FLOAT32, atol=1e-5, err_msg=f"{mode} {data}"
                )
        for before, after in zip(batches, batches_of(step)):
            np.testing.assert_array_equal(before["inputs"], after["inputs"])
        step.close()
        step.close()


@pytest.mark.parametrize("mode", ["inference", "evaluation"])
@pytest.mark.parametrize("config", KERNELS)
def test_outputs_and_losses_in_bfloat16_are_near(popart: Any, config: Any, mode: str) -> None:
    needs_bfloat16(popart)
    config = dataclasses.replace(config, mode=mode, engine="torch")
    step = ready(popart, config)
    assert step.describe()["precision"] == "bfloat16"
    assert ask(step.work.weight_traffic) == 2 * sum(
        one.size for one in first_weights(config).values()
    )
    wanted = expected(config, first_weights(config), first_batch(step))
    for name, value in step.engine.results().items():
        np.testing.assert_allclose(value, wanted[name], rtol=BFLOAT16, atol=BFLOAT16)
    step.close()


@pytest.mark.numeric
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("config", KERNELS)
def test_one_training_step_follows_the_gradient(popart: Any, config: Any, recompute: bool) -> None:
    # At a rate of 10 a weight's change is large compared with its rounding.
    config = dataclasses.replace(
        config, mode="training", precision="32.32", learning_rate=10.0, recompute=recompute
    )
    step = ready(popart, config)
    assert step.describe()["recompute"] is recompute
    before, batch = first_weights(config), first_batch(step)
    wanted, slopes = expected(config, before, batch), gradients(config, before, batch)
    for name, value in step.engine.results().items():
        np.testing.assert_allclose(value, wanted[name], rtol=FLOAT32, atol=1e-6)
    after = weights_of(step.engine.kernel, before)
    for name, slope in slopes.items():
        # The state's weights have no gradient if the only state is the initial zero.
        scale = np.abs(slope).max() or 1.0
        change = (before[name] - after[name]) / config.learning_rate
        np.testing.assert_allclose(change / scale, slope / scale, rtol=FLOAT32, atol=1e-5)
    step.close()


@pytest.mark.parametrize("precision", ["16.16", "16.32"])
@pytest.mark.parametrize("config", KERNELS)
def test_one_training_step_in_bfloat16_is_near(popart: Any, config: Any, precision: str) -> None:
    needs_bfloat16(popart)
    config = dataclasses.replace(config, mode="training", precision=precision, learning_rate=10.0)
    step = ready(popart, config)
    facts = step.describe()
    assert facts["precision"] == "bfloat16"
    assert facts["variables"] == ("bfloat16" if precision == "16.16" else "float32")
    before = first_weights(config)
    slopes = gradients(config, before, first_batch(step))
    after = weights_of(step.engine.kernel, before)
    for name, slope in slopes.items():
        # The weight itself is rounded, and each gradient has gone through some tens of roundings.
        error = 10 * np.abs(slope).max() * 2 * BFLOAT16 + 2**-8 * np.abs(before[name]).max()
        np.testing.assert_allclose(after[name], before[name] - 10 * slope, rtol=0, atol=error)
    step.close()


@pytest.mark.parametrize("data", ["synthetic", "generated"])
@pytest.mark.parametrize("config", [*LSTMS[1:], *CONVS])
def test_every_batch_is_an_update(popart: Any, config: Any, data: str) -> None:
    config = dataclasses.replace(
        config, mode="training", precision="32.32", data=data, learning_rate=1.0
    )
    step = ready(popart, config)  # ran the first batch
    step.batches_per_step = 5
    step()
    weights, batches = first_weights(config), batches_of(step)
    for index in range(6):
        slopes = gradients(config, weights, batches[index % RING])
        weights = {name: value - slopes[name] for name, value in weights.items()}
    for name, value in weights_of(step.engine.kernel, weights).items():
        np.testing.assert_allclose(value, weights[name], rtol=1e-3, atol=1e-3)
    step.close()


@pytest.mark.parametrize("data", ["synthetic", "generated"])
@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("config", ONE_OF_EACH)
def test_zero_values_are_zeros_everywhere(popart: Any, config: Any, mode: str, data: str) -> None:
    config = dataclasses.replace(config, mode=mode, data=data, use_zero_values=True)
    step = ready(popart, config)
    assert step.feed.describe() == {"mode": data, "values": "zeros"}
    for batch in step.engine.ring:
        assert not any(np.any(numpy_of(value)) for value in batch.values())
    assert not np.any(step.engine.results()["output"])
    assert not any(np.any(value) for value in first_weights(config).values())
    step.close()


@pytest.mark.parametrize("mode", ["inference", "evaluation"])
def test_the_engine_of_auto_is_the_faster_one(popart: Any, mode: str) -> None:
    def facts(config: Any) -> Any:
        return popart.loop(None, config, config.feed(DATA)).describe()

    lstm, conv = (kernel(mode=mode, precision="32.32") for kernel in (PopartLstm, PopartConv))
    assert facts(lstm) == {"precision": "float32", "engine": "onnxruntime"}
    assert facts(conv) == {"precision": "float32", "engine": "torch"}
    assert facts(PopartLstm(mode=mode, precision="16.16"))["precision"] == "float32"
    assert facts(PopartLstm(mode="training"))["engine"] == "torch"


TRAINED = {"mode": "training", "precision": "32.32"}
INFERRED = {"engine": "torch", "precision": "32.32"}


@pytest.mark.parametrize(
    ("config", "changes", "facts"),
    [
        (LSTMS[1], {}, {"engine": "onnxruntime", "spinning": False}),
        (LSTMS[1], TRAINED, {"recompute": False}),
        (LSTMS[2], INFERRED, {}),
        (
            CONVS[0],
            TRAINED,
            {"recompute": False, "layout": "channels_last", "gradient": "matrix product"},
        ),
        (CONVS[0], INFERRED, {"layout": "channels_last"}),
    ],
)
def test_the_record_names_the_engine(
    popart: Any, config: Any, changes: Dict[str, Any], facts: Dict[str, Any]
) -> None:
    step = ready(popart, dataclasses.replace(config, **changes))
    common = {"precision": "float32", "variables": "float32", "threads": popart.device.threads}
    assert step.describe() == {"engine": "torch", **common, **facts}
    step.close()


def test_recomputing_runs_the_layer_twice_a_batch(
    popart: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ipubench.fixtures.runtimes.onnx.modules import Lstm

    runs: List[int] = []
    plain = Lstm.forward

    def counted(self: Any, x: Any) -> Any:
        runs.append(1)
        return plain(self, x)

    monkeypatch.setattr(Lstm, "forward", counted)
    for recompute, times in ((False, 1), (True, 2)):
        runs.clear()
        ready(popart, dataclasses.replace(LSTMS[1], mode="training", recompute=recompute)).close()
        assert len(runs) == times


@pytest.mark.parametrize("mode", ["inference", "evaluation", "training"])
@pytest.mark.parametrize("config", ONE_OF_EACH)
def test_the_saved_graph_is_checked_onnx(
    popart: Any, config: Any, mode: str, tmp_path: Path
) -> None:
    import onnx

    step = ready(popart, dataclasses.replace(config, mode=mode))
    step.save_graph(tmp_path)
    saved = onnx.load(tmp_path / "model.onnx")
    onnx.checker.check_model(saved, full_check=True)
    names = [value.name for value in saved.graph.output]
    assert names == (["output"] if mode == "inference" else ["output", "loss"])
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    step.close()


@pytest.mark.parametrize(
    ("changes", "file", "event"),
    [
        ({"engine": "onnxruntime"}, "onnxruntime*.json", "LSTM"),
        ({"mode": "training"}, "trace.json", "mkldnn_rnn_layer_backward"),
    ],
)
def test_a_profile_has_the_layer(
    popart: Any, changes: Dict[str, Any], file: str, event: str, tmp_path: Path
) -> None:
    step = ready(popart, dataclasses.replace(LSTMS[1], **changes))
    step.batches_per_step = 2
    step.profile(tmp_path)
    (path,) = tmp_path.glob(file)
    json.loads(path.read_text())
    operations = {one.name: one.share for one in operations_in(tmp_path)}
    assert any(event in name for name in operations)
    assert sum(operations.values()) == pytest.approx(1)
    step()  # the step still runs
    step.close()


def test_peak_work_has_the_type_that_computes(popart: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuDevice, "peak_size", 256)
    monkeypatch.setattr(CpuDevice, "copy_bytes", 1 << 20)
    step = ready(popart, LSTMS[1])
    step.reference.canary()()
    for work, amount in ((step.reference.peak(), 2 * 256**3), (step.reference.copy(), 2 << 20)):
        work.run()
        assert work.amount == amount
    assert step.work.exact is True
    assert step.device_memory() is None
    step.close()


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("channels_last", [False, True])
def test_the_softmax_of_a_convolutions_loss_is_over_a_whole_image(
    popart: Any, threads: int, channels_last: bool
) -> None:
    import torch

    double = torch.float64
    layout = torch.channels_last if channels_last else torch.contiguous_format
    output = torch.randn(2, 3, 4, 5, dtype=double).contiguous(memory_format=layout)
    labels = torch.randint(2, (2, 3, 4, 5)).to(double).contiguous(memory_format=layout)
    output.requires_grad_()
    found = conv_loss(torch.float64, threads, output, labels)
    wanted = ((torch.softmax(output.flatten(1), 1) - labels.flatten(1)) ** 2).sum()
    torch.testing.assert_close(found, wanted)
    ours, theirs = (torch.autograd.grad(loss, output)[0] for loss in (found, wanted))
    torch.testing.assert_close(ours, theirs)


def conv_loss(dtype: Any, threads: int, output: Any, labels: Any) -> Any:
    import torch

    from ipubench.fixtures.runtimes.onnx.modules import Conv, Target

    target = Target(torch.device("cpu"), dtype, dtype, training=True, threads=threads)
    filters = np.zeros((1, 1, 1, 1))
    return Conv(target, filters, np.zeros(1), (1, 1), (0, 0)).loss(output, labels)


def test_a_long_rows_sum_may_exceed_the_range_of_float16(popart: Any) -> None:
    import torch

    output = torch.zeros(2, 1 << 17, 1, 1, dtype=torch.float16)
    output[:, 0] = 11
    output.requires_grad_()
    labels = torch.zeros_like(output)
    labels[:, 0] = 1
    losses = [conv_loss(torch.float16, threads, output, labels) for threads in (1, 4)]
    assert losses[0] > 0
    torch.testing.assert_close(*losses)
    theirs, ours = (torch.autograd.grad(loss, output)[0] for loss in losses)
    assert ours.dtype == torch.float16
    assert theirs[0, 1] != 0
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("count", "length", "long"),
    [(1, 1 << 18, True), (1, (1 << 18) - 1, False), (8, 1 << 21, True), (9, 1 << 24, False)],
)
def test_long_rows_use_the_whole_gpu_one_after_the_other(
    popart: Any, count: int, length: int, long: bool
) -> None:
    import torch

    from ipubench.fixtures.runtimes.onnx.modules import Target

    gpu = Target(torch.device("cuda"), torch.float16, torch.float16, False)
    assert gpu.is_long(torch.empty(count, length, device="meta")) is long


@pytest.mark.parametrize("mode", ["inference", "evaluation", "training"])
def test_a_gpu_computes_in_float16_by_pytorch(popart: Any, mode: str) -> None:
    from ipubench.fixtures.runtimes.onnx.onnx_host import OnnxHost

    host = OnnxHost(CudaDevice())
    config = PopartLstm(mode=mode)
    step = host.loop(lambda dtype: lstm(config, dtype), config, config.feed(DATA))
    assert step.describe() == {"precision": "float16", "engine": "torch"}
    assert step.work.exact is False
    assert PopartLstm(engine="onnxruntime").needs_cpu and not config.needs_cpu


def test_weight_traffic_is_that_of_the_graph(popart: Any) -> None:
    """An LSTM without biases has [4H, F] and [4H, H]; training also writes them."""
    config = PopartLstm(batch_size=3, timesteps=5, hidden_size=8, precision="32.32")
    size = 4 * (4 * 8 * 8 * 2)
    assert ask(ready(popart, config).work.weight_traffic) == size
    training = dataclasses.replace(config, mode="training")
    assert ask(ready(popart, training).work.weight_traffic) == 2 * size
