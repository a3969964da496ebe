"""The inputs of an IPU's server: the calls that export the executable; and when the IPU is free.

PopTorch is the stand-in of ``tests/doubles``. No Poplar backend exists here, so no server runs.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, List

import numpy as np
import pytest

from ipubench.bench_inference.bench_triton import IPU, TritonClassifier
from ipubench.fixtures.case.errors import CaseError, OptionError
from ipubench.fixtures.data.images.feed import ImageFeed
from ipubench.fixtures.devices.base import DeviceError
from ipubench.fixtures.devices.ipu import IpuDevice
from ipubench.fixtures.servers.triton.poplar_classifier import PoplarClassifier, name_map
from ipubench.fixtures.servers.triton.runtime import TritonRuntime
from tests.doubles import poptorch_export as double
from tests.doubles.poptorch import recorder
from tests.support.sdk_api import description
from tests.support.sdk_contract import differences

SIZE = 32
SMALL = dataclasses.replace(
    IPU["resnet50"], model="resnet18", micro_batch_size=2, popef_iterations=3, random_weights=True
)


@pytest.fixture
def poptorch(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("torch", reason="needs PyTorch: make setup installs it")
    module = double.as_module()
    monkeypatch.setitem(sys.modules, "poptorch", module)
    return module


def classifier(config: TritonClassifier = SMALL) -> PoplarClassifier:
    feed = ImageFeed("real", config.micro_batch_size, SIZE)
    return PoplarClassifier(IpuDevice(), config.network(), config, feed)


def test_exporting_offers_nothing_that_the_sdk_does_not() -> None:
    modules = description("poptorch.json")["modules"]
    assert differences("poptorch", double.as_module(), modules) == []
    del modules["poptorch"]["classes"]["PoplarExecutor"]["methods"]["compileAndExport"]
    found = differences("poptorch", double.as_module(), modules)
    assert [text.split(":")[0] for text in found] == ["PoplarExecutor.compileAndExport"]


@pytest.mark.framework
def test_the_network_is_compiled_run_and_exported_once_and_the_ipu_released(
    poptorch: ModuleType, tmp_path: Path
) -> None:
    served = classifier()
    images = np.random.RandomState(0).randint(0, 255, (2, 3, SIZE, SIZE), dtype=np.uint8)
    logits = served.logits(images)
    assert logits.shape == (2, 1000) and logits.dtype == np.float32
    again = served.logits(images[::-1].copy())
    np.testing.assert_array_equal(again[::-1], logits)
    repository = served.repository(tmp_path)
    served.release()
    names = [name.rpartition(".")[2] for name in recorder.names() if "PoplarExecutor" in name]
    assert [name for name in names if name != "__call__"] == [
        "compile", "compileAndExport", "getTensorNames", "destroy",
    ]  # fmt: skip
    given = recorder.arguments("PoplarExecutor.compileAndExport")
    assert given["export_model"] is False
    assert [tuple(image.shape) for image in given["args"]] == [(6, 3, SIZE, SIZE)]
    assert recorder.arguments("Options.deviceIterations") == {"device_iterations": 3}
    version = repository / "resnet50" / "1"
    assert (version / "executable.popef").read_bytes() == b"popef"
    assert json.loads((version / "name_map.json").read_text()) == {
        "input": "input_0",
        "fc/fc/model/fc/fc/Gemm:0": "output_0",
    }
    config = (repository / "resnet50" / "config.pbtxt").read_text()
    assert "max_batch_size: 6\n" in config and "TYPE_FP16" in config
    assert served.facts(repository) == {"engine": "poptorch", "device_iterations": 3}
    served.release()


@pytest.mark.framework
def test_precision_and_pipelines(poptorch: ModuleType) -> None:
    assert classifier().model({}).output_type == "FP16"
    assert classifier(dataclasses.replace(SMALL, precision="32.32")).model({}).output_type == "FP32"
    with pytest.raises(OptionError, match="popef_iterations is 1: .* 2 stages"):
        changes: Dict[str, Any] = {"pipeline_splits": ("layer2/0/conv1",), "popef_iterations": 1}
        classifier(dataclasses.replace(SMALL, **changes))


def test_compile_only_is_refused_before_an_ipu_is_attached() -> None:
    with pytest.raises(ValueError, match="compile_only: "):
        dataclasses.replace(SMALL, compile_only=True).check()


@pytest.mark.framework
def test_a_failing_export_is_one_message_and_releases_the_ipu(
    poptorch: ModuleType, tmp_path: Path
) -> None:
    served = classifier()
    served.logits(np.zeros((2, 3, SIZE, SIZE), np.uint8))
    recorder.attach_error = "disk full"
    with pytest.raises(DeviceError, match=r"\.popef: disk full"):
        served.repository(tmp_path)
    served.release()
    assert recorder.names()[-1] == "PoplarExecutor.destroy"


HIDDEN, LOGITS = (f"{i}/{i}/model/classifier/classifier/{i}/{i}/Gemm:0" for i in "03")


@pytest.mark.framework
@pytest.mark.parametrize("names", [["input", HIDDEN, LOGITS], [LOGITS, "input", HIDDEN]])
def test_of_two_linear_layers_the_last_one_gives_the_logits(
    names: List[str], poptorch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PopTorch's names come from a set, so their order means nothing."""
    monkeypatch.setattr(double, "TENSORS", names)
    served = classifier(dataclasses.replace(SMALL, model="mobilenet-v3-small"))
    written = served.repository(tmp_path) / "resnet50" / "1" / "name_map.json"
    served.release()
    assert json.loads(written.read_text()) == {"input": "input_0", LOGITS: "output_0"}


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["x", "a/Gemm:0"], "x, a/Gemm:0"),
        (["input", "a/Conv:0"], "input, a/Conv:0"),
        (["input", "a/Gemm:0", "b/Gemm:0"], "a/Gemm:0, b/Gemm:0"),
        (["input", "a/fc/Gemm:0", "b/fc/Gemm:0"], "a/fc/Gemm:0, b/fc/Gemm:0"),
    ],
)
def test_ambiguous_tensors_are_named(names: List[str], shown: str) -> None:
    with pytest.raises(CaseError, match=f"'fc', .* {shown}\\."):
        name_map(names, "fc")


