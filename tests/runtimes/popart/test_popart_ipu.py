"""The PopART runtime: the calls for each option, the data sent, the results, the cleanup.

PopART is the stand-in of ``tests/doubles``, which evaluates the graphs on the CPU.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, List

import numpy as np
import pytest

from ipubench.bench_kernels.bench_popart_conv import PopartConv, conv
from ipubench.bench_kernels.bench_popart_lstm import PopartLstm, lstm
from ipubench.fixtures.case.errors import OptionError
from ipubench.fixtures.devices.base import DeviceError
from ipubench.fixtures.devices.ipu import IpuDevice, IpuModelDevice
from ipubench.fixtures.machine import memory
from ipubench.fixtures.runtimes.popart.popart_ipu import PopartIpu
from ipubench.fixtures.runtimes.popart.popart_options import acquire, check_memory, session_options
from ipubench.fixtures.runtimes.step import ReferenceJobs
from tests.doubles import popart as double
from tests.doubles.popart import recorder
from tests.support.onnx_weights import weights_of
from tests.support.popart_graphs import DATA, expected, first_weights, gradients
from tests.support.popart_graphs import ready as ready_on_host
from tests.support.threads import torch_on_one_thread

pytestmark = pytest.mark.framework

HARDWARE = IpuDevice()
MODEL = IpuModelDevice()
SMALL_LSTM = PopartLstm(
    system="ipu", data="generated", batch_size=2, timesteps=3, hidden_size=4, batches_per_step=3
)
SMALL_CONV = PopartConv(
    system="ipu", data="generated", batch_size=2, input_width=9, input_height=8, channel_size=3,
    filter_number=5, batches_per_step=3,
)  # fmt: skip
KERNELS = [SMALL_LSTM, SMALL_CONV]
HALF = 5e-3  # for values near 1: a float16 has 11 significant bits, and there are some roundings


@pytest.fixture(autouse=True)
def popart(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("onnx", reason="onnx is not installed: make setup installs it")
    torch_on_one_thread()
    module = double.as_module()
    monkeypatch.setitem(sys.modules, "popart", module)
    return module


def step(config: Any, device: IpuDevice = HARDWARE) -> Any:
    config.check()
    network = lstm if isinstance(config, PopartLstm) else conv
    return PopartIpu(device).loop(lambda dtype: network(config, dtype), config, config.feed(DATA))


def ready(config: Any, device: IpuDevice = HARDWARE) -> Any:
    made = step(config, device)
    made.build()
    made.compile()
    return made


def read_arrays() -> Dict[str, Any]:
    """The arrays that the session reads, by their tensors' names in our graphs."""
    given = recorder.arguments("PyStepIO.__init__")["inputs"]
    return {name.split("/")[0]: array for name, array in given.items()}


def batches_of(config: Any) -> List[Dict[str, Any]]:
    """Those arrays by batch and replica, for the reference."""
    count = config.batches_per_step * config.replicas
    arrays = {
        spec.name: read_arrays()[spec.name]
        .reshape(count, *spec.shape)
        .astype(np.int64 if spec.classes else np.float64)
        for spec in config.feed(DATA).specs
    }
    return [{name: array[index] for name, array in arrays.items()} for index in range(count)]


# --- options ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "given"),
    [
        ({"data": "synthetic"}, {"syntheticDataMode": double.SyntheticDataMode.RandomNormal}),
        ({}, {}),
        (
            {"data": "synthetic", "use_zero_values": True},
            {"syntheticDataMode": double.SyntheticDataMode.Zeros},
        ),
        ({"shards": 2}, {"virtualGraphMode": double.VirtualGraphMode.Auto}),
        (
            {"shards": 2, "auto_sharding": False},
            {"virtualGraphMode": double.VirtualGraphMode.Manual},
        ),
        ({"recompute": True}, {"autoRecomputation": double.RecomputationType.Standard}),
        (
            {"recompute": True, "pipeline": True, "shards": 2},
            {
                "virtualGraphMode": double.VirtualGraphMode.Auto,
                "enablePipelining": True,
                "autoRecomputation": double.RecomputationType.Pipeline,
            },
        ),
        ({"replicas": 4}, {"enableReplicatedGraphs": True, "replicatedGraphCount": 4}),
        ({"report_hw_cycle_count": True}, {"instrumentWithHardwareCycleCounter": True}),
        (
            {"convolution_options": '{"availableMemoryProportion": 0.2}'},
            {"convolutionOptions": {"availableMemoryProportion": "0.2"}},
        ),
    ],
)
def test_an_option_becomes_a_session_option_and_nothing_else(
    popart: ModuleType, changes: Dict[str, Any], given: Dict[str, Any]
) -> None:
    config = PopartLstm(**{"system": "ipu", "mode": "training", "data": "generated", **changes})
    values = session_options(popart, config, config.feed(DATA))._values
    usual = {"syntheticDataMode": double.SyntheticDataMode.Off}
    assert {name: value for name, value in values.items() if value} == {**usual, **given}


