"""A real Triton server with a tiny model: requests, counts, failures, and cleanup."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Callable, Iterator, List

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.machine.process import free_port
from ipubench.fixtures.runtimes.step import ask
from ipubench.fixtures.servers import load as load_of_servers
from tests.machine.test_process import runs, wait_until_gone
from tests.support.harness import ROOT
from tests.support.triton import BATCH, TinyRuntime

pytestmark = pytest.mark.framework
for module in ("pytriton", "tritonclient.grpc"):
    pytest.importorskip(
        module, reason="needs nvidia-pytriton and tritonclient: make setup installs"
    )

SHARED = Path("/dev/shm")  # noqa: S108  only looked at
# Serves the tiny model to a client and waits to be killed.
PARENT = """
import json, signal, sys
from pathlib import Path
from tests.support.triton import TinyRuntime
runtime = TinyRuntime(Path(sys.argv[1]))
step = runtime.step(clients=2, batches_per_step=4)
step()
server = runtime.server
said = [str(runtime.scratch), str(server.scratch), server.process.pid, *step.client_pids]
print(json.dumps(said), flush=True)
signal.pause()
"""


def files(scratch: Path) -> List[str]:
    """Return the existing files and shared memory of a server."""
    shared = [name for name in os.listdir(SHARED) if name.startswith(scratch.name)]
    return shared + ([scratch.name] if scratch.exists() else [])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyRuntime]:
    """One server for all tests that do not break it."""
    runtime = TinyRuntime(tmp_path_factory.mktemp("served"))
    yield runtime
    if not runtime.running:  # the last of these tests had a failing request, which ends the server
        runtime.step().close()
    server = runtime.server
    assert len(files(server.scratch)) > 1
    runtime.close()
    assert files(server.scratch) == [] and not runtime.scratch.exists()


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[TinyRuntime]:
    """The test's own server, started by its first step."""
    own = TinyRuntime(tmp_path)
    yield own
    own.close()


