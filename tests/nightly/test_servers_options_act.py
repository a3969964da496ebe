"""Options of served networks and of clients act, or are refused or declared idle.

As in tests/nightly/test_options_act.py. No server and no client starts: their inputs are compared,
which are the server's command, the files of its model and each client's orders.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Generator, List, Tuple

import pytest

from ipubench.bench_inference import bench_tensorflow_serving as serving
from ipubench.bench_inference import bench_triton as triton
from ipubench.bench_inference.bench_triton import TritonClassifier
from ipubench.bench_inference.serving import Serving
from ipubench.fixtures.data.images.feed import ImageFolder
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.devices.base import Device
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.devices.ipu import IpuDevice
from ipubench.fixtures.instances.plan import plan
from ipubench.fixtures.machine.loopback import LocalServer
from ipubench.fixtures.servers import images, request_step
from ipubench.fixtures.servers.load import Load, LoadResult, percentiles
from ipubench.fixtures.servers.tensorflow_serving.runtime import ServingRuntime
from ipubench.fixtures.servers.tensorflow_serving.server import ServingServer
from ipubench.fixtures.servers.triton import server as triton_server
from ipubench.fixtures.servers.triton.installation import Installation
from ipubench.fixtures.servers.triton.network import FACTS
from ipubench.fixtures.servers.triton.server import TritonServer
from ipubench.fixtures.servers.triton.triton_step import TritonStep
from tests.doubles import poptorch_export, tensorflow_ipu, tensorflow_serving
from tests.doubles.poptorch import recorder
from tests.nightly.options_act import plain, without_effect
from tests.support.kernels import no_images
from tests.support.tensorflow_ipu import install

pytestmark = pytest.mark.framework

#: Used by the meter only: the server is not involved in compiling without measuring.
OF_THE_METER = {"compile_only"}
#: Two options for one place; and with a given repository the compute type is only recorded.
SYNONYMS = {"normalization_location", "host"}


class Inputs:
    """Inputs of servers and clients, which are not started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.said: List[Any] = []
        self._folder = folder
        replaced: List[Tuple[Any, str, Any]] = [
            (request_step, "Clients", self.clients),
            (images, "ThreadPoolExecutor", self.pool),  # this many threads decode real files
            (triton_server, "find_installation", lambda _: Installation(folder, folder)),
            (triton_server, "link_backend", lambda *_: None),
            (triton_server, "server_options", lambda *_: frozenset({"grpc-address"})),
            (TritonServer, "_query", lambda *_: self.answer()),
            (TritonStep, "_server_logits", lambda step, _: step._runtime._expected),
            (ServingServer, "predict", lambda *_: self.predict()),
            (ServingRuntime, "compare", lambda *_: 0.0),
            (LocalServer, "launch", lambda server: self.launch(server)),
            (LocalServer, "wait_for_model", lambda server: self.load(server)),
        ]
        for owner, name, stand_in in replaced:
            monkeypatch.setattr(owner, name, stand_in)

    def launch(self, server: Any) -> None:
        server.port = server.port or 1
        server._process = server.new_process()
        self.said.append(server._process._wanted["command"])

    def load(self, server: Any) -> None:
        self.said += self.files(server._process._wanted["command"])
        python_model = next(self._folder.rglob("model.py"), None)
        if python_model is not None:
            facts = {"engine": "", "threads": 1}
            python_model.with_name(FACTS).write_text(json.dumps(facts), encoding="utf-8")

    def files(self, command: List[str]) -> List[Tuple[str, str]]:
        """Return the contents of the files that the command names."""
        named = [Path(word.split("=", 1)[1]) for word in command if "=/" in word]
        # Triton's repository links to the folders of its models.
        within = [
            Path(folder) / file
            for name in named
            for folder, _, files in os.walk(str(name), followlinks=True)
            for file in files
        ]
        found = [path for path in (*sorted(within), *named) if path.is_file()]
        return [(path.name, path.read_text(errors="replace")) for path in found]

    def answer(self) -> Any:
        """Return a version, or zero counts."""
        nothing = SimpleNamespace(count=0, ns=0)
        names = ["success", "fail", "queue", "compute_input", "compute_infer", "compute_output"]
        stats = SimpleNamespace(**dict.fromkeys(names, nothing))
        model = SimpleNamespace(inference_stats=stats, inference_count=0, execution_count=0)
        return SimpleNamespace(version="2", model_stats=[model])

    def predict(self) -> Any:
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        answer = predict_pb2.PredictResponse()
        answer.outputs["probabilities"].CopyFrom(tf.make_tensor_proto([1.0]))
        return answer

    def pool(self, threads: int) -> Any:
        from concurrent.futures import ThreadPoolExecutor

        self.said.append(threads)
        return ThreadPoolExecutor(1)

    def clients(self, count: int, *words: Any) -> Any:
        return _Clients(count, self.said)


