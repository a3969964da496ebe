"""The serving cases, run by the whole suite as a user runs them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ipubench.fixtures.servers.request_step import RequestStep
from tests.support.harness import ROOT, counting_rounds, run_pytest

pytestmark = pytest.mark.framework
for module in ("tensorflow", "tensorflow_serving"):
    pytest.importorskip(
        module, reason="needs TensorFlow and tensorflow-serving-api: make setup installs them"
    )


def test_the_documented_example_is_measured_with_a_small_network(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "IPUBENCH_LEASE_DIR": str(tmp_path / "leases"),
        "TMPDIR": str(tmp_path / "temporary"),
        "PATH": os.path.dirname(os.__file__),  # no server on this machine
        "COLUMNS": "100",
    }
    for name in ("DATASETS_DIR", "TF_SERVING_PATH", "POPLAR_SDK_ENABLED"):
        environment.pop(name, None)
    (tmp_path / "temporary").mkdir()
    words = ["model_name=toy_model_bn", "dataset=cifar10", "fused_preprocessing=no", "clients=2"]
    outcome = run_pytest(
        ROOT,
        environment,
        "bench_inference/bench_tensorflow_serving.py",
        "--device=cpu",
        "-k",
        "resnet50_infer_bs16-generated",
        "--steps=3",
        f"--results-dir={tmp_path / 'results'}",
        *(f"--set={word}" for word in words),
        framework="tensorflow",
    ).assert_code(0)
    (journal,) = (tmp_path / "results").glob("run-*.jsonl")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    (record,) = (
        line["benchmark"]["extra_info"]["ipubench"] for line in lines if line["type"] == "case"
    )
    assert record["framework"] == "tensorflow"
    assert record["effective"]["server"] == "ipubench prediction service"
    assert record["effective"]["engine"] == "stand-in"
    assert {"share", "peak"}.isdisjoint(record["compute"])
    assert "stand-in" in outcome.table[-1]
    assert len([line for line in outcome.lines if "stand-in: " in line]) == 1
    assert record["effective"]["clients"] == 2
    assert record["effective"]["batching"]["allowed_batch_sizes"] == [16]
    assert record["items_per_round"] == 2 * 64
    assert record["throughput"]["unit"] == "images/s"
    # A 3 x 3 convolution of three channels, one of 1 x 1 after the first maximum, a dense layer.
    flops = 2 * (30 * 30 * 4 * 3 * 9 + 6 * 6 * 8 * 4 + 8 * 10)
    assert record["compute"]["flops_per_item"] == flops
    assert record["latency"]["samples"] == counting_rounds(record) * 2 * 64 // 8
    assert record["latency"]["source"] == RequestStep.latency_source
    assert record["counters"]["answers_differ_by"] <= 1e-2
    assert 0 <= record["counters"]["common_window_share"] <= 1
    assert record["counters"]["timed_window"] == "common window"
    assert [path.name.split("-")[0] for path in (tmp_path / "results" / "servers").iterdir()] == [
        "serving"
    ]
    assert list((tmp_path / "temporary").glob("ipubench-*")) == []
    assert "Traceback" not in outcome.text