def group(pgid: int) -> List[int]:
    """Return the running processes of a process group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and runs(int(entry.name)):
            try:
                if os.getpgid(int(entry.name)) == pgid:
                    found.append(int(entry.name))
            except ProcessLookupError:
                continue
    return found


@pytest.mark.parametrize(("request_type", "clients"), [("sync", 3), ("async", 1)])
def test_every_request_is_answered_timed_and_counted(
    served: TinyRuntime, request_type: str, clients: int
) -> None:
    step = served.step(request_type=request_type, clients=clients, batches_per_step=6 * clients)
    try:
        calls = 4
        assert step.describe()["server"].startswith("triton 2.")
        assert step.describe()["engine"] == "tiny"
        for _ in range(calls):
            step()
        requests = calls * 6 * clients
        latencies = step.latencies()
        assert len(latencies) == requests and all(0 < seconds < 60 for seconds in latencies)
        counters = step.counters()
        assert counters["server_requests"] == requests
        assert counters["server_inferences"] == requests * BATCH
        assert counters["server_failures"] == 0
        assert counters["answers_differ_by"] == 0
        assert 0 < counters["server_compute_infer_ms"] < counters["window_seconds"] * 1000
        # A client's rate is that of single requests, so it cannot exceed that of all together.
        assert counters["throughput_per_client_mean"] > 0
        assert len(group(served.server.process.pid or 0)) == 2  # the server and its backend
    finally:
        step.close()
    assert not any(map(runs, step.client_pids))


def test_consecutive_cases_share_a_server_until_its_model_changes(runtime: TinyRuntime) -> None:
    runtime.step().close()
    assert runtime.fresh
    first = runtime.server.process.pid
    runtime.step(request_type="async", clients=2, benchmark_only=True).close()
    assert not runtime.fresh and runtime.server.process.pid == first
    port = free_port()
    runtime.step(grpc_port=port).close()
    assert runtime.fresh and runtime.server.process.pid != first
    assert runtime.server.address == f"127.0.0.1:{port}"
    assert group(first or 0) == []


def test_outputs_of_another_network_fail_the_case_unless_it_only_measures(
    served: TinyRuntime,
) -> None:
    served._differences.clear()  # as if the server had not been compared
    (served.orders / "other-weights").touch()
    try:
        with pytest.raises(CaseError, match="differ by 0.5"):
            served.step()
        step = served.step(benchmark_only=True)
        step()
        assert step.counters()["answers_differ_by"] is None
        step.close()
    finally:
        (served.orders / "other-weights").unlink()


def test_a_server_that_counts_foreign_requests_fails_the_case(served: TinyRuntime) -> None:
    step, other = served.step(batches_per_step=4), served.step(batches_per_step=2)
    try:
        step()
        other()
        # The server may not have counted the last one yet.
        with pytest.raises(CaseError, match=r" 4 requests .* 8 images .* [56] "):
            step.counters()
    finally:
        step.close()
        other.close()


def test_a_failing_request_ends_the_case_with_its_reason(served: TinyRuntime) -> None:
    step = served.step(request_type="async", clients=2, batches_per_step=8)
    (served.orders / "raise").touch()
    try:
        with pytest.raises(CaseError, match="client . of 2: .*purpose"):
            step()
    finally:
        (served.orders / "raise").unlink()
        step.close()
    assert not any(map(runs, step.client_pids))


def test_a_server_killed_during_a_run_fails_the_case_and_the_next_gets_another(
    served: TinyRuntime,
) -> None:
    step = served.step(request_type="async", clients=2, batches_per_step=8)
    step()
    assert step.counters()["server_requests"] == step.batches_per_step
    server = served.server
    (served.orders / "kill-the-server").touch()
    with pytest.raises(CaseError) as caught:
        step()
    message = str(caught.value)
    assert re.search("server of tiny .* SIGKILL", message)
    assert message.endswith("    about to be killed")
    step.close()
    assert group(server.process.pid or 0) == [] and files(server.scratch) == []
    (served.orders / "kill-the-server").unlink()
    step = served.step(request_type="async", clients=2, batches_per_step=8)
    assert served.fresh
    step()
    assert step.counters()["server_requests"] == step.batches_per_step
    step.close()


def test_a_killed_client_fails_the_case(served: TinyRuntime) -> None:
    step = served.step(clients=3, batches_per_step=6)
    step()
    os.kill(step.client_pids[1], signal.SIGKILL)
    with pytest.raises(CaseError, match="client 2 of 3 .* SIGKILL"):
        step()
    assert not any(map(runs, step.client_pids))
    step.close()
    step = served.step()
    # Other clients' requests may remain in the server.
    assert served.fresh
    step()
    assert step.counters()["server_requests"] == step.batches_per_step
    step.close()


def test_a_model_that_cannot_be_loaded_fails_with_the_servers_reason(runtime: TinyRuntime) -> None:
    (runtime.orders / "fail-to-load").touch()
    with pytest.raises(CaseError) as caught:
        runtime.step()
    message = str(caught.value)
    assert " exit code 1 " in message and "missing on purpose" in message


def test_a_given_repository_is_served_unchanged_and_other_outputs_are_named(
    runtime: TinyRuntime, tmp_path: Path
) -> None:
    from ipubench.fixtures.servers.triton.classifiers import GivenRepository
    from tests.support.triton import TinyClassifier

    local = TinyClassifier("tiny", runtime.orders)
    given = tmp_path / "given"
    version = local.model().write(given)
    # All versions count, and the server fills in missing parts of a configuration.
    shutil.copytree(str(version), str(given / "tiny" / "2"))
    config = given / "tiny" / "config.pbtxt"
    text = config.read_text().replace('backend: "python"\n', "version_policy: { all { } }\n")
    config.write_text(text)
    runtime.given = GivenRepository(str(given), "tiny", local, comparable=True)
    step = runtime.step(batches_per_step=4)
    assert step.describe()["model_repository"] == str(given)
    step()
    counters = step.counters()
    assert counters["server_requests"] == 4 and counters["answers_differ_by"] == 0
    step.close()
    runtime.stop()
    assert config.read_text() == text
    for path in (config, version / "model.py", given / "tiny" / "2" / "model.py"):
        path.write_text(path.read_text().replace("output_0", "scores"))
    with pytest.raises(CaseError, match="output_0, but scores"):
        runtime.step()
    step = runtime.step(benchmark_only=True)
    with pytest.raises(CaseError, match="output_0, but scores"):
        step()
    step.close()
    runtime.close()
    assert config.is_file()


def test_no_client_can_have_the_server_run_a_program(served: TinyRuntime) -> None:
    """Any user can be a client. A model is a program, and the backend's memory is shared."""
    from tritonclient.utils import InferenceServerException

    served.step().close()
    region = next(name for name in files(served.server.scratch) if (SHARED / name).is_file())
    client = served.server.connect()
    model = {"config": json.dumps({"backend": "python"}), "files": {"file:1/model.py": b"pass"}}
    asked: List[Callable[[], object]] = [
        lambda: client.load_model("other", **model),
        lambda: client.load_model("tiny", **model),
        lambda: client.unload_model("tiny"),
    ]
    for header in ("plain", "triton-grpc-protocol-nobody", "triton-grpc-protocol-NOBODY"):
        asked.append(
            partial(
                client.register_system_shared_memory,
                *("region", f"/{region}", 4096),
                headers={header: "nothing"},
            )
        )
    for infer in asked:
        with pytest.raises(InferenceServerException, match="not allowed|restricted|metadata"):
            infer()
    client.close()
    step = served.step()
    step()
    step.close()


