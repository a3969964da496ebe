"""A server with TensorFlow Serving's interface and a small network, called by official stubs."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any, Iterator, List

import numpy as np
import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.data.tfds import pipeline
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.machine.process import accepts_connections
from ipubench.fixtures.runtimes.tensorflow.host.tensorflow_host import TensorFlowHost
from ipubench.fixtures.servers.tensorflow_serving.requests import ServingRequests, feed_images
from ipubench.fixtures.servers.tensorflow_serving.runtime import ServingRuntime
from ipubench.fixtures.servers.tensorflow_serving.server import ServingServer
from tests.machine.test_process import runs
from tests.support.listening import listening
from tests.support.serving import BATCH, ROWS, SMALL, SmallRuntime, feed, program

pytestmark = pytest.mark.framework
tf = pytest.importorskip("tensorflow", reason="needs TensorFlow: make setup installs it")
grpc = pytest.importorskip("grpc", reason="needs grpcio: make setup installs it")
apis = pytest.importorskip(
    "tensorflow_serving.apis", reason="needs tensorflow-serving-api: make setup installs it"
)
from tensorflow_serving.apis import (  # noqa: E402
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

LIMIT = 60.0
LOOPBACK = "0100007F"  # 127.0.0.1 as the kernel writes it; in tcp6 other digits precede it


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallRuntime]:
    """One server for all tests that do not break it; it replaces the real program."""
    folder = tmp_path_factory.mktemp("served")
    runtime = SmallRuntime(folder, program(folder))
    runtime.step().close()
    yield runtime
    pid = runtime.server.process.pid
    runtime.close()
    assert not runs(pid or 0) and not runtime.scratch.exists()


def prediction(served: SmallRuntime) -> Any:
    return prediction_service_pb2_grpc.PredictionServiceStub(served.server.connection)


def request(images: Any, name: str = "small", alias: str = "images") -> Any:
    wanted = predict_pb2.PredictRequest()
    wanted.model_spec.name = name
    wanted.inputs[alias].CopyFrom(tf.make_tensor_proto(images))
    return wanted


def pixels(rows: int) -> Any:
    return np.random.RandomState(5).randint(0, 256, (rows, 32, 32, 3)).astype(np.uint8)


def local(served: SmallRuntime, images: Any) -> Any:
    """Return the network's own result for a whole batch."""
    return served.exported.probabilities(images)


@pytest.mark.parametrize("rows", [1, 3, BATCH])
def test_predict_returns_the_networks_result(served: SmallRuntime, rows: int) -> None:
    images = pixels(BATCH)
    answer = prediction(served).Predict(request(images[:rows]), timeout=LIMIT)
    found = tf.make_ndarray(answer.outputs["probabilities"])
    assert found.dtype == np.float32 and found.shape == (rows, 10)
    np.testing.assert_allclose(found, local(served, images)[:rows], rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.sum(1), 1.0, rtol=1e-5)
    assert answer.model_spec.name == "small"
    assert answer.model_spec.signature_name == "serving_default"
    assert answer.model_spec.version.value == 1
    assert len({tuple(row) for row in found}) == rows  # other images, other results


def test_status_of_the_model(served: SmallRuntime) -> None:
    models = model_service_pb2_grpc.ModelServiceStub(served.server.connection)
    question = get_model_status_pb2.GetModelStatusRequest()
    question.model_spec.name = "small"
    (status,) = models.GetModelStatus(question, timeout=LIMIT).model_version_status
    assert (status.version, status.state) == (1, get_model_status_pb2.ModelVersionStatus.AVAILABLE)


