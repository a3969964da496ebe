"""Load as it arrives: schedules, percentiles, verdicts, the search, and a client that obeys."""

from __future__ import annotations

import dataclasses
import errno
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.bench_inference import bench_tensorflow_serving as serving
from ipubench.bench_inference import bench_triton as triton
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.servers import arrivals, clients
from ipubench.fixtures.servers.client import Client
from ipubench.fixtures.servers.clients import Clients
from ipubench.fixtures.servers.load import (
    CONSTANT,
    LEAST_QUERIES,
    MULTI_STREAM,
    OFFLINE,
    SCENARIOS,
    SERVER,
    SINGLE_STREAM,
    Answers,
    Load,
    as_facts,
    due,
    highest_rate,
    judge,
    percentiles,
    too_many_late,
)
from ipubench.fixtures.servers.options import LOAD_OPTIONS
from ipubench.fixtures.servers.scenario import Scenario, said_of
from ipubench.fixtures.servers.tensorflow_serving.runtime import ServingRuntime
from ipubench.fixtures.servers.triton.runtime import TritonRuntime

TRITON = triton.HOST["resnet50"]
POSITIVE = st.floats(1e-4, 1e3)


def test_a_constant_load_is_due_at_equal_intervals() -> None:
    load = Load(CONSTANT, queries=5, target_qps=4.0)
    assert due(load) == [0.0, 0.25, 0.5, 0.75, 1.0]


@given(st.lists(POSITIVE, min_size=1, max_size=300))
def test_percentiles_are_values_that_were_seen_and_as_numpys(latencies: List[float]) -> None:
    found = percentiles(latencies)
    for name, value in found.items():
        assert value in latencies
        share = float(name[1:]) / 100
        rank = min(len(latencies) - 1, int(len(latencies) * share))
        assert value == np.sort(latencies)[rank]
    assert found["p50"] <= found["p90"] <= found["p99"] <= found["p99.9"] == max(latencies)


@pytest.mark.parametrize(
    ("scenario", "qps", "queries", "samples"),
    [
        (CONSTANT, 100.0, 1000, 1),
        (CONSTANT, 1.0, 662, 1),  # what a p99 needs
        (SERVER, 100.0, 1000, 1),
        (SINGLE_STREAM, 0.0, 500, 1),
        (MULTI_STREAM, 0.0, 662, 8),
        (OFFLINE, 0.0, 1, 500),
    ],
)
def test_a_run_lasts_as_asked_and_has_what_its_percentile_needs(
    scenario: str, qps: float, queries: int, samples: int
) -> None:
    load = Load.of(scenario, 10.0, qps, 0.0, 0.02, "")
    assert (load.queries, load.samples) == (queries, samples)
    assert load.queries >= LEAST_QUERIES[scenario]