@pytest.mark.parametrize(
    ("device", "call", "arguments"),
    [
        (HARDWARE, "DeviceManager.acquireAvailableDevice", {"numIpus": 2}),
        (IpuDevice(5), "DeviceManager.acquireDeviceById", {"id": 5}),
        (
            MODEL,
            "DeviceManager.createIpuModelDevice",
            {"e": {"numIPUs": 2, "ipuVersion": "ipu2", "tilesPerIPU": 1472}},
        ),
    ],
)
def test_the_requested_devices_are_acquired(
    popart: ModuleType, device: IpuDevice, call: str, arguments: Dict[str, Any]
) -> None:
    recorder.ipus_of_id = 2
    assert acquire(popart, device, 2).numIpus == 2
    assert recorder.arguments(call) == arguments


def test_cycles_are_read_after_the_calls_on_hardware_only(monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(SMALL_LSTM, report_hw_cycle_count=True)
    made = ready(config)
    made()
    made()
    assert "getCycleCount" not in " ".join(recorder.names())  # it runs the engine once more
    assert made.counters() == {"cycles": 3000}
    with pytest.raises(OptionError, match="report_hw_cycle_count"):
        step(config, MODEL)
    assert ready(SMALL_LSTM).counters() == {}
    monkeypatch.setenv("POPXL_CACHE_DIR", "/kept")  # a program in it may have no counter
    step(SMALL_LSTM)
    with pytest.raises(OptionError, match="report_hw_cycle_count.* POPXL_CACHE_DIR"):
        step(config)


def test_three_ipus_cannot_be_attached() -> None:
    with pytest.raises(OptionError, match="3 IPUs"):
        step(dataclasses.replace(SMALL_LSTM, replicas=3))


@pytest.mark.parametrize(
    ("mode", "batch"),
    # 3 x 2 x 4 values of two bytes, which are returned; or 3 x 2 labels of four bytes and the loss.
    [("inference", 48 + 48), ("evaluation", 48 + 24 + 2)],
)
def test_batches_that_do_not_fit_into_the_memory_are_refused(
    mode: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = dataclasses.replace(SMALL_LSTM, mode=mode, replicas=2, batches_per_step=12)
    monkeypatch.setattr(memory, "total", lambda: 24 * batch)
    step(config).build()
    monkeypatch.setattr(memory, "total", lambda: 24 * batch - 1)
    with pytest.raises(OptionError, match="--batches-per-step=5"):
        step(config).build()
    with pytest.raises(OptionError, match="smaller batches"):
        check_memory(config, 24 * batch)


# --- data and results ------------------------------------------------------------------------


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("config", KERNELS)
def test_generated_batches_are_sent_in_the_precision_of_the_case(
    config: Any, replicas: int
) -> None:
    config = dataclasses.replace(config, mode="training", replicas=replicas)
    ready(config)
    arrays = read_arrays()
    leading = (3,) if replicas == 1 else (3, 2)
    for spec in config.feed(DATA).specs:
        assert arrays[spec.name].shape == leading + spec.shape
        assert arrays[spec.name].dtype == (spec.dtype or "float16")
    batches = arrays["inputs"].reshape(3 * replicas, -1)
    # Four batches alternate.
    assert len({batch.tobytes() for batch in batches}) == min(3 * replicas, 4)
    assert np.abs(batches).max() <= 1
    assert set(np.unique(arrays["labels"])) == {0, 1}


@pytest.mark.parametrize("mode", ["inference", "evaluation", "training"])
@pytest.mark.parametrize("config", KERNELS)
def test_synthetic_data_is_not_sent(config: Any, mode: str) -> None:
    made = ready(dataclasses.replace(config, mode=mode, data="synthetic"))
    assert recorder.arguments("PyStepIO.__init__") == {"inputs": {}, "outputs": {}}
    assert recorder.arguments("PyStepIO.enableRuntimeAsserts") == {"b": False}
    made()
    assert made.anchors == {}


@pytest.mark.parametrize(("precision", "tolerance"), [("32.32", 1e-4), ("16.16", HALF)])
@pytest.mark.parametrize("mode", ["inference", "evaluation"])
@pytest.mark.parametrize("config", KERNELS)
def test_every_batch_has_its_own_result_the_output_or_the_loss(
    config: Any, mode: str, precision: str, tolerance: float
) -> None:
    config = dataclasses.replace(config, mode=mode, precision=precision)
    made = ready(config)
    made()
    (results,) = made.anchors.values()
    flow = recorder.arguments("DataFlow.__init__")
    assert flow["batchesPerStep"] == len(results) == 3
    assert [kind._kind for kind in flow["anchorTensors"].values()] == ["All"]
    weights = first_weights(config)
    for batch, found in zip(batches_of(config), results):
        wanted = expected(config, weights, batch)["output" if mode == "inference" else "loss"]
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)
    assert not np.array_equal(results[0], results[1])


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("config", KERNELS)
def test_training_updates_once_per_batch_with_the_replicas_sum(config: Any, replicas: int) -> None:
    config = dataclasses.replace(
        config, mode="training", precision="32.32", replicas=replicas, learning_rate=1.0
    )
    ready(config)()
    batches, weights = batches_of(config), first_weights(config)
    for index in range(0, len(batches), replicas):
        slopes = [gradients(config, weights, one) for one in batches[index : index + replicas]]
        weights = {name: w - sum(slope[name] for slope in slopes) for name, w in weights.items()}
    for name, value in weights_of(recorder.sessions[-1]._graph.kernel, weights).items():
        np.testing.assert_allclose(value, weights[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("config", KERNELS)
def test_the_host_agrees_with_popart(config: Any) -> None:
    """The same batch through both runtimes: losses and updated weights agree."""
    from ipubench.fixtures.devices.cpu import CpuDevice
    from ipubench.fixtures.runtimes.onnx.onnx_host import OnnxHost

    config = dataclasses.replace(
        config, mode="training", precision="32.32", batches_per_step=1, learning_rate=1.0
    )
    made = ready(config)
    made()
    (loss,) = made.anchors.values()
    device = CpuDevice(pin=False)
    device.attach()
    device.threads = 1
    other = ready_on_host(OnnxHost(device), dataclasses.replace(config, system="host"))
    device.release()
    for name, array in read_arrays().items():
        np.testing.assert_array_equal(array[0], other.engine.ring[0][name].numpy())
    np.testing.assert_allclose(loss, other.engine.results()["loss"], rtol=1e-4)
    kernels = (other.engine.kernel, recorder.sessions[-1]._graph.kernel)
    ours, theirs = (weights_of(kernel, first_weights(config)) for kernel in kernels)
    for name, value in ours.items():
        np.testing.assert_allclose(value, theirs[name], rtol=1e-4, atol=1e-6)
    other.close()


def test_the_graph_is_the_one_that_a_host_runs() -> None:
    import onnx

    ready(dataclasses.replace(SMALL_LSTM, precision="32.32"))
    given = recorder.arguments("InferenceSession.__init__")["fnModel"]
    assert onnx.load_model_from_string(given) == lstm(SMALL_LSTM, "float32").proto


# --- sharding --------------------------------------------------------------------------------


@pytest.mark.parametrize("config", KERNELS)
def test_manual_placement_puts_the_layer_on_the_first_ipu_and_the_loss_on_the_second(
    config: Any,
) -> None:
    ready(dataclasses.replace(config, mode="training", shards=2, auto_sharding=False))
    placed = [given for name, given in recorder.calls if name == "Builder.virtualGraph"]
    kinds = [
        (next(iter(given["nodeOutputNames"])).split(":")[0], given["value"]) for given in placed
    ]
    losses = ["Nll"] if isinstance(config, PopartLstm) else ["Sub", "ReduceSumSquare"]
    assert kinds == [("output", 0), ("Softmax", 1), *((kind, 1) for kind in losses)]


@pytest.mark.parametrize(
    ("mode", "shards", "fewest"), [("evaluation", 2, 2), ("training", 2, 3), ("training", 4, 7)]
)
def test_a_pipeline_has_the_batches_that_popart_needs_to_fill_it(
    monkeypatch: pytest.MonkeyPatch, mode: str, shards: int, fewest: int
) -> None:
    config = dataclasses.replace(
        SMALL_CONV, mode=mode, shards=shards, pipeline=True, batches_per_step=fewest
    )
    made = ready(config)
    made()
    assert recorder.devices[0].numIpus == made.describe()["ipus"] == shards
    fewer = dataclasses.replace(config, batches_per_step=fewest - 1)
    with pytest.raises(ValueError, match=f"batches_per_step of {fewest} or more"):
        fewer.check()
    monkeypatch.setattr(PopartConv, "check", lambda config: None)
    with pytest.raises(DeviceError, match="pipeline stages"):
        ready(fewer)


# --- start and end ---------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["POPART_CACHE_DIR", "POPXL_CACHE_DIR"])
@pytest.mark.parametrize(("device", "kept"), [(HARDWARE, True), (MODEL, False)])
def test_the_cache_folder_may_contain_an_ipu_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, device: IpuDevice, kept: bool
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "kept"))
    for fresh in (True, not kept):
        made = step(SMALL_LSTM, device)
        made.build()
        assert made.compile() is fresh
        made.close()
    assert made.not_compiled == "fresh or cached"


def test_the_record_describes_the_execution() -> None:
    made = step(dataclasses.replace(SMALL_CONV, replicas=2, convolution_options='{"a": "b"}'))
    assert made.describe() == {
        "engine": "popart",
        "popart": "double",
        "precision": "float16",
        "variables": "float16",
        "ipus": 2,
        "options": {
            "replicas": 2,
            "shards": 1,
            "placement": "single",
            "pipeline": False,
            "recompute": False,
            "synthetic_data": "Off",
            "convolution_options": {"a": "b"},
        },
    }
    assert (made.rounds.dropped, made.rounds.calibrated, made.batches_per_step) == (1, False, 3)
    assert made.reference == ReferenceJobs()


@pytest.mark.parametrize("mode", ["inference", "evaluation", "training"])
@pytest.mark.parametrize("config", KERNELS)
def test_the_saved_graph_is_checked_onnx(config: Any, mode: str, tmp_path: Path) -> None:
    import onnx

    made = ready(dataclasses.replace(config, mode=mode))
    made.save_graph(tmp_path)
    saved = onnx.load(tmp_path / "model.onnx")
    onnx.checker.check_model(saved)
    assert len(saved.graph.output) == (1 if mode == "inference" else 2)


def test_without_popart_the_error_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "popart", None)
    with pytest.raises(DeviceError, match="Poplar SDK"):
        PopartIpu(HARDWARE)


