"""A step under load: its calls, and the handling of its errors."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any, List

import pytest

from ipubench.bench_inference import bench_cnn_tensorflow, bench_cnn_torch
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.data.feeds import ArrayFeed
from ipubench.fixtures.servers import arrivals
from ipubench.fixtures.servers import load as load_of_servers
from ipubench.fixtures.servers.in_process import ScenarioStep
from ipubench.fixtures.servers.load import LEAST_QUERIES, SCENARIOS, WITH_RATE, Load
from ipubench.fixtures.servers.options import LoadOptions
from tests.support.fake_device import FakeDevice
from tests.support.fake_runtime import FakeStep
from tests.support.harness import ROOT, run_pytest


class Counted(FakeStep):
    """Counts its calls; the one with the number ``fails`` raises."""

    calls = 0
    fails = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == self.fails:
            raise CaseError("the model broke; mend it")
        super().__call__()


@pytest.fixture
def inner(monkeypatch: pytest.MonkeyPatch) -> Counted:
    # On a busy machine a client is late, which does not matter here.
    monkeypatch.setattr(load_of_servers, "MOST_LATE_SECONDS", 60.0)
    return Counted(FakeDevice(0), ArrayFeed("synthetic", ()), 0.01)


def under_load(inner: Counted, folder: Path, **options: Any) -> ScenarioStep:
    given = {"name": "a", "scenario": "constant", "target_qps": 2000.0, "scenario_seconds": 0.4}
    step = ScenarioStep(inner, LoadOptions(**{**given, **options}), folder)
    step.build()
    assert step.compile(), "as the step's own"
    return step


@pytest.mark.parametrize("scenario", SCENARIOS[1:])
def test_each_request_is_one_call_and_has_its_latency(
    inner: Counted, tmp_path: Path, scenario: str
) -> None:
    if scenario != "constant":
        pytest.importorskip("mlperf_loadgen", reason="pip install mlcommons-loadgen")
    rate = {} if scenario in WITH_RATE else {"target_qps": 0.0, "scenario_seconds": 0.01}
    step = under_load(inner, tmp_path, scenario=scenario, **rate)
    compiled = inner.calls
    step()
    assert inner.calls == compiled + step.batches_per_step == compiled + len(step.latencies())
    assert step.finish() == {}
    step.prepare_rounds(print)
    clock = step.round_clock()
    wanted, before, began = step.batches_per_step, inner.calls, clock()
    assert wanted >= (800 if scenario in WITH_RATE else LEAST_QUERIES[scenario])
    step()
    assert inner.calls == before + wanted
    assert len(step.latencies()) == before - compiled + wanted
    facts = step.finish()["load"]
    assert (facts["scenario"], facts["requests"]) == (scenario, wanted)
    assert wanted / (clock() - began) == pytest.approx(facts["answered_qps"])
    assert step.summary({"load": facts})[0].startswith(f"{scenario}, ")


@pytest.mark.parametrize("scenario", ["constant", "server"])
def test_an_error_of_the_step_ends_the_case(inner: Counted, tmp_path: Path, scenario: str) -> None:
    if scenario == "server":
        pytest.importorskip("mlperf_loadgen", reason="pip install mlcommons-loadgen")
    step = under_load(inner, tmp_path, scenario=scenario)
    step()
    step.prepare_rounds(print)
    inner.fails = inner.calls + 10
    with pytest.raises(CaseError, match="the model broke"):
        step()


def test_ctrl_c_reaches_the_case_after_all_requests_are_sent(
    inner: Counted, tmp_path: Path
) -> None:
    step = under_load(inner, tmp_path)
    step()
    step.prepare_rounds(print)

    calls: List[bool] = []

    def interrupted() -> None:
        calls.append(True)
        raise KeyboardInterrupt

    step._client._step = interrupted  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        step()
    assert len(calls) == 1, "later requests skip the step"


def test_a_second_ctrl_c_does_not_wait_for_unsent_requests(
    inner: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    monkeypatch.setattr(arrivals, "run", lambda *_: over.wait())  # like LoadGen, which continues
    step = under_load(inner, tmp_path)

    def interrupted(call: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(step._client, "_run_requests", interrupted)
    # If this waited for the sender, that would be finished by now.
    ending = threading.Timer(10.0, over.set)
    ending.daemon = True
    ending.start()
    with pytest.raises(KeyboardInterrupt):
        step._client.send(Load("constant", 1, target_qps=1.0))
    assert not over.is_set()
    over.set()
    ending.cancel()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": "real"}, "images are prepared beforehand"),
        ({"target_qps": 0.0}, "needs target_qps, or latency_bound_ms"),
        ({"instances": 2}, "one process with one replica"),
    ],
)
@pytest.mark.parametrize("bench", [bench_cnn_torch, bench_cnn_tensorflow])
def test_options_that_scenarios_exclude_are_refused(bench: Any, changes: Any, message: str) -> None:
    values = {**vars(bench.HOST["resnet50"]), "scenario": "server", "target_qps": 5.0, **changes}
    with pytest.raises(ValueError, match=message):
        bench.Direct(**values).check()


@pytest.mark.framework
def test_a_network_is_loaded_from_the_command_line(tmp_path: Path) -> None:
    for module in ("torch", "mlperf_loadgen"):
        pytest.importorskip(module, reason="needs PyTorch and mlcommons-loadgen")
    outcome = run_pytest(
        ROOT,
        {**os.environ, "IPUBENCH_LEASE_DIR": str(tmp_path / "leases"), "COLUMNS": "100"},
        *("bench_inference/bench_cnn_torch.py", "-k", "resnet50-bs1-synthetic", "--device=cpu"),
        *("--set=model=mobilenet-v3-small", "--set=engine=eager", "--set=scenario=offline"),
        *("--set=scenario_seconds=1", f"--results-dir={tmp_path / 'results'}"),
        framework="torch",
    ).assert_code(0)
    assert "offline, " in outcome.text
    (journal,) = (tmp_path / "results").glob("run-*.jsonl")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    (case,) = (line for line in lines if line["type"] == "case")
    record = case["benchmark"]["extra_info"]["ipubench"]
    load = record["finish"]["load"]
    assert (load["scenario"], load["loadgen"], load["valid"]) == ("offline", "VALID", True)
    assert record["items_per_round"] == load["requests"]
    assert record["throughput"]["mean"] == pytest.approx(load["answered_qps"])
    assert (ROOT / load["logs"] / "mlperf_log_summary.txt").is_file()