@pytest.mark.parametrize(
    ("scenario", "qps", "expected"),
    [(OFFLINE, 0.0, 600.0), (SINGLE_STREAM, 0.0, 600.0), (MULTI_STREAM, 0.0, 600.0),
     (SERVER, 100.0, 600.0), (CONSTANT, 0.1, 6620.0), (CONSTANT, 500.0, 3000.0)],
)  # fmt: skip
def test_a_long_load_and_its_requests_may_take_longer(
    scenario: str, qps: float, expected: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All requests of an offline run are sent at once, so the last waits for all the others.

    It does so too where they are due at five times the rate that the server can answer.
    """
    client = Scripted()
    client.wanted = {"limit": 360.0, "model": "net"}
    sent: List[Any] = []
    monkeypatch.setattr(arrivals, "run", lambda *_: answers())

    def order(_: Clients, orders: Any, seconds: float) -> Any:
        sent.append(seconds)
        return [client.load(orders[0]["load"])]

    monkeypatch.setattr(Clients, "_order", order)
    own = Clients(0, tmp_path / "log", lambda _: None, False, "", "")
    load = Load.of(scenario, 600.0, qps, 0.0, 0.01, "")
    assert own.load(load) == answers()
    assert sent == [pytest.approx(360 + 2 * expected)]
    assert client.wanted == {"limit": sent[0], "model": "net"}


def test_clients_that_cannot_all_be_started_are_one_message_and_none_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeper = [sys.executable, "-c", "import signal; signal.pause()"]
    started: List[subprocess.Popen[bytes]] = []

    def start(*_: Any) -> Any:
        if len(started) == 2:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        started.append(subprocess.Popen(sleeper))
        return started[-1]

    monkeypatch.setattr(clients, "_start", start)
    message = r"client 3 of 4 cannot be started: Too many open files; .*ulimit.*, or use fewer"
    with pytest.raises(CaseError, match=message):
        Clients(4, tmp_path / "log", lambda _: None, False, "", "use fewer")
    assert [process.returncode for process in started] == [-signal.SIGKILL] * 2


def answers(latency: float = 0.01, count: int = 662, **more: Any) -> Answers:
    latencies = [latency] * count
    given: Any = {
        "latencies": latencies,
        "late": 0.0,
        "seconds": count / 100,
        "percentiles": percentiles(latencies),
        **more,
    }
    return Answers(**given)


LOAD = Load(CONSTANT, 662, target_qps=100.0, bound_seconds=0.015)


def test_a_run_that_kept_everything_is_valid() -> None:
    assert judge(LOAD, answers()) == []
    facts = as_facts(LOAD, answers())
    assert facts["valid"] and facts["answered_qps"] == pytest.approx(100)
    assert facts["latency_ms"]["p99.9"] == pytest.approx(10)
    assert facts["as_long_as_mlperf"] is False
    assert (facts["target_qps"], facts["latency_bound_ms"]) == (100.0, 15.0)
    late = as_facts(Load(OFFLINE, 1), answers(late=0.002))
    assert (late["target_qps"], late["latency_bound_ms"]) == (None, None)
    assert late["client_late_p99_ms"] == 2.0
    assert said_of(facts).endswith("p50 10.0, p99 10.0, p99.9 10.0 ms (from when due); valid")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"latency": 0.02}, "p99 is 20.0 ms, the bound 15 ms"),
        ({"seconds": 8.0}, "the server answered 82.8 of 100.0 questions a second"),
        ({"late": 0.002}, r"could not keep the schedule: it sent 2.0 ms late \(p99\)"),
        ({"verdict": "INVALID", "why": "x"}, "LoadGen calls the run INVALID: x"),
    ],
)
def test_a_run_that_did_not_is_invalid_and_says_why(more: Any, why: str) -> None:
    found = judge(LOAD, answers(**more))
    assert len(found) == 1 and re.search(why, found[0]), found
    assert "INVALID: " in said_of(as_facts(LOAD, answers(**more)))


def test_the_rate_that_is_kept_is_that_of_the_requests_as_they_were_due() -> None:
    """Random arrivals of 200 requests take some percent more or less time than 200 / rate."""
    latencies = [0.01] * 200
    random: Dict[str, Any] = {"latencies": latencies, "due_within": 2.1, "seconds": 2.11}
    assert judge(LOAD, answers(**random)) == []
    (missed,) = judge(LOAD, answers(**{**random, "due_within": 2.0, "seconds": 2.2}))
    assert missed == "the server answered 90.9 of 100.0 questions a second"


def test_the_last_answer_may_take_as_long_as_its_bound() -> None:
    slow = dataclasses.replace(LOAD, bound_seconds=1.0)
    late: Dict[str, Any] = {"latency": 0.9, "due_within": 6.61, "seconds": 7.51}
    assert judge(slow, answers(**late)) == []
    assert len(judge(slow, answers(**{**late, "seconds": 8.2}))) == 1


@given(st.floats(1.1, 900.0), st.floats(1.0, 1000.0))
def test_the_search_ends_near_the_highest_rate_that_holds(limit: float, start: float) -> None:
    tried: List[float] = []

    def holds(rate: float) -> bool:
        tried.append(rate)
        return rate <= limit

    found = highest_rate(holds, start, 1.0, 1000.0)
    assert found is not None and found <= limit <= 1.03 * found * (1 + 1e-9)
    assert len(tried) <= 20 and all(1.0 <= rate <= 1000.0 for rate in tried)
    # Apart from the bracket's doubling, a handful of halvings.
    assert len(tried) <= 2 + abs(math.log2(limit / start)) + 6


@pytest.mark.parametrize(
    ("holds", "start", "found", "rates"),
    [(False, 5.0, None, [5.0, 2.5, 1.25, 1.0]), (True, 3.0, 10.0, [3.0, 6.0, 10.0])],
)
def test_the_search_keeps_to_its_ends(
    holds: bool, start: float, found: Optional[float], rates: List[float]
) -> None:
    tried: List[float] = []

    def answer(rate: float) -> bool:
        tried.append(rate)
        return holds

    assert highest_rate(answer, start, 1.0, 10.0) == found
    assert tried == rates


@given(st.integers(0, 100))
def test_few_answers_that_are_late_prove_nothing_against_a_bound(late: int) -> None:
    latencies = [0.02] * late + [0.01] * (100 - late)
    found = too_many_late(answers(latencies=latencies), 0.015)
    # With one of a hundred late, five or more are so in 0.34% of runs.
    assert found is (late >= 5)


class Scripted(Client):
    """Answers each request after a fixed time, each in a thread of its own."""

    def __init__(self, seconds: float = 0.001, workers: int = 8) -> None:
        super().__init__()
        self.requests = list(range(7))
        self.checked = 0
        self.asked: List[int] = []
        self._seconds = seconds
        self._pool = ThreadPoolExecutor(workers)
        self._lock = threading.Lock()

    def make_requests(self) -> List[Any]:
        return self.requests

    def open(self, address: str) -> bool:
        return True

    def ask(self, request: Any) -> Any:
        raise AssertionError("an open loop does not wait")

    def ask_later(self, request: Any, done: Callable[..., None]) -> None:
        with self._lock:
            self.asked.append(request)

        def work() -> None:
            time.sleep(self._seconds)
            done(request)

        self._pool.submit(work)

    def outcome(self, *found: Any) -> Any:
        if found == (6,) and self._seconds < 0.0005:
            raise ValueError("no answer")
        return found[0]

    def check(self, answer: Any) -> None:
        self.checked += 1


def test_a_constant_load_sends_each_request_in_turn_and_times_it_from_when_it_was_due() -> None:
    client = Scripted()
    found = client.load(dataclasses.asdict(Load(CONSTANT, 50, target_qps=500.0)))
    assert client.asked == [number % 7 for number in range(50)] and client.checked == 50
    assert len(found["latencies"]) == 50 and min(found["latencies"]) >= 0.001
    assert 0 <= found["late"] <= max(found["latencies"]) - 0.001
    assert found["seconds"] >= 49 / 500
    assert found["due_within"] == pytest.approx(49 / 500)


def test_a_request_that_fails_ends_the_load() -> None:
    with pytest.raises(ValueError, match="no answer"):
        Scripted(seconds=0.0001).load(dataclasses.asdict(Load(CONSTANT, 20, target_qps=500.0)))


@pytest.mark.parametrize("scenario", [SERVER, SINGLE_STREAM, MULTI_STREAM, OFFLINE])
def test_loadgen_sends_exactly_what_was_asked_for_and_judges_it(
    scenario: str, tmp_path: Path
) -> None:
    pytest.importorskip("mlperf_loadgen", reason="pip install mlcommons-loadgen")
    client = Scripted(workers=32)
    load = Load.of(scenario, 0.5, 1500.0 if scenario == SERVER else 0.0, 0.0, 0.001, str(tmp_path))
    found = arrivals.run(client, load)
    assert len(found.latencies) == client.checked == load.queries * load.samples
    assert found.verdict in ("VALID", "INVALID")
    assert found.percentiles["p99"] >= found.percentiles["p50"] >= 0.001
    summary = (tmp_path / "mlperf_log_summary.txt").read_text()
    assert f"Scenario : {scenario.title().replace('_', '')}\n" in summary
    # It counts from when it scheduled a request, the client from when it sent it. It speaks of
    # queries, and so must the number that is taken from its own.
    each = 8 if scenario == MULTI_STREAM else 1
    slowest = [max(found.latencies[at : at + each]) for at in range(0, len(found.latencies), each)]
    assert found.late == max(0.0, found.percentiles["p99"] - percentiles(slowest)["p99"])
    if scenario == MULTI_STREAM:
        assert ", 662 queries of 8 requests: p50 " in said_of(as_facts(load, found))


class Sender:
    """Stands for a client: answers that take longer the nearer the rate is to a limit."""

    def __init__(self, limit: float = 80.0, late: float = 0.0) -> None:
        self.loads: List[Load] = []
        self._limit, self._late = limit, late

    def __call__(self, load: Load) -> Answers:
        self.loads.append(load)
        free = max(0.01, 1 - load.target_qps / self._limit)
        latencies = [0.01 / free] * load.queries
        seconds = load.queries / min(load.target_qps, self._limit)
        return Answers(latencies, self._late, seconds, percentiles(latencies))


def scenario(send: Any, **options: Any) -> Scenario:
    config = dataclasses.replace(TRITON, scenario=CONSTANT, **options)
    return Scenario(config, send, Path("logs"))


def test_a_run_whose_loadgen_cannot_write_is_refused_or_invalid(tmp_path: Path) -> None:
    """LoadGen crashes where it cannot open its files, and says nothing where the disk is full."""
    pytest.importorskip("mlperf_loadgen", reason="pip install mlcommons-loadgen")
    (tmp_path / "file").touch()
    config = dataclasses.replace(TRITON, scenario=SERVER, target_qps=20.0)
    for folder in (tmp_path / "folder", tmp_path / "file"):
        started = Scenario(config, Sender(), folder)
        started.prepare(0.0125, print)
        if folder.name == "file":
            with pytest.raises(CaseError, match="^scenario=server: LoadGen's logs cannot be wri"):
                started.run()
        else:
            started.run()  # of which LoadGen has written nothing
            (why,) = started.facts()["load"]["invalid_because"]
            assert why == f"LoadGen has written no verdict to {folder}/run; is the disk full?"


def test_without_loadgen_its_scenarios_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for name in (SERVER, SINGLE_STREAM, MULTI_STREAM, OFFLINE):
        config = dataclasses.replace(TRITON, scenario=name)
        with pytest.raises(CaseError, match=f"scenario={name}: .* pip install mlcommons-loadgen"):
            Scenario(config, Sender(), Path("logs"))
    scenario(Sender(), target_qps=20.0)


def test_a_bound_on_the_latency_finds_the_highest_rate_that_holds_it() -> None:
    send = Sender()
    searching = scenario(send, latency_bound_ms=20.0)
    said: List[str] = []
    count = searching.prepare(0.0125, said.append)
    # 10 ms at no load, so 20 ms at half of 80 a second.
    load = searching.load
    assert load is not None and 40 / 1.06 <= load.target_qps <= 40
    assert count == load.queries
    searching.run()
    facts = searching.facts()["load"]
    probes = facts["searched"]
    assert facts["valid"] and all(one["held"] == (one["p99_ms"] <= 20.0) for one in probes)
    # What fails ends after its first requests; the last alone has as many as its percentile needs.
    assert [one["requests"] for one in probes if one["held"]][-1] == 662
    assert all(one["requests"] in (200, 205) for one in probes[:-1] if one["held"])
    assert all(one["requests"] < max(40, one["target_qps"]) for one in probes if not one["held"])
    assert probes[-1]["target_qps"] == load.target_qps
    assert len(send.loads) == 1 + len(probes) + sum(one["held"] for one in probes)
    assert len(said) == len(probes)
    last = rf"probe {len(said)}: 662 requests, {load.target_qps:.1f} a second: holds, p99 is"
    assert re.fullmatch(rf"{last} (19|20)\.\d ms", said[-1])


def test_a_rate_that_holds_in_short_probes_only_is_lowered_until_it_holds_in_a_long_one() -> None:
    class Growing(Sender):
        """A queue that grows meanwhile: 300 requests are answered sooner than more."""

        def __call__(self, load: Load) -> Answers:
            found = super().__call__(load)
            if load.queries > 300 and load.target_qps > 36.0:
                latencies = [*found.latencies[:-10], *([0.03] * 10)]
                found = found._replace(latencies=latencies, percentiles=percentiles(latencies))
            return found

    searching = scenario(Growing(), latency_bound_ms=20.0)
    searching.prepare(0.0125, print)
    load = searching.load
    assert load is not None and 36 / 1.05 <= load.target_qps <= 36
    searching.run()
    probes = searching.facts()["load"]["searched"]
    assert [one["held"] for one in probes if one["requests"] == 662][-2:] == [False, True]


def test_where_long_probes_hardly_follow_the_rate_few_are_sent() -> None:
    class Disturbed(Sender):
        """Beside other programs: of 662 requests some are late at every rate above 12."""

        def __call__(self, load: Load) -> Answers:
            found = super().__call__(load)
            if load.queries > 300 and load.target_qps > 12.0:
                latencies = [*found.latencies[:-10], *([0.03] * 10)]
                found = found._replace(latencies=latencies, percentiles=percentiles(latencies))
            return found

    said: List[str] = []
    searching = scenario(Disturbed(), latency_bound_ms=20.0)
    searching.prepare(0.0125, said.append)
    whole = [float(line.split()[4]) for line in said if " 662 requests" in line]
    # 5 % lower, then 10, 20, 40 and 80.
    steps = [before / after for before, after in zip(whole, whole[1:])]
    assert steps == pytest.approx([1.05, 1.1, 1.2, 1.4, 1.8], rel=0.02)
    assert whole[-1] <= 12.0 and ": holds, p99 is " in said[-1]
    assert said[-2].endswith(" a second: p99 is 30.0 ms, the bound 20 ms")


def test_a_bound_below_the_latency_of_one_request_is_one_message() -> None:
    with pytest.raises(CaseError, match="latency_bound_ms=5: it does not hold even at 8.00 "):
        scenario(Sender(), latency_bound_ms=5.0).prepare(0.0125, print)


def test_a_client_that_is_late_makes_the_case_fail_and_not_slow() -> None:
    late = scenario(Sender(late=0.05), target_qps=20.0)
    late.prepare(0.0125, print)
    with pytest.raises(
        CaseError, match="scenario=constant: the client could not keep the schedule"
    ):
        late.run()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_qps": 5.0}, "target_qps needs scenario=server or scenario=constant"),
        ({"scenario": SERVER}, "scenario=server needs target_qps, or latency_bound_ms"),
        ({"scenario": OFFLINE, "target_qps": 5.0}, "scenario=offline takes no target_qps"),
        ({"scenario": OFFLINE, "clients": 4}, "one client sends all requests; set clients=1"),
        ({"scenario": OFFLINE, "request_type": "async"}, "sends requests when they are due"),
    ],
)
def test_what_a_scenario_cannot_be_is_refused(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TRITON, data="generated", **options).check()


def test_a_sweep_of_loads_asks_one_server(tmp_path: Path) -> None:
    assert {"scenario", "target_qps", "latency_bound_ms", "scenario_seconds"} == LOAD_OPTIONS
    other: Any = {"scenario": SERVER, "target_qps": 5.0, "latency_bound_ms": 9.0}
    runtimes: Any = [
        (TritonRuntime(CpuDevice(), tmp_path, False), TRITON),
        (
            ServingRuntime(None, CpuDevice(), tmp_path, False),
            serving.HOST["resnet50_infer_bs1-latency"],
        ),
    ]
    for runtime, config in runtimes:
        runtime._config = config
        assert runtime.serves(dataclasses.replace(config, scenario_seconds=3.0, **other))
        assert not runtime.serves(dataclasses.replace(config, micro_batch_size=17))
        runtime.close()


def test_both_servers_have_every_scenario_and_are_what_they_were_without_one() -> None:
    from ipubench.fixtures.case.cases import effective_options

    for config in (TRITON, serving.HOST["resnet50_infer_bs1-latency"]):
        assert not {"scenario", "target_qps"} & set(effective_options(config, frozenset()))
        for name in SCENARIOS[1:]:
            qps = 5.0 if name in (CONSTANT, SERVER) else 0.0
            changed = dataclasses.replace(config, scenario=name, target_qps=qps, data="generated")
            changed.check()
            assert effective_options(changed, frozenset())["scenario"] == name
