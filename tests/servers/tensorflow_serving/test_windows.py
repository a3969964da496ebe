"""The timed part of a round, and messages for failing clients, without server or framework."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import List, Sequence, Tuple
from unittest.mock import Mock

import pytest

from ipubench.bench_inference.bench_tensorflow_serving import HOST
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.servers import clients as client_processes
from ipubench.fixtures.servers.clients import Clients, RequestError
from ipubench.fixtures.servers.load import CONSTANT, Load, LoadResult, percentiles
from ipubench.fixtures.servers.scenario import Scenario
from ipubench.fixtures.servers.tensorflow_serving.serving_step import ServingStep
from tests.support.serving import feed

# When a client starts, and when its responses come.
Script = Tuple[float, Sequence[float]]


class ScriptedClients:
    """Clients whose responses come at given times."""

    pids: List[int] = []
    head_start = -1.0

    def __init__(self, scripts: Sequence[Script]) -> None:
        self.scripts = list(scripts)
        self.seconds: List[List[List[float]]] = [[] for _ in scripts]

    def __len__(self) -> int:
        return len(self.scripts)

    def run(self, requests: int, head_start: float = 0.0) -> List[Tuple[float, float]]:
        self.head_start = head_start
        for seconds, (start, ends) in zip(self.seconds, self.scripts):
            seconds.append([end - start for end in ends])
        return [(start, ends[-1]) for start, ends in self.scripts]

    def response_times(self, start: float, end: float) -> List[float]:
        return sorted(time for _, ends in self.scripts for time in ends if start < time <= end)

    def report(self, runs: int) -> List[List[List[float]]]:
        return self.seconds

    def load(self, load: Load) -> LoadResult:
        latencies = [0.25] * load.queries
        return LoadResult(latencies, 0.0, load.queries / load.target_qps, percentiles(latencies))

    def close(self) -> None:
        pass


class ScriptedStep(ServingStep):
    """A step whose clients follow scripts; ``process`` is never used."""

    process = object()  # type: ignore[assignment]

    def stop_server(self) -> None:
        pass


def scripted(*scripts: Script, use_async: bool = False) -> ScriptedStep:
    """Return a step that was called once."""
    config = dataclasses.replace(
        HOST["resnet50_infer_bs1-latency"],
        num_threads=len(scripts),
        num_images=len(scripts[0][1]),
        use_async=use_async,
    )
    step = ScriptedStep(Mock(), config, feed(config))
    step.clients = ScriptedClients(scripts)  # type: ignore[assignment]
    step()
    return step


def rate(step: ScriptedStep) -> float:
    assert step.clock is not None
    return step.batches_per_step / step.clock.read()


# A server that answers one request per second. The second client begins 5 s after the first; from
# then on the server alternates between them.
LATE: Tuple[Script, Script] = ((0, [1, 2, 3, 4, 5, 7, 9]), (5, [6, 8, 10, 11, 12, 13, 14]))


def test_responses_before_the_common_window_are_not_counted() -> None:
    step = scripted(*LATE)
    assert step.windows == [[(0, 9), (5, 14)]]
    assert rate(step) == pytest.approx(1.0)
    counters = step.counters()
    assert counters["timed_window"] == "common window"
    assert counters["common_window_share"] == pytest.approx(4 / 14)
    assert counters["rounds_without_common_window"] == 0


def test_a_response_after_the_window_counts_towards_its_rate() -> None:
    """Both wait a second for each response, so two come per second: clients over latency."""
    step = scripted((0, [1, 2, 3]), (0, [1.01, 2.01, 3.01]))
    assert rate(step) == pytest.approx(2)


def test_clients_that_send_at_once_are_timed_from_first_start_to_last_response() -> None:
    # The first client's requests came first: both sent everything at 0.
    step = scripted((0, [1, 2, 3]), (0, [4, 5, 8]), use_async=True)
    assert rate(step) == pytest.approx(6 / 8)
    assert step.counters()["timed_window"] == "whole round"
    assert step.counters()["rounds_without_common_window"] == 0


def test_a_round_without_a_common_window_is_timed_whole_and_reported() -> None:
    step = scripted((0, [1, 2]), (4, [6, 8]))
    assert rate(step) == pytest.approx(4 / 8)
    assert step.counters()["common_window_share"] == 0
    assert step.counters()["rounds_without_common_window"] == 1


def test_the_first_clients_latencies_leave_the_warm_up_out() -> None:
    step = scripted((0, [7, 9]))
    step.prepare_rounds(print)
    assert step.clients is not None
    step.clients.scripts[0] = (0, [1, 2])  # type: ignore[attr-defined]
    step()
    assert step.counters()["client_1_latency_ms"] == {"mean": 1500, "min": 1000, "max": 2000}
    assert len(step.latencies()) == 4  # the meter chooses from these


def test_a_scenario_is_counted_with_the_clients_latencies() -> None:
    """Without those of the warm-up, which is a closed loop."""
    step = scripted((0, [7, 9]))
    step.prepare_rounds(print)
    config = dataclasses.replace(step._config, scenario=CONSTANT, target_qps=10.0)
    step._scenario = Scenario(config, step._send, Path("logs"))
    assert step._scenario.prepare(0.25) == 662
    before = step._seconds
    step()
    assert step._seconds - before == pytest.approx(662 / 10)  # from the client's report
    counters = step.counters()
    assert counters["client_1_latency_ms"] == {"mean": 250, "min": 250, "max": 250}
    assert counters["requests"] == counters["images"] == 2 + 662
    assert counters["whole_rounds_images_per_s"] == pytest.approx(2 / 9)
    assert counters["timed_window"] == "whole round"


def test_several_clients_wait_for_a_common_start_and_one_does_not() -> None:
    waits = [scripted(*([(0, [1])] * count)).clients for count in (1, 2, 32)]
    one, two, many = [clients.head_start for clients in waits]  # type: ignore[union-attr]
    assert one == 0 and 0 < two < many < 0.5


# ------------------------------------------------------------------ client processes

CLIENT = "ipubench.fixtures.servers.tensorflow_serving.client"


def processes(log: Path, advice: str = "use less") -> Clients:
    pytest.importorskip("grpc", reason="needs grpcio: make setup installs it")
    return Clients(2, log, lambda seconds: None, False, CLIENT, advice)


def test_a_killed_client_is_named_with_advice(tmp_path: Path) -> None:
    clients = processes(tmp_path / "empty.log")
    os.kill(clients.pids[1], signal.SIGKILL)
    with pytest.raises(CaseError, match="client 2 of 2 .* SIGKILL ") as caught:
        clients.report(0)
    assert "empty.log" not in str(caught.value) and not (tmp_path / "empty.log").exists()


@pytest.mark.parametrize(
    ("listens", "limit", "status"),
    [(False, 20.0, "UNAVAILABLE"), (True, 0.01, "DEADLINE_EXCEEDED")],
)
def test_a_refusal_is_one_line_with_the_status(
    tmp_path: Path, listens: bool, limit: float, status: str
) -> None:
    requests = tmp_path / "requests"
    requests.write_bytes(b"data")
    clients = processes(tmp_path / "log")
    entry = {"requests": str(requests), "length": 4, "numbers": [0], "limit": limit}
    clients.prepare([{**entry, "asynchronous": False}] * 2)
    with socket.socket() as port, pytest.raises(RequestError) as caught:
        port.bind(("127.0.0.1", 0))
        if listens:  # and never sends anything
            port.listen()
        clients.connect(f"127.0.0.1:{port.getsockname()[1]}")
    assert f" of 2: {status}: " in str(caught.value) and "\n" not in str(caught.value)


def test_clients_that_never_finish_are_terminated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_processes, "WATCH_SECONDS", 0.01)
    clients = processes(tmp_path / "log")
    for pid in clients.pids:
        os.kill(pid, signal.SIGSTOP)
    with pytest.raises(RequestError, match="not finished after 0 s"):
        clients._command([{"report": 0}] * 2, 0.0)
    assert len(clients) == 0


class RefusingClients(ScriptedClients):
    def connect(self, address: str) -> None:
        raise RequestError(
            "client 1 of 2: UNAVAILABLE: The batch scheduling queue to which this task was "
            "submitted is full"
        )

    def run(self, requests: int, head_start: float = 0.0) -> List[Tuple[float, float]]:
        self.connect("")
        raise AssertionError


class Process:
    def failure(self, what: str) -> CaseError:
        return CaseError(f"the server {what}.")


def test_a_full_queue_names_the_option_to_raise() -> None:
    step = scripted((0, [1]), (0, [2]))
    step.process = Process()
    step.clients = RefusingClients(())  # type: ignore[assignment]
    step._server = SimpleNamespace(address="")  # type: ignore[assignment]
    for infer in (step.connect_clients, step):  # each connecting client sends a request
        with pytest.raises(CaseError) as caught:
            infer()
        assert "max_enqueued_batches" in str(caught.value)
    assert step.hint("UNAVAILABLE: no connection") == ""