class _Clients:
    """Clients that record their orders."""

    def __init__(self, count: int, said: List[Any]) -> None:
        self.pids = list(range(count))
        self._said = said

    def __len__(self) -> int:
        return len(self.pids)

    def prepare(self, wanted: List[Dict[str, Any]]) -> None:
        path = Path(str(wanted[0].get("images") or wanted[0]["requests"]))
        self._said += [wanted, hashlib.sha256(path.read_bytes()).hexdigest()]

    def connect(self, address: str) -> None:
        self._said.append(address)

    def run(self, requests: int, head_start: float) -> List[Tuple[float, float]]:
        self._said += [requests, head_start]
        return [(0.0, 1.0)] * len(self)

    def load(self, load: Load) -> LoadResult:
        self._said.append(dataclasses.replace(load, logs=""))
        return LoadResult([0.5], 0.0, 1.0, percentiles([0.5]))

    def response_times(self, start: float, end: float) -> List[float]:
        return [end]

    def report(self, runs: int) -> List[List[List[float]]]:
        return [[[1.0]] * runs] * len(self)

    def close(self) -> None:
        """Do nothing, as nothing runs."""


def scrubbed(*parts: Any) -> str:
    """Return the parts as text, without the names of temporary folders."""
    return re.sub(r"ipubench-[a-z]+-[\w-]+", "temporary", plain(*parts))


# --- Triton ----------------------------------------------------------------------------------


