"""The inputs of an IPU's server: the SDK's export with its arguments; and when the IPU is free.

The SDK is the stand-in of ``tests/doubles``; what it writes runs on the CPU.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any, Dict

import numpy as np
import pytest

from ipubench.bench_inference.bench_tensorflow_serving import IPU
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.values import Parameters
from ipubench.fixtures.devices.base import DeviceError
from ipubench.fixtures.devices.ipu import IpuDevice, IpuModelDevice
from tests.doubles import tensorflow_ipu as double
from tests.doubles import tensorflow_serving as serving
from tests.runtimes.tensorflow.test_contract import differences
from tests.support.sdk_api import description
from tests.support.serving import BATCH, ROWS, feed
from tests.support.tensorflow_ipu import HARDWARE, given, install

SMALL = dataclasses.replace(
    IPU["resnet50_infer_bs16"],
    model_name="toy_model_bn",
    dataset="cifar10",
    data="generated",
    fused_preprocessing=False,
    micro_batch_size=BATCH,
    request_batch_size=ROWS,
)
COMPILATION = {
    "target.deterministicWorkers": "false",
    "opt.internalExchangeOptimisationTarget": "memory",
}


def test_exporting_offers_nothing_that_the_sdk_does_not() -> None:
    api = description("tensorflow_ipu.json")
    assert differences(serving.NAME, serving.as_module(), api) == []
    del api["modules"][serving.NAME]["functions"]["export_single_step"]["params"][4]
    found = differences(serving.NAME, serving.as_module(), api)
    assert [text.split(":")[0] for text in found] == [f"{serving.NAME}.export_single_step"]


@pytest.fixture
def tf(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = install(monkeypatch)
    ipu = sys.modules["tensorflow.python.ipu"]
    monkeypatch.setitem(sys.modules, serving.NAME, serving.as_module())
    monkeypatch.setattr(ipu, "serving", sys.modules[serving.NAME], raising=False)
    return module


def export(folder: Path, device: IpuDevice = HARDWARE, **changes: Any) -> Any:
    from ipubench.fixtures.runtimes.tensorflow.ipu.ipu_step import start
    from ipubench.fixtures.servers.tensorflow_serving.export import export_on_ipu

    config = dataclasses.replace(SMALL, **changes)
    config.check()
    session = start(device, synthetic=False)
    return export_on_ipu(session, config.classifier(), config, feed(config), folder)


@pytest.mark.framework
def test_the_network_is_compiled_and_exported_and_the_ipu_released(tf: Any, tmp_path: Path) -> None:
    exported = export(tmp_path / "model")
    assert double.recorder.attached == 0
    called = [name for name, _ in double.recorder.calls]
    assert called.index("IPUConfig.configure_ipu_system") < called.index("export_single_step")
    assert called[-1] == "reset_ipu_configuration"
    arguments = given("export_single_step")
    assert set(arguments) == {
        "predict_step", "export_dir", "iterations", "predict_step_signature", "output_names",
    }  # fmt: skip
    assert arguments["export_dir"] == str(tmp_path / "model" / "001")
    assert arguments["iterations"] == 1 and arguments["output_names"] == ["probabilities"]
    (spec,) = arguments["predict_step_signature"]
    assert spec.dtype == tf.uint8 and spec.shape.as_list() == [BATCH, 32, 32, 3]
    planners = {"partialsType": "half", "availableMemoryProportion": "0.2"}
    # The preset attaches on demand, which an export cannot do.
    assert SMALL.on_demand
    assert double.recorder.configured == {
        "auto_select_ipus": 1,
        "compilation_poplar_options": COMPILATION,
        "convolutions.poplar_options": planners,
        "matmuls.poplar_options": planners,
    }
    assert exported.precision == "float16"
    assert exported.facts["engine"] == "tensorflow-ipu"

    # The program in float16 is compared with the same network in float32.
    images = np.random.RandomState(5).randint(0, 256, (BATCH, 32, 32, 3)).astype(np.uint8)
    loaded = tf.saved_model.load(str(tmp_path / "model" / "001"))
    answer = loaded.signatures["serving_default"](images=tf.constant(images))["probabilities"]
    assert answer.dtype == tf.float32 and answer.shape == (BATCH, 10)
    expected = exported.probabilities(images)
    assert np.abs(answer.numpy() - expected).max() <= 1e-2 * expected.max()
    assert np.ptp(expected, axis=0).max() > 1e-2  # the images give different results


@pytest.mark.framework
def test_sdk_26_exports_too(tf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ipu = sys.modules["tensorflow.python.ipu"]
    monkeypatch.setattr(ipu, "serving", serving.as_module("2.6"))
    export(tmp_path / "model")
    loaded = tf.saved_model.load(str(tmp_path / "model" / "001"))
    (signature,) = given("export_single_step")["input_signature"]
    answer = loaded.signatures["serving_default"](images=tf.zeros(signature.shape, tf.uint8))
    assert answer["probabilities"].shape == (BATCH, 10)


@pytest.mark.framework
def test_the_options_of_the_application_reach_the_sdk(tf: Any, tmp_path: Path) -> None:
    changes: Dict[str, Any] = {
        "nanoo": True,
        "fp_exceptions": True,
        "gather_conv_output": True,
        "half_partials": False,
        "scheduling_algorithm": "SHORTEST_PATH",
        "min_remote_tensor_size": 4096,
        "max_reduce_many_buffer_size": 216,
        "available_memory_proportion": (15,),
    }
    export(tmp_path / "model", **changes)
    found = {
        name: getattr(value, "name", value) for name, value in double.recorder.configured.items()
    }
    memory = {"availableMemoryProportion": "0.15"}
    assert found == {
        "auto_select_ipus": 1,
        "compilation_poplar_options": COMPILATION,
        "convolutions.poplar_options": {**memory, "gatherConvOutput": "true"},
        "matmuls.poplar_options": memory,
        "floating_point_behaviour.inv": True,
        "floating_point_behaviour.div0": True,
        "floating_point_behaviour.oflo": True,
        "floating_point_behaviour.nanoo": True,
        "optimizations.maximum_reduce_many_buffer_size": 216,
        "optimizations.minimum_remote_tensor_size": 4096,
        "scheduling.algorithm": "SHORTEST_PATH",
    }


@pytest.mark.framework
def test_group_norms_are_compared_on_the_cpu(tf: Any, tmp_path: Path) -> None:
    """The SDK's group norm, with channels a stride apart, runs only on IPUs."""
    changes: Dict[str, Any] = {
        "norm_layer": Parameters({"name": "group_norm", "num_groups": 4}),
        "precision": "32.32",
        "eight_bit_transfer": False,
        "accelerator_side_preprocess": False,
    }
    exported = export(tmp_path / "model", IpuDevice(3), **changes)
    (spec,) = given("export_single_step")["predict_step_signature"]
    assert spec.dtype == tf.float32  # images come normalised
    assert double.recorder.configured["select_ipus"] == 3
    count = double.recorder.names().count("group_norm")
    assert count > 0
    images = np.random.RandomState(6).standard_normal((BATCH, 32, 32, 3)).astype(np.float32)
    expected = exported.probabilities(images)
    assert double.recorder.names().count("group_norm") == count
    loaded = tf.saved_model.load(str(tmp_path / "model" / "001"))
    answer = loaded.signatures["serving_default"](images=tf.constant(images))["probabilities"]
    np.testing.assert_allclose(answer.numpy(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.framework
def test_a_failing_export_releases_the_ipu_and_reports_the_reason(tf: Any, tmp_path: Path) -> None:
    double.recorder.run_error = "tile 7 full"
    with pytest.raises(CaseError, match="export .*: tile 7 full"):
        export(tmp_path / "model")
    assert double.recorder.attached == 0
    double.recorder.run_error = ""
    double.recorder.attach_error = "no device"
    with pytest.raises(DeviceError, match=" 1 IPU: no device"):
        export(tmp_path / "model")


@pytest.mark.framework
def test_the_emulator_cannot_serve(tf: Any, tmp_path: Path) -> None:
    from ipubench.fixtures.runtimes.tensorflow.ipu.tensorflow_ipu import TensorFlowIpu
    from ipubench.fixtures.servers.tensorflow_serving.runtime import ServingRuntime

    device = IpuModelDevice()
    runtime = ServingRuntime(TensorFlowIpu(device), device, tmp_path, tuned=False)
    try:
        with pytest.raises(CaseError, match="emulator"):
            runtime.inference(SMALL.classifier(), SMALL, feed(SMALL))
    finally:
        runtime.close()