def test_a_popart_of_another_python_or_sdk_is_a_device_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its __init__ compares both with those it was built for."""
    reason = "This version of PopART was built for Python 3.8"
    (tmp_path / "popart.py").write_text(f"raise RuntimeError({reason!r})\n")
    monkeypatch.delitem(sys.modules, "popart", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(DeviceError, match=reason):
        PopartIpu(HARDWARE)


@pytest.mark.parametrize("device", [HARDWARE, IpuDevice(3)])
def test_an_unavailable_device_is_a_device_error(device: IpuDevice) -> None:
    made = step(SMALL_LSTM, device)
    made.build()
    recorder.attach_error = "Failed to acquire"
    with pytest.raises(DeviceError, match=r"(?s)Failed to .*gc-monitor"):
        made.compile()
    made.close()


def test_a_device_with_another_number_of_ipus_is_released() -> None:
    recorder.ipus_of_id = 4
    made = step(SMALL_LSTM, IpuDevice(7))
    made.build()
    with pytest.raises(DeviceError, match="--device-id=7: .* 4 IPUs .* 1"):
        made.compile()
    assert not recorder.devices[0].isAttached


def test_a_graph_that_cannot_be_compiled_releases_the_device_once() -> None:
    made = step(SMALL_LSTM)
    made.close()
    made.build()
    recorder.compile_error = "Memory allocation failed: tile 3"
    with pytest.raises(DeviceError, match=" 1 IPU: Memory alloc"):
        made.compile()
    assert recorder.devices[0].isAttached
    made.close()
    made.close()
    assert not recorder.devices[0].isAttached
    assert recorder.names().count("DeviceInfo.detach") == 1


# --- the stand-in ----------------------------------------------------------------------------


def proto() -> bytes:
    serialized: bytes = lstm(SMALL_LSTM, "float16").proto.SerializeToString()
    return serialized


def test_the_stand_in_refuses_what_the_sdk_refuses(popart: ModuleType) -> None:
    opsets = {"ai.onnx": 11, "ai.graphcore": 1}
    options = popart.SessionOptions()
    with pytest.raises(AttributeError):
        options.enablePipeline = True
    with pytest.raises(AssertionError):
        options.enablePipelining = 1
    with pytest.raises(AttributeError):
        _ = popart.recorder
    with pytest.raises(TypeError):
        popart.ConstSGD(rate=0.1)
    with pytest.raises(popart.popart_exception, match="no type"):
        popart.TensorInfo("HALF", [1])
    with pytest.raises(popart.popart_exception, match="power of two"):
        popart.DeviceManager().acquireAvailableDevice(3)
    with pytest.raises(popart.popart_exception, match="opset 11"):
        popart.Builder(proto(), opsets={**opsets, "ai.onnx": 10})
    builder = popart.Builder(proto(), opsets=opsets)
    with pytest.raises(popart.popart_exception, match="no tensors"):
        builder.aiOnnxOpset11.sub(["output", "nothing"])
    with pytest.raises(popart.popart_exception, match="contiguous"):
        popart.PyStepIO({"inputs": np.zeros((4, 4)).T[:2]}, {})


def session(popart: ModuleType, ipus: int = 1, batches: int = 1, **given: Any) -> Any:
    options = popart.SessionOptions()
    for name, value in given.items():
        setattr(options, name, value)
    flow = popart.DataFlow(batches, {"output": popart.AnchorReturnType("All")})
    device = popart.DeviceManager().acquireAvailableDevice(ipus)
    return popart.InferenceSession(proto(), flow, device, userOptions=options)


def test_the_stand_in_places_operations_as_strictly_as_the_sdk(popart: ModuleType) -> None:
    auto = double.VirtualGraphMode.Auto
    for ipus, given in (
        (2, {}),
        (2, {"virtualGraphMode": double.VirtualGraphMode.Manual}),
        (1, {"enablePipelining": True}),
        (2, {"enablePipelining": True, "virtualGraphMode": auto}),
        (1, {"enableReplicatedGraphs": True, "replicatedGraphCount": 2}),
    ):
        with pytest.raises(popart.popart_exception):
            session(popart, ipus, **given)
    session(popart, 2, 2, enablePipelining=True, virtualGraphMode=auto)


def test_the_stand_in_reads_arrays_as_strictly_as_the_sdk(popart: ModuleType) -> None:
    made = session(popart)
    with pytest.raises(popart.popart_exception, match="prepareDevice first"):
        made.run(popart.PyStepIO({}, {}))
    made.prepareDevice()
    outputs = made.initAnchorArrays()
    right = popart.PyStepIO({"inputs": np.zeros((3, 2, 4), np.float16)}, outputs)
    for shape, kind in (((1, 3, 2, 4), np.float32), ((2, 3, 2, 4), np.float16)):
        with pytest.raises(popart.popart_exception, match="inputs"):
            made.run(popart.PyStepIO({"inputs": np.zeros(shape, kind)}, outputs))
    made.run(right)
    with pytest.raises(popart.popart_exception, match="no cycles"):
        made.getCycleCount()
    made._device.detach()
    with pytest.raises(popart.popart_exception, match="attached"):
        made.run(right)


def test_the_stand_in_trains_only_weights_that_it_has() -> None:
    made = ready(dataclasses.replace(SMALL_LSTM, mode="training"))
    recorder.sessions[-1]._written = False
    with pytest.raises(double.popart_exception, match="weightsFromHost first"):
        made()