def triton_asked(
    config: TritonClassifier, images: ImageFolder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[str, None, None]:
    """Yield the requests to PopTorch, the server and the clients."""
    import torch

    from ipubench.fixtures.servers.triton.runtime import TritonRuntime

    monkeypatch.setitem(sys.modules, "poptorch", poptorch_export.as_module())
    device: Device = IpuDevice() if config.ipus else CpuDevice()
    if not config.ipus:
        device.half = "bfloat16"  # elsewhere each precision is float32
    runtime = TritonRuntime(device, folder, tuned=False)
    inputs = Inputs(monkeypatch, runtime.scratch)
    torch.manual_seed(0)
    weights: Dict[str, Any] = {}
    try:
        feed = config.feed(Data(lambda kind: images))
        step = runtime.inference(config.network(), config, feed)
        step.build()
        step.compile()
        step()
        step.prepare_rounds(print)
        step()
        step.close()
    finally:
        runtime.close()
    calls = recorder.calls
    if "inferenceModel" in recorder.names():
        state = recorder.arguments("inferenceModel")["model"].state_dict().items()
        weights = {name: (tuple(v.shape), float(v.double().sum())) for name, v in state}
    yield scrubbed(calls, weights, inputs.said, step.describe()["answers_compared"])


SMALL: Dict[str, Any] = {
    "model": "mobilenet-v3-small",
    "micro_batch_size": 1,
    "batches_per_step": 4,
    "precision": "32.32",
    "random_weights": True,
}


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        (triton.IPU["resnet50"], {"data": "generated"}),
        (triton.IPU["resnet50"], {"data": "real", "benchmark_only": True}),
        (triton.IPU["resnet50"], {"model_repository": "given", "benchmark_only": True}),
        (triton.HOST["resnet50"], {"data": "generated", "benchmark_only": True}),
        (triton.HOST["resnet50"], {"max_batch_size": 8, "benchmark_only": True}),
    ],
    ids=["ipu", "ipu-real", "ipu-repository", "host", "host-batches"],
)
def test_every_option_of_a_network_behind_triton_acts(
    preset: TritonClassifier,
    changes: Dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    pytest.importorskip("torch", reason="needs PyTorch: make setup installs it")
    pytest.importorskip("tritonclient.grpc", reason="needs tritonclient: make setup installs it")
    monkeypatch.chdir(tmp_path)
    given = tmp_path / "given" / preset.name  # a ready-made repository
    (given / "1").mkdir(parents=True)
    (given / "config.pbtxt").write_text(f'name: "{preset.name}"\n', encoding="utf-8")
    config = dataclasses.replace(preset, **{**SMALL, "data": "generated", **changes})
    config.check()
    images = one_image(tmp_path)
    found = without_effect(
        config,
        lambda one: triton_asked(one, images, tmp_path / "logs", monkeypatch),
        SYNONYMS | OF_THE_METER | ({"precision"} if config.model_repository else set()),
    )
    assert found == set()


def one_image(folder: Path) -> ImageFolder:
    from PIL import Image

    path = folder / "image.png"
    Image.new("RGB", (256, 256), (10, 20, 30)).save(str(path))
    return ImageFolder(str(folder), (str(path),))


# --- TensorFlow Serving ----------------------------------------------------------------------


def export(predict_step: Any, export_dir: str, *words: Any, **named: Any) -> None:
    """Replace the SDK's export, and write only the program's graph."""
    import tensorflow as tf

    tensorflow_ipu.recorder.calls.append(("export_single_step", {"words": words, **named}))
    signature = words[1]
    function = tf.function(predict_step, input_signature=signature, autograph=False)
    graph = function.get_concrete_function().graph
    shapes = sorted((weight.name, str(weight.shape)) for weight in graph.variables)
    lines = sorted(re.sub(r"[_-]+[0-9]+", "", str(graph.as_graph_def())).splitlines())
    Path(export_dir).mkdir(parents=True)
    Path(export_dir, "graph").write_text(plain(lines, shapes), encoding="utf-8")


def serving_asked(
    config: Serving, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[str, None, None]:
    """Yield the inputs of instances; the requests to the SDK, the server and the clients."""
    from ipubench.fixtures.runtimes.tensorflow.ipu.tensorflow_ipu import TensorFlowIpu

    double = tensorflow_ipu.recorder
    double.reset()
    device = IpuDevice()
    runtime = ServingRuntime(TensorFlowIpu(device), device, folder, tuned=False)
    inputs = Inputs(monkeypatch, runtime.scratch)
    try:
        feed = config.validation_feed(Data(no_images))()
        yield scrubbed(config.seed, plan(config, "ipu", frozenset({0, 1})))
        step = runtime.inference(config.classifier(), config, feed)
        step.build()
        yield scrubbed(double.calls, double.configured, inputs.said)
        step.compile()
        step()
        step.prepare_rounds(print)
        step()
        counters = sorted(step.counters())
        step.close()
    finally:
        runtime.close()
    yield scrubbed(double.calls, double.configured, inputs.said, counters)


def test_every_option_of_a_network_behind_tensorflow_serving_acts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(monkeypatch)
    ipu = sys.modules["tensorflow.python.ipu"]
    monkeypatch.setitem(sys.modules, tensorflow_serving.NAME, tensorflow_serving.as_module())
    module = sys.modules[tensorflow_serving.NAME]
    monkeypatch.setattr(module, "export_single_step", export)
    monkeypatch.setattr(ipu, "serving", module, raising=False)
    config = dataclasses.replace(
        serving.IPU["resnet50_infer_bs16"],
        model_name="toy_model_bn",
        dataset="cifar10",
        data="generated",
        fused_preprocessing=False,
        micro_batch_size=4,
        request_batch_size=2,
        num_images=6,
        num_threads=2,
        port=0,
    )
    config.check()
    found = without_effect(
        config, lambda one: serving_asked(one, tmp_path, monkeypatch), SYNONYMS | OF_THE_METER
    )
    assert found == set()