@pytest.mark.parametrize(
    ("images", "options", "status"),
    [
        (pixels(1), {"name": "other"}, "NOT_FOUND"),
        (pixels(1), {"alias": "pixels"}, "INVALID_ARGUMENT"),
        (pixels(1).astype(np.float32), {}, "INVALID_ARGUMENT"),
        (pixels(1)[:, :16], {}, "INVALID_ARGUMENT"),
        (pixels(1)[0], {}, "INVALID_ARGUMENT"),
        (pixels(BATCH + 1), {}, "INVALID_ARGUMENT"),
    ],
)
def test_a_request_that_cannot_be_served_gets_its_status(
    served: SmallRuntime, images: Any, options: Any, status: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        prediction(served).Predict(request(images, **options), timeout=LIMIT)
    assert caught.value.code().name == status


def test_only_this_machine_can_reach_the_server(served: SmallRuntime) -> None:
    addresses = listening(served.server.process.pid or 0)
    assert addresses and all(address.endswith(LOOPBACK) for address in addresses)


def test_the_real_program_gets_the_original_arguments(served: SmallRuntime) -> None:
    words = served.program.with_suffix(".words").read_text().splitlines()
    options = dict(word.partition("=")[::2] for word in words)
    assert options["--port"] == str(served.server.port)
    assert options["--model_name"] == "small"
    assert [path.name for path in Path(options["--model_base_path"]).iterdir()] == ["001"]
    assert options["--enable_batching"] == ""
    assert Path(options["--batching_parameters_file"]).read_text() == (
        "max_batch_size { value: 4 }\nbatch_timeout_micros { value: 500 }\n"
        "max_enqueued_batches { value: 1000 }\nnum_batch_threads { value: 4 }\n"
        "allowed_batch_sizes: 4\n"
    )


@pytest.mark.parametrize(("use_async", "num_threads"), [(False, 1), (False, 3), (True, 3)])
def test_every_request_is_answered_and_timed(
    served: SmallRuntime,
    use_async: bool,
    num_threads: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forgotten: List[bool] = []
    monkeypatch.setattr(served.server, "reset_peak", lambda: forgotten.append(True))
    step = served.step(
        use_async=use_async,
        num_threads=num_threads,
        verbose=True,
    )
    try:
        assert not served.fresh  # another kind of client needs no other server
        assert forgotten == [True]  # memory of earlier cases is not counted
        described = step.describe()
        assert described["server"] == "tensorflow_model_server"
        assert described["engine"] == "tensorflow"
        assert described["server_version"] == "TensorFlow ModelServer: 2.6.0"
        assert described["clients"] == num_threads and described["served_batch_size"] == BATCH
        assert step.clock is not None
        clock = step.clock.read
        calls, each = 3, 6 // ROWS
        for _ in range(calls):
            before = clock()
            step()
            windows = step.windows[-1]
            whole = max(end for _, end in windows) - min(start for start, _ in windows)
            if use_async or num_threads == 1:
                assert clock() - before == pytest.approx(whole)
            else:  # all images at the rate while every client was busy
                assert 0 < clock() - before <= 3 * whole
        latencies = step.latencies()
        assert len(latencies) == calls * num_threads * each
        assert all(0 < seconds < LIMIT for seconds in latencies)
        counters = step.counters()
        assert counters["requests"] == len(latencies)
        assert counters["images"] == ROWS * len(latencies)
        assert 0 <= counters["common_window_share"] <= 1
        assert counters["rounds_without_common_window"] <= calls
        timed = "whole round" if use_async else "common window"
        assert counters["timed_window"] == timed
        whole = counters["images"] / counters["window_seconds"]
        assert counters["whole_rounds_images_per_s"] == pytest.approx(whole)
        assert counters["answers_differ_by"] <= 1e-3
        assert 50 << 20 < (step.host_memory() or 0) < 1 << 36
        assert counters["decode"] is None  # generated images need no reading
        shown = capsys.readouterr().out.splitlines()
        assert len(shown) == calls * each + 1 and "average" in shown[-1]
    finally:
        step.close()
    assert not any(map(runs, step.client_pids))


def test_requests_are_consecutive_images_with_a_different_start_for_each_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = [0, 1, 2, 10, 10]  # ten classes: the last two images only pad the batch
    images = np.arange(5, dtype=np.uint8).reshape(5, 1, 1, 1)

    class Feed:
        mode, classes = "real", 10

    def dataset(tf: Any, feed: Feed, compute: str) -> Any:
        assert compute == "float32"
        return tf.data.Dataset.from_tensors((images, labels))

    monkeypatch.setattr(pipeline, "dataset", dataset)
    kept = feed_images(tf, Feed(), 100)  # type: ignore[arg-type]
    assert kept.ravel().tolist() == [0, 1, 2]
    assert feed_images(tf, Feed(), 2).ravel().tolist() == [0, 1]  # type: ignore[arg-type]
    requests = ServingRequests(tf, "m", kept, batch_size=2, clients=2, each=2)
    entries = requests.write(tmp_path / "requests")
    assert [entry["numbers"] for entry in entries] == [[0, 1], [2, 0]]  # three are different
    data, length = (tmp_path / "requests").read_bytes(), entries[0]["length"]
    found = [
        predict_pb2.PredictRequest.FromString(data[start : start + length])
        for start in range(0, len(data), length)
    ]
    assert [tf.make_ndarray(one.inputs["images"]).ravel().tolist() for one in found] == [
        [0, 1],
        [2, 0],
        [1, 2],
    ]
    assert {one.model_spec.name for one in found} == {"m"}


def test_a_killed_server_fails_its_case_and_the_next_one_has_another(
    served: SmallRuntime,
) -> None:
    step = served.step()
    os.kill(served.server.process.pid or 0, signal.SIGKILL)
    with pytest.raises(CaseError) as caught:
        step()
    step.close()
    message = str(caught.value)
    assert re.search("tensorflow_model_server .*small .* SIGKILL", message)
    assert "Its log is" in message and not any(map(runs, step.client_pids))
    served.step().close()
    assert served.fresh and served.server.alive


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[ServingServer]:
    """The project's own server for a folder that does not exist yet."""
    base, log = tmp_path / "model", tmp_path / "log"
    server = ServingServer("small", base, None, log, tmp_path, device=CpuDevice())
    server.launch()
    try:
        server.process.wait_until(lambda: accepts_connections(server.port), LIMIT)
        yield server
    finally:
        server.stop()


def test_the_own_server_waits_for_a_version_serves_it_and_ends_on_sigterm(
    waiting: ServingServer, served: SmallRuntime, tmp_path: Path
) -> None:
    assert not waiting.has_model() and waiting.alive
    (tmp_path / "model").mkdir()
    written = served.scratch / "model" / "001"
    shutil.copytree(str(written), str(tmp_path / "model" / "unfinished"))
    assert not waiting.has_model()
    (tmp_path / "model" / "unfinished").rename(tmp_path / "model" / "002")
    waiting.wait_for_model()
    answer = waiting.predict(request(pixels(BATCH)), LIMIT)
    assert answer.model_spec.version.value == 2
    process = waiting.process
    waiting.stop()
    assert process.exit_code == 0
    (line,) = process.last_lines()
    assert "small version 2 " in line and line.endswith(waiting.address)


def test_a_network_that_cannot_be_exported_leaves_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def network(tf: Any) -> Any:
        pids.append(runtime.server.process.pid)
        raise ValueError("no such network")

    pids: List[Any] = []
    device = CpuDevice()
    runtime = ServingRuntime(TensorFlowHost(device), device, tmp_path / "logs", tuned=True)
    try:
        runtime.inference(network, SMALL, feed(SMALL))
        with pytest.raises(CaseError, match="no such network"):
            runtime.serve()
        assert len(pids) == 1 and not runs(pids[0]) and not runtime.running

        def full(*_: Any, **__: Any) -> None:
            raise tf.errors.ResourceExhaustedError(None, None, "saved_model.pb; No space left")

        monkeypatch.setattr(tf.saved_model, "save", full)
        runtime.inference(SMALL.classifier(), SMALL, feed(SMALL))
        with pytest.raises(CaseError, match=r"saved_model\.pb; No space left;"):
            runtime.serve()
        assert not runtime.running
    finally:
        runtime.close()
