"""Load: schedules, percentiles, verdicts, the search, and a client under orders."""

from __future__ import annotations

import dataclasses
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, List

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.bench_inference import bench_tensorflow_serving as serving
from ipubench.bench_inference import bench_triton as triton
from ipubench.fixtures.case.cases import effective_options
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.servers import arrivals
from ipubench.fixtures.servers.client import Client
from ipubench.fixtures.servers.load import (
    CONSTANT,
    MULTI_STREAM,
    OFFLINE,
    SCENARIOS,
    SERVER,
    SINGLE_STREAM,
    WITH_RATE,
    Load,
    LoadResult,
    due,
    judge,
    load_facts,
    percentiles,
)
from ipubench.fixtures.servers.scenario import Scenario, load_line
from ipubench.fixtures.servers.tensorflow_serving.runtime import ServingRuntime
from ipubench.fixtures.servers.triton.runtime import TritonRuntime

TRITON = triton.HOST["resnet50"]
SERVING = serving.HOST["resnet50_infer_bs1-latency"]


@pytest.mark.parametrize(
    ("scenario", "qps", "queries", "samples", "limit"),
    [
        (CONSTANT, 100.0, 1000, 1, 360 + 2 * 20),
        (CONSTANT, 1.0, 662, 1, 360 + 2 * 662),  # enough for a p99
        (SERVER, 100.0, 1000, 1, 360 + 2 * 20),  # the server answers half of them in time
        (SINGLE_STREAM, 0.0, 500, 1, 360 + 2 * 10),
        (MULTI_STREAM, 0.0, 662, 8, 360 + 2 * 105.92),
        (OFFLINE, 0.0, 1, 500, 360 + 2 * 10),
    ],
)
def test_a_run_lasts_as_requested_and_has_enough_for_its_percentile(
    scenario: str, qps: float, queries: int, samples: int, limit: float
) -> None:
    load = Load.of(scenario, 10.0, qps, 0.0, 0.02, "")
    assert (load.queries, load.samples) == (queries, samples)
    assert load.limit_seconds == pytest.approx(limit)


def test_a_constant_load_has_equal_intervals() -> None:
    assert due(Load(CONSTANT, 5, target_qps=4.0)) == [0.0, 0.25, 0.5, 0.75, 1.0]


@given(st.lists(st.floats(1e-4, 1e3), min_size=1, max_size=300))
def test_percentiles_are_nearest_rank_values(latencies: List[float]) -> None:
    found = percentiles(latencies)
    for name, value in found.items():
        rank = min(len(latencies) - 1, int(len(latencies) * float(name[1:]) / 100))
        assert value == np.sort(latencies)[rank]


LOAD = Load(CONSTANT, 662, target_qps=100.0, bound_seconds=0.015)


def answers(latency: float = 0.01, **more: Any) -> LoadResult:
    given = {"latencies": [latency] * 662, "late": 0.0, "seconds": 6.62, "due_within": 6.61, **more}
    return LoadResult(**given, percentiles=percentiles(given["latencies"]))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, ""),
        ({"latency": 0.02}, "p99 is"),
        ({"seconds": 8.0}, " 82.8 of 100.2 requests "),
        ({"late": 0.002}, "the schedule"),
        ({"verdict": "VALID"}, ""),
        ({"verdict": "INVALID", "why": "x"}, " INVALID: x"),
        # The rate is that of the scheduled requests.
        ({"due_within": 7.9, "seconds": 8.0}, ""),
    ],
)
def test_the_missed_conditions_of_a_run(more: Any, why: str) -> None:
    found = judge(LOAD, answers(**more))
    assert len(found) == bool(why) and why in "".join(found)
    facts = load_facts(LOAD, answers(**more))
    assert facts["valid"] == (not why) and facts["invalid_because"] == found
    assert ("INVALID: " in load_line(facts)) == bool(why)


def test_the_record_of_a_run() -> None:
    facts = load_facts(LOAD, answers(late=0.0005))
    assert facts["answered_qps"] == pytest.approx(100)
    assert facts["latency_ms"]["p99.9"] == pytest.approx(10)
    assert (facts["target_qps"], facts["latency_bound_ms"]) == (100.0, 15.0)
    assert facts["client_late_p99_ms"] == 0.5
    assert (facts["loadgen"], facts["as_long_as_mlperf"]) == (None, False)
    long = load_facts(Load(OFFLINE, 1), answers(seconds=600.0, verdict="VALID"))
    assert (long["loadgen"], long["as_long_as_mlperf"]) == ("VALID", True)
    assert (long["target_qps"], long["latency_bound_ms"]) == (None, None)
    assert "p50 10.0, p99 10.0, p99.9 10.0 ms (" in load_line(facts)
    assert load_line(facts).endswith("; valid")


