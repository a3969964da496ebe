"""The serving cases, run by the whole suite as a user runs them."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path
from typing import Any, Dict

import pytest

from ipubench.fixtures.servers.request_step import RequestStep
from tests.support.harness import ROOT, Outcome, counting_rounds, run_pytest

pytestmark = pytest.mark.framework
for module in ("torch", "pytriton", "tritonclient.grpc"):
    pytest.importorskip(
        module, reason="needs PyTorch, nvidia-pytriton and tritonclient: make setup installs them"
    )


def run(tmp_path: Path, *words: str, framework: str = "torch") -> Outcome:
    environment = {
        **os.environ,
        "IPUBENCH_LEASE_DIR": str(tmp_path / "leases"),
        "TMPDIR": str(tmp_path / "temporary"),
        "COLUMNS": "100",
    }
    environment.pop("DATASETS_DIR", None)
    (tmp_path / "temporary").mkdir()
    return run_pytest(
        ROOT,
        environment,
        "bench_inference/bench_triton.py",
        "--device=cpu",
        "--set=model=mobilenet-v3-small",
        "--steps=3",
        f"--results-dir={tmp_path / 'results'}",
        *words,
        framework=framework,
    )


def records(tmp_path: Path) -> Dict[str, Dict[str, Any]]:
    (journal,) = (tmp_path / "results").glob("run-*.jsonl")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    found = [
        line["benchmark"]["extra_info"]["ipubench"] for line in lines if line["type"] == "case"
    ]
    return {record["effective"]["request_type"]: record for record in found}


def test_the_server_joins_requests_into_batches(tmp_path: Path) -> None:
    run(
        tmp_path,
        *("-k", "resnet50-clients1-async", "--batches-per-step=8", "--data=generated"),
        *("--set=max_batch_size=4", "--set=max_queue_delay_ms=20", "--set=engine=eager"),
    ).assert_code(0)
    (record,) = records(tmp_path).values()
    counters = record["counters"]
    assert counters["server_inferences"] == counters["server_requests"]
    # A round's requests all wait at once, so most batches are full.
    assert 1.5 < counters["server_batch_mean"] <= 4
    assert record["effective"]["batch_sizes"] == [1, 4]


def test_a_served_network_gives_the_same_results_as_without_a_server(tmp_path: Path) -> None:
    outcome = run(
        tmp_path,
        "-k",
        "resnet50-clients1",
        "--sweep",
        "--batches-per-step=4",
        "--set=micro_batch_size=2",
    ).assert_code(0)
    found = records(tmp_path)
    assert set(found) == {"sync", "async"}
    assert [found[kind]["compile"] for kind in ("sync", "async")] == ["fresh", "reused"]
    for record in found.values():
        assert record["items_per_round"] == 4 * 2
        assert record["latency"]["samples"] == counting_rounds(record) * 4
        assert record["effective"]["backend"] == "python"
        assert record["effective"]["engine"] in ("onednn", "compile", "openvino")
        assert record["effective"]["precision"] in ("bfloat16", "float32")
        assert record["counters"]["answers_differ_by"] <= 1e-3
        assert record["counters"]["server_failures"] == 0
        assert record["counters"]["server_inferences"] == 2 * record["counters"]["server_requests"]
        assert record["throughput"]["unit"] == "images/s"
        assert len(record["canary"]["seconds"]) == 3
        assert record["latency"]["source"] == RequestStep.latency_source
        assert record["effective_options"]["batches_per_step"] == 4
    logs = {path.name.split("-")[0] for path in (tmp_path / "results" / "servers").iterdir()}
    assert logs == {"triton"}
    assert list((tmp_path / "temporary").glob("ipubench-*")) == []
    assert "Traceback" not in outcome.text


def test_a_busy_port_and_a_missing_repository_are_one_message_each(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        outcome = run(
            tmp_path,
            "-k",
            "resnet50-clients1-sync",
            "--data=generated",
            "--set=benchmark_only=yes",
            f"--set=grpc_port={port}",
            f"--set=model_repository=,{tmp_path / 'nowhere'}",
            framework="",  # the case fails before one is needed
        ).assert_code(1)
    assert re.search(rf"grpc_port={port}: .*127\.0\.0\.1:{port}", outcome.text)
    assert re.search(f"model_repository={tmp_path / 'nowhere'} .* resnet50", outcome.text)
    assert "Traceback" not in outcome.text and "fixtures/servers" not in outcome.text