def test_a_client_imports_no_framework() -> None:
    program = (
        "import sys, ipubench.fixtures.servers.triton.client;"
        "print(sorted({'torch', 'tensorflow', 'torchvision', 'PIL', 'pytest'} & set(sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=str(ROOT), stdout=subprocess.PIPE, check=True
    )
    assert answer.stdout.decode().strip() == "[]"


def test_nothing_is_left_when_the_run_is_killed(tmp_path: Path) -> None:
    temporary = tmp_path / "as-a-pattern[1]"
    temporary.mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        cwd=str(ROOT),
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    ours, servers, *numbers = json.loads(parent.stdout.readline())
    server, *clients = map(int, numbers)
    processes = [*group(server), *clients]
    assert len(processes) == 4 and Path(ours).is_dir() and len(files(Path(servers))) > 1
    parent.kill()
    parent.communicate()
    wait_until_gone(processes, 40)
    deadline = time.monotonic() + 20
    while Path(ours).exists() or files(Path(servers)):
        assert time.monotonic() < deadline, "files are left"


def test_a_scenario_is_one_long_run_after_the_warm_up(
    served: TinyRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlperf_loadgen", reason="pip install mlcommons-loadgen")
    # On a busy machine a client is late, which does not matter here.
    monkeypatch.setattr(load_of_servers, "MOST_LATE_SECONDS", 60.0)
    step = served.step(
        scenario="server", target_qps=1000.0, batches_per_step=8, scenario_seconds=0.5
    )
    try:
        step()
        assert ask(step.rounds.most) == 1 and step.finish().facts == {}
        step.prepare_rounds(print)
        assert step.batches_per_step == 662
        assert step.clock is not None
        clock = step.clock.read
        assert clock() == 0
        step()
        counters = step.counters()
        assert counters["server_requests"] == 8 + 662
        assert counters["throughput_per_client_mean"] is None
        assert len(step.latencies()) == 8 + 662
        facts, (line,) = step.finish()
        load = facts["load"]
        assert (load["scenario"], load["requests"], load["target_qps"]) == ("server", 662, 1000.0)
        assert 662 / clock() == pytest.approx(load["answered_qps"])
        assert line.startswith("server, 662 requests at 1000.0 ")
    finally:
        step.close()