def test_the_last_response_may_take_as_long_as_its_bound() -> None:
    slow = dataclasses.replace(LOAD, bound_seconds=1.0)
    assert judge(slow, answers(0.9, seconds=7.51)) == []
    assert len(judge(slow, answers(0.9, seconds=8.2))) == 1


class Scripted(Client):
    """A client that completes each request after a millisecond in a thread, except the sixth."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.requests = list(range(7))
        self.asked: List[int] = []
        self.checked = 0
        self._fails = fails
        self._pool = ThreadPoolExecutor(32)
        self._lock = threading.Lock()

    def make_requests(self) -> List[Any]:
        return self.requests

    def open(self, address: str) -> None:
        pass

    def infer(self, request: Any) -> Any:
        raise AssertionError("an open loop does not wait")

    def infer_async(self, request: Any, done: Callable[..., None]) -> None:
        with self._lock:
            self.asked.append(request)

        def work() -> None:
            time.sleep(0.001)
            done(request)

        self._pool.submit(work)

    def outcome(self, *found: Any) -> Any:
        if found == (6,) and self._fails:
            raise ValueError("no answer")
        return found[0]

    def check(self, answer: Any) -> None:
        self.checked += 1


def test_a_constant_load_times_each_request_from_when_it_was_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def late(moment: float) -> None:
        time.sleep(max(0.0, moment + 0.05 - time.monotonic()))

    monkeypatch.setattr(arrivals, "_sleep_until", late)
    client, load = Scripted(), Load(CONSTANT, 50, target_qps=500.0)
    found = client.load(dataclasses.asdict(load))
    assert client.asked == [number % 7 for number in range(50)] and client.checked == 50
    assert client.wanted["limit"] == load.limit_seconds
    assert len(found["latencies"]) == 50 and min(found["latencies"]) >= 0.051
    assert 0.05 <= found["late"] <= max(found["latencies"]) - 0.001
    assert found["seconds"] >= found["due_within"] == pytest.approx(49 / 500)


def test_a_closed_run_begins_on_time_and_reports_response_times() -> None:
    client, at = Scripted(), time.monotonic() + 0.05
    client.wanted = {"asynchronous": True}
    for count, asked in ((3, [0, 1, 2]), (6, [3, 4, 5, 6, 0, 1])):
        start, end = client.run((count, at))["window"]
        assert start >= at and end > start
        assert client.asked[-count:] == asked
        times = sorted(client.response_times((start, end))["times"])
        assert len(times) == count
        assert sorted(client.response_times((times[0], times[-2]))["times"]) == times[1:-1]
    assert [len(seconds) for seconds in client.report(2)["runs"]] == [3, 6]
    assert client.report(0) == {"runs": []}


def test_a_request_that_fails_ends_the_load() -> None:
    with pytest.raises(ValueError, match="no answer"):
        Scripted(fails=True).load(dataclasses.asdict(Load(CONSTANT, 20, target_qps=500.0)))


@pytest.mark.parametrize("scenario", [SERVER, SINGLE_STREAM, MULTI_STREAM, OFFLINE])
def test_loadgen_sends_exactly_the_requested_load_and_judges_it(
    scenario: str, tmp_path: Path
) -> None:
    pytest.importorskip("mlperf_loadgen", reason="pip install mlcommons-loadgen")
    client = Scripted()
    load = Load.of(scenario, 0.5, 1500.0 if scenario == SERVER else 0.0, 0.0, 0.001, str(tmp_path))
    found = arrivals.run(client, load)
    assert len(found.latencies) == client.checked == load.queries * load.samples
    assert found.verdict in ("VALID", "INVALID")
    assert found.percentiles["p99"] >= found.percentiles["p50"] >= 0.001
    summary = (tmp_path / "mlperf_log_summary.txt").read_text()
    assert f"Scenario : {scenario.title().replace('_', '')}\n" in summary
    # LoadGen counts from when it scheduled a request, the client from when it sent it. LoadGen's
    # term is *query*, and its log is parsed for that.
    each = 8 if scenario == MULTI_STREAM else 1
    slowest = [max(found.latencies[at : at + each]) for at in range(0, len(found.latencies), each)]
    assert found.late == max(0.0, found.percentiles["p99"] - percentiles(slowest)["p99"])
    if scenario == MULTI_STREAM:
        assert ", 662 queries of 8 requests: p50 " in load_line(load_facts(load, found))


class Sender:
    """Replaces a client: responses take longer the nearer the rate is to 80 per second."""

    def __init__(self, late: float = 0.0) -> None:
        self._late = late

    def __call__(self, load: Load) -> LoadResult:
        free = max(0.01, 1 - load.target_qps / 80)
        latencies = [0.01 / free] * load.queries
        seconds = load.queries / min(load.target_qps, 80)
        return LoadResult(latencies, self._late, seconds, percentiles(latencies))


def scenario_of(send: Any, **options: Any) -> Scenario:
    config = dataclasses.replace(TRITON, scenario=CONSTANT, **options)
    return Scenario(config, send, Path("logs"))


def test_a_run_whose_loadgen_cannot_write_is_refused_or_invalid(tmp_path: Path) -> None:
    """LoadGen crashes if it cannot open its files, and is silent if the disk is full."""
    pytest.importorskip("mlperf_loadgen", reason="pip install mlcommons-loadgen")
    (tmp_path / "file").touch()
    config = dataclasses.replace(TRITON, scenario=SERVER, target_qps=20.0)
    for folder in (tmp_path / "folder", tmp_path / "file"):
        started = Scenario(config, Sender(), folder)
        started.prepare(0.0125)
        if folder.name == "file":
            with pytest.raises(CaseError, match=f"^scenario=server: LoadGen's logs .*{folder}"):
                started.run()
        else:
            started.run()  # LoadGen has written nothing
            (why,) = started.facts()["load"]["invalid_because"]
            assert f" {folder};" in why


def test_without_loadgen_its_scenarios_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for name in (SERVER, SINGLE_STREAM, MULTI_STREAM, OFFLINE):
        config = dataclasses.replace(TRITON, scenario=name)
        with pytest.raises(CaseError, match=f"scenario={name}: .* pip install mlcommons-loadgen"):
            Scenario(config, Sender(), Path("logs"))
    scenario_of(Sender(), target_qps=20.0)


def test_a_failed_measurement_fails_the_case() -> None:
    slow = scenario_of(Sender(), target_qps=20.0, latency_bound_ms=5.0)
    slow.prepare(0.0125)
    slow.run()
    (why,) = slow.facts()["load"]["invalid_because"]
    assert why.endswith("the bound 5 ms")
    late = scenario_of(Sender(late=0.05), target_qps=20.0)
    late.prepare(0.0125)
    with pytest.raises(CaseError, match="the schedule"):
        late.run()


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"target_qps": 5.0}, "target_qps"),
        ({"latency_bound_ms": 5.0}, "latency_bound_ms"),
        ({"scenario": SERVER}, "target_qps"),
        ({"scenario": SERVER, "latency_bound_ms": 9.0}, "needs target_qps"),
        ({"scenario": OFFLINE, "target_qps": 5.0}, "takes no target_qps"),
        ({"scenario": SERVER, "target_qps": 5.0, "clients": 4}, "clients=1"),
        ({"scenario": SERVER, "target_qps": 5.0, "request_type": "async"}, "request_type"),
    ],
)
def test_invalid_scenarios_are_refused(options: Any, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        dataclasses.replace(TRITON, data="generated", **options).check()


def test_a_sweep_of_loads_uses_one_server(tmp_path: Path) -> None:
    runtimes: Any = [
        (TritonRuntime(CpuDevice(), tmp_path, False), TRITON),
        (ServingRuntime(None, CpuDevice(), tmp_path, False), SERVING),
    ]
    for runtime, config in runtimes:
        runtime._config = config
        other = {"scenario": SERVER, "target_qps": 5.0, "latency_bound_ms": 9.0}
        assert runtime.can_reuse(dataclasses.replace(config, scenario_seconds=3.0, **other))
        assert not runtime.can_reuse(dataclasses.replace(config, micro_batch_size=17))
        runtime.close()


def test_both_servers_have_every_scenario_and_are_unchanged_without_one() -> None:
    for config in (TRITON, SERVING):
        assert not {"scenario", "target_qps"} & set(effective_options(config, frozenset()))
        for name in SCENARIOS[1:]:
            qps = 5.0 if name in WITH_RATE else 0.0
            changed = dataclasses.replace(config, scenario=name, target_qps=qps, data="generated")
            changed.check()
            assert effective_options(changed, frozenset())["scenario"] == name