class EarlierServer:
    """A running server that records the number of PopTorch calls before it was stopped."""

    alive = True
    calls_before_its_end = -1

    def stop(self) -> None:
        self.calls_before_its_end = len(recorder.names())


@pytest.mark.framework
def test_the_ipu_is_free_before_the_server_starts(
    poptorch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pytriton", reason="needs nvidia-pytriton: make setup installs it")
    pytest.importorskip("tritonclient.grpc", reason="needs tritonclient: make setup installs it")
    monkeypatch.delenv("POPLAR_SDK_ENABLED", raising=False)
    monkeypatch.delenv("TRITON_BACKENDS", raising=False)
    runtime = TritonRuntime(IpuDevice(), tmp_path / "logs", tuned=False)
    try:
        feed = ImageFeed("generated", 2, SIZE)
        step = runtime.inference(SMALL.network(), SMALL, feed)
        assert step.reference.canary is None and step.describe()["precision"] == "float16"
        step.build()
        with pytest.raises(CaseError, match="backend poplar .*TRITON_BACKENDS"):
            step.compile()
        assert recorder.names()[-1] == "PoplarExecutor.destroy"
        # The previous case's server also has it until these images are compared.
        earlier = EarlierServer()
        runtime._server = earlier  # type: ignore[assignment]
        with pytest.raises(CaseError, match="backend poplar .*TRITON_BACKENDS"):
            step.compile()
        assert "PoplarExecutor.compile" in recorder.names()[earlier.calls_before_its_end :]
        step.close()
        assert (runtime.scratch / "repository" / "resnet50" / "1" / "executable.popef").is_file()
    finally:
        runtime.close()


@pytest.mark.framework
def test_a_given_executable_is_not_compared(poptorch: ModuleType, tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, model_repository=str(tmp_path))
    runtime = TritonRuntime(IpuDevice(), tmp_path / "logs", tuned=False)
    try:
        runtime.inference(config.network(), config, ImageFeed("generated", 2, SIZE))
        request: Any = np.zeros((2, 3, SIZE, SIZE), np.uint8)
        with pytest.raises(CaseError, match="add --set=benchmark_only=yes"):
            runtime.serve("generated", request)
    finally:
        runtime.close()
