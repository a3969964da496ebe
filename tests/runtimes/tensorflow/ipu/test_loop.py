"""The SDK's TensorFlow: its configuration, the results of its loop, its cleanup.

The SDK is the stand-in of ``tests/doubles``, over the TensorFlow that is installed.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import numpy as np
import pytest

from ipubench.bench_kernels.bench_dense import Dense, dense
from ipubench.bench_kernels.bench_grouped_conv import GroupedConv
from ipubench.bench_kernels.bench_lstm import Lstm, lstm
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.data.feeds import ArrayFeed, TensorSpec
from ipubench.fixtures.data.images.feed import ImageFolder
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.devices.base import DeviceError
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.devices.ipu import IpuDevice, IpuModelDevice
from ipubench.fixtures.poplar.poplar_options import TF_FLAGS
from ipubench.fixtures.runtimes.step import ReferenceJobs
from ipubench.fixtures.runtimes.tensorflow.host.tensorflow_host import TensorFlowHost
from ipubench.fixtures.runtimes.tensorflow.ipu.loop import LoopStep
from ipubench.fixtures.runtimes.tensorflow.ipu.tensorflow_ipu import TensorFlowIpu
from tests.doubles import tensorflow_ipu as double
from tests.doubles.tensorflow_ipu import recorder
from tests.support.loop_options import FewBatches
from tests.support.tensorflow_ipu import HARDWARE, SYNTHETIC, install

pytestmark = pytest.mark.framework

MODEL = IpuModelDevice()
DATA = Data(lambda kind: ImageFolder("", ()))


@dataclass(frozen=True)
class Options(FewBatches):
    batches_per_step: int = 3


@pytest.fixture(autouse=True)
def tf(monkeypatch: pytest.MonkeyPatch) -> Any:
    return install(monkeypatch)


def scale(tf: Any, dtype: Any) -> Any:
    """A model of one weight: output = inputs * weight, loss = mean(output)."""

    class Layer(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = tf.Variable(tf.ones([], dtype))

        def __call__(self, batch: Dict[str, Any]) -> Any:
            return batch["inputs"] * self.weight

        def loss(self, output: Any, batch: Dict[str, Any]) -> Any:
            return tf.reduce_mean(tf.cast(output, tf.float32))

    return Layer()


def feed(period: int = 1000, mode: str = "generated") -> ArrayFeed:
    return ArrayFeed(mode, (TensorSpec("inputs", (2, 3)),), period)


def step(
    config: Any = None,
    data: Optional[ArrayFeed] = None,
    device: IpuDevice = HARDWARE,
    model: Callable[..., Any] = scale,
    popnn: Optional[Callable[..., Any]] = None,
) -> LoopStep:
    return TensorFlowIpu(device).loop(model, config or Options(), data or feed(), popnn)


def ready(*args: Any, **kwargs: Any) -> LoopStep:
    made = step(*args, **kwargs)
    made.build()
    assert made.compile() is True
    return made


def taken() -> int:
    (queue,) = recorder.queues
    return int(queue._taken.numpy())


# --- results of the loop ---------------------------------------------------------------------


def test_every_call_runs_the_requested_batches_and_returns_the_last_result(
    tf: Any, tmp_path: Path
) -> None:
    made = ready(Options(batches_per_step=3), feed(period=7))
    seen = [made.result[0, 0]]
    for _ in range(3):
        made()
        seen.append(made.result[0, 0])
    assert seen == [2, 5, 8 % 7, 11 % 7]
    assert made.result.shape == (2, 3)
    assert taken() == 4 * 3
    assert recorder.arguments("repeat")["n"] == 3
    made.save_graph(tmp_path)
    graph = tf.compat.v1.GraphDef()
    graph.ParseFromString((tmp_path / "graph.pb").read_bytes())
    assert {"While", "StatelessWhile"} & {node.op for node in graph.node}
    assert list(tmp_path.glob("events.out.tfevents.*"))


def test_every_batch_is_an_update() -> None:
    made = ready(Options(mode="training", batches_per_step=4, learning_rate=0.5))
    made()
    # Batch i has the gradient i; the last loss follows the earlier updates.
    assert float(made.layer.weight.numpy()) == 1 - 0.5 * sum(range(8))
    assert float(made.result) == 7 * (1 - 0.5 * sum(range(7)))


@pytest.mark.parametrize(
    ("precision", "compute", "variables", "weight"),
    [
        ("16.16", "float16", "float16", 1),
        ("16.32", "float16", "float32", 1 - 4 * 2.0**-13),
        ("32.32", "float32", "float32", 1 - 4 * 2.0**-13),
    ],
)
def test_precisions(precision: str, compute: str, variables: str, weight: float) -> None:
    """Updates below half a float16 step at 1 survive in float32 variables."""
    seen: List[str] = []

    def model(tf: Any, dtype: Any) -> Any:
        layer = scale(tf, dtype)

        class Spy(type(layer)):  # type: ignore[misc]
            def __call__(self, batch: Dict[str, Any]) -> Any:
                seen.extend([batch["inputs"].dtype.name, self.weight.dtype.name])
                return super().__call__(batch)

        return Spy()

    config = Options(
        mode="training", precision=precision, batches_per_step=8, learning_rate=2.0**-13
    )
    made = ready(config, feed(period=2), model=model)  # gradients 0 and 1
    facts = made.describe()
    assert set(seen) == {compute} == {facts["precision"]}
    assert made.layer.weight.dtype.name == variables == facts["variables"]
    assert made.result.dtype.name == "float32"
    assert float(made.layer.weight.numpy()) == pytest.approx(weight, abs=1e-6)
    made = ready(Options(precision=precision))
    assert made.result.dtype.name == compute


KERNELS = [
    pytest.param(Dense(batch_size=4, size=6, include_activation=True), dense, {}, id="dense"),
    pytest.param(Lstm(batch_size=2, timesteps=3, hidden_size=5), lstm, {}, id="lstm"),
    pytest.param(
        Lstm(batch_size=2, timesteps=3, hidden_size=5), lstm, {"fused": True}, id="lstm-popnn"
    ),
]


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize(("config", "model", "fused"), KERNELS)
def test_a_kernel_agrees_with_a_host(
    tf: Any, config: Any, model: Any, fused: Dict[str, bool], mode: str
) -> None:
    batches = 4
    config = replace(
        config,
        mode=mode,
        data="generated",
        precision="32.32",
        batches_per_step=batches,
        learning_rate=0.5,
    )
    data = config.feed(DATA)
    host = TensorFlowHost(CpuDevice(pin=False)).loop(partial(model, config), config, data)
    popnn = partial(model, config, **fused) if fused else None
    made = step(config, data, model=partial(model, config), popnn=popnn)
    for each in (host, made):
        each.build()
        generator = np.random.RandomState(7)
        for variable in each.layer.variables:
            variable.assign(generator.normal(0, 0.3, variable.shape))
    made.compile()
    last = {
        spec.name: tf.fill(spec.shape, tf.constant(batches - 1, tf.float32)) for spec in data.specs
    }
    if mode == "inference":
        np.testing.assert_allclose(made.result, host.layer(last), rtol=1e-5, atol=1e-6)
        return
    host.compile()  # trains one batch
    host.run(batches - 2)
    loss = host.run(1)
    assert made.result == pytest.approx(loss, rel=1e-5)
    changed = 0
    generator = np.random.RandomState(7)
    for ours, theirs in zip(made.layer.variables, host.layer.variables):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-6)
        changed += not np.allclose(ours.numpy(), generator.normal(0, 0.3, ours.shape), atol=1e-4)
    assert changed == len(made.layer.variables)
    assert ("PopnnLSTM.__init__" in recorder.names()) is bool(fused)


def test_a_model_without_inputs_needs_no_queue() -> None:
    def model(tf: Any, dtype: Any) -> Any:
        class Layer(tf.Module):
            def __call__(self, batch: Dict[str, Any]) -> Any:
                assert batch == {}
                return tf.ones([2], dtype)

        return Layer()

    made = ready(data=ArrayFeed("generated", ()), model=model)
    assert made.result.tolist() == [1, 1]
    assert recorder.queues == []
    assert recorder.arguments("repeat").get("infeed_queue") is None
    made.close()


def test_synthetic_data_takes_nothing_from_the_host_and_returns_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(CaseError, match="--data=synthetic"):
        step(data=feed(mode="synthetic"))
    monkeypatch.setenv(TF_FLAGS, SYNTHETIC)
    with pytest.raises(CaseError, match="--data=generated"):
        step()
    assert recorder.calls == []  # before any IPU is attached
    for mode in ("inference", "training"):
        made = ready(Options(mode=mode), feed(mode="synthetic"))
        made()
        assert recorder.flags == SYNTHETIC == made.describe()["options"]["flags"]
        assert int(recorder.queues[-1]._taken.numpy()) == 0
        assert np.isnan(made.result).all()
        made.close()


# --- device and options ----------------------------------------------------------------------


PARTIAL = {"availableMemoryProportion": "0.2", "partialsType": "float"}


@pytest.mark.parametrize(
    ("config", "device", "configured"),
    [
        (Options(replicas=4), HARDWARE, {"auto_select_ipus": 4}),
        (Options(), IpuDevice(5), {"select_ipus": 5}),
        (Options(replicas=2), MODEL, {"auto_select_ipus": 2}),
        (Options(), IpuModelDevice(5), {"auto_select_ipus": 1}),
        (
            Options(
                convolution_options='{"availableMemoryProportion": 0.2, "partialsType": "float"}',
                matmul_options='{"use128BitConvUnitLoad": true}',
            ),
            HARDWARE,
            {
                "auto_select_ipus": 1,
                "convolutions.poplar_options": PARTIAL,
                "matmuls.poplar_options": {"use128BitConvUnitLoad": "true"},
            },
        ),
        (
            Options(
                enable_half_partials=True,
                convolution_options='{"availableMemoryProportion": "0.2", "partialsType": "float"}',
            ),
            HARDWARE,
            {
                "auto_select_ipus": 1,
                "convolutions.poplar_options": {**PARTIAL, "partialsType": "half"},
                "matmuls.poplar_options": {"partialsType": "half"},
            },
        ),
    ],
)
def test_options_become_the_configuration(
    monkeypatch: pytest.MonkeyPatch, config: Options, device: IpuDevice, configured: Dict[str, Any]
) -> None:
    flags = "--use_ipu_model" if device.kind == "ipu-model" else ""
    monkeypatch.setenv(TF_FLAGS, flags)
    made = step(config, device=device)
    made.build()
    assert (recorder.configured, recorder.flags) == (configured, flags)
    convolutions = configured.get("convolutions.poplar_options", {})
    assert made.describe()["options"]["convolutions"] == convolutions
    made.close()


@pytest.mark.parametrize("replicas", [1, 2])
def test_replicas_average_their_gradients_and_read_separate_batches(replicas: int) -> None:
    config = Dense(
        system="ipu",
        mode="training",
        data="generated",
        batch_size=2,
        size=3,
        batches_per_step=5,
        replicas=replicas,
    )
    ready(config, config.feed(DATA), model=partial(dense, config))
    assert recorder.names().count("cross_replica_mean") == (2 if replicas > 1 else 0)
    assert taken() == 5 * replicas


def test_cycles_are_counted_on_hardware_and_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Options(report_hw_cycle_count=True)
    with pytest.raises(ValueError, match="report_hw_cycle_count needs --device=ipu"):
        step(config, device=MODEL)
    monkeypatch.setenv(TF_FLAGS, "--log_cycle_count=0")
    assert "cycle_count" in step(config).describe()
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0"
    # Other cases keep the user's settings.
    monkeypatch.delenv(TF_FLAGS)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "1")
    assert "cycle_count" not in step().describe()
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "1"


@pytest.mark.parametrize(
    ("changes", "partials"),
    [({}, "float32"), ({"matmul_options": '{"partialsType": "half"}'}, "float16")],
)
def test_partial_results_have_the_type_that_is_recorded(
    tf: Any, changes: Dict[str, Any], partials: str
) -> None:
    config = Lstm(system="ipu", batch_size=1, timesteps=2, hidden_size=3, **changes)
    config = replace(config, data="generated", batches_per_step=1)
    fused = partial(lstm, config, fused=True)
    made = ready(config, config.feed(DATA), model=partial(lstm, config), popnn=fused)
    given = [given for name, given in recorder.calls if name == "PopnnLSTM.__init__"]
    assert {call["partials_dtype"] for call in given} == {tf.as_dtype(partials)}
    assert made.describe()["partials"] == partials
    assert made.describe()["fused_layers"] is True
    # A kernel with convolutions only has theirs.
    of_convolutions = changes.get("matmul_options", "")
    convolution = GroupedConv(system="ipu", data="generated", convolution_options=of_convolutions)
    found = step(convolution, convolution.feed(DATA)).describe()["partials"]
    assert found == partials


def test_a_fused_layer_refuses_options_of_other_matrix_products() -> None:
    options = '{"use128BitConvUnitLoad": true}'
    config = Lstm(system="ipu", batch_size=1, timesteps=2, hidden_size=3, matmul_options=options)
    config = replace(config, data="generated", batches_per_step=1)
    ready(config, config.feed(DATA), model=partial(lstm, config)).close()
    fused = partial(lstm, config, fused=True)
    made = step(config, config.feed(DATA), model=partial(lstm, config), popnn=fused)
    made.build()
    with pytest.raises(CaseError, match="use128BitConvUnitLoad"):
        made.compile()


def test_the_record_describes_the_execution(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """But not the folder of executables, which would make records incomparable."""
    monkeypatch.setenv(
        TF_FLAGS, f"--executable_cache_path='{tmp_path}/my cache' --max_infeed_threads=2"
    )
    made = step(Options(replicas=2, precision="16.32", matmul_options='{"gatherOutput": "true"}'))
    assert made.describe() == {
        "engine": "tensorflow-ipu",
        "precision": "float16",
        "variables": "float32",
        "partials": "float32",
        "fused_layers": False,
        "ipus": 2,
        "options": {
            "replicas": 2,
            "convolutions": {},
            "matmuls": {"gatherOutput": "true"},
            "flags": "--max_infeed_threads=2",
        },
    }
    assert (made.rounds.calibrated, made.rounds.dropped) == (False, 1)
    assert made.reference == ReferenceJobs() and made.latencies is None
    made.build()
    assert made.compile() is True
    again = step(Options(replicas=2, precision="16.32", matmul_options='{"gatherOutput": "true"}'))
    again.build()
    assert again.compile() is False
    assert again.not_compiled == "fresh or cached"


# --- failures --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "popnn"),
    [("tensorflow.python.ipu", None), ("ipu_tensorflow_addons.keras.layers", scale)],
)
def test_without_the_sdks_packages_the_message_names_them(
    monkeypatch: pytest.MonkeyPatch, missing: str, popnn: Any
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(DeviceError, match="--device=ipu: .*Poplar SDK"):
        step(popnn=popnn)
    if popnn is not None:
        step()  # needs no fused layers


def test_a_tensorflow_beside_another_protobuf_is_a_device_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """TensorFlow 2.6 raises a TypeError with protobuf 4 and later."""
    reason = "Descriptors cannot be created directly."
    (tmp_path / "tensorflow.py").write_text(f"raise TypeError({reason!r})\n")
    for name in [one for one in sys.modules if one.partition(".")[0] == "tensorflow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(DeviceError, match=reason):
        step()


@pytest.mark.parametrize(
    ("versions", "ipu_keras", "reason"),
    [({}, False, "IPU Keras"), ({"keras": "2.8.0"}, True, "version of keras")],
)
def test_fused_layers_require_the_sdks_keras(
    monkeypatch: pytest.MonkeyPatch, versions: Dict[str, str], ipu_keras: bool, reason: str
) -> None:
    for name in [name for name in sys.modules if name.startswith("ipu_tensorflow_addons")]:
        monkeypatch.delitem(sys.modules, name)
    finder = double.AddonsFinder({**double.BUILT_WITH, **versions}, ipu_keras)
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    with pytest.raises(DeviceError, match=f"{reason}.*--set=popnn=no"):
        step(popnn=scale)


def test_an_unavailable_device_is_a_device_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for device, flags in ((HARDWARE, ""), (MODEL, "--use_ipu_model")):
        monkeypatch.setenv(TF_FLAGS, flags)
        made = step(Options(replicas=2), device=device)
        recorder.attach_error = "all busy"
        with pytest.raises(DeviceError) as caught:
            made.build()
        message = str(caught.value)
        assert f"--device={device.kind}: " in message
        assert " 2 IPUs: all busy" in message
        assert ("gc-monitor" in message) is (device is HARDWARE)
        made.close()
        assert recorder.names()[-1] == "reset_ipu_configuration"
    monkeypatch.setenv(TF_FLAGS, "--executable_cache_path=/cache")
    with pytest.raises(CaseError, match="software model"):
        step(device=MODEL)


def test_a_group_of_another_size_is_refused() -> None:
    recorder.groups[16] = 2
    made = step(device=IpuDevice(16))
    with pytest.raises(DeviceError, match="--device-id=16 .*group of 2.* replicas=1"):
        made.build()
    made.close()
    assert not recorder.attached
    ready(Options(replicas=2), device=IpuDevice(16)).close()


def test_a_failing_step_releases_the_ipus(monkeypatch: pytest.MonkeyPatch) -> None:
    made = step()
    made.close()
    assert recorder.calls == []
    made.build()
    recorder.run_error = "tile 7 full"
    with pytest.raises(CaseError, match=" 1 IPU .*: tile 7 full"):
        made.compile()
    for _ in range(2):  # once is enough
        made.close()
        assert recorder.names()[-2:] == ["IPUInfeedQueue.deleter", "reset_ipu_configuration"]
        assert recorder.names().count("reset_ipu_configuration") == 1
    recorder.run_error = ""

    def no_model(tf: Any, dtype: Any) -> Any:
        raise ValueError("no such layer")

    made = step(model=no_model)
    with pytest.raises(ValueError, match="no such layer"):
        made.build()
    assert recorder.attached
    made.close()
    assert not recorder.attached

    def fail(queue: Any) -> None:
        raise RuntimeError("the queue is gone")

    made = ready()
    monkeypatch.setattr(type(recorder.queues[0]), "deleter", property(fail))
    with pytest.raises(RuntimeError, match="queue"):
        made.close()
    assert not recorder.attached
    assert made.layer is None
