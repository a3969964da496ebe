"""TensorFlow's kernels, run by the whole suite on the stand-in for the SDK's TensorFlow."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict, List

import pytest

from ipubench.fixtures.poplar.poplar_options import TF_FLAGS
from ipubench.plugins.record.record import OVER_BATCHES
from tests.support.harness import ROOT, Outcome, records_in, run_pytest
from tests.support.sdk_variables import ATTACH_ERROR, LOG

pytestmark = pytest.mark.framework

MODEL = "--use_ipu_model"


def run(tmp_path: Path, *words: str, **more: str) -> Outcome:
    environment = {**os.environ, "IPUBENCH_LEASE_DIR": str(tmp_path), "COLUMNS": "100", **more}
    environment[LOG] = str(tmp_path / "log")
    environment.pop(TF_FLAGS, None)
    fixed = ("--device=ipu-model", f"--results-dir={tmp_path}", "--batches-per-step=3", "--steps=2")
    words = ("-p", "tests.support.sdk_plugin", *fixed, *words)
    return run_pytest(ROOT, environment, *words, framework="tensorflow")


def of_the_process(tmp_path: Path) -> Dict[str, Any]:
    """Return what the stand-in got: its calls, and the flags."""
    line: Dict[str, Any] = json.loads((tmp_path / "log").read_text())
    return line


@pytest.fixture(autouse=True)
def tensorflow() -> Any:
    return pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


ALL = [
    f"{name}-ipu-{mode}"
    for name in ("dense", "dense-relu", "lstm")
    for mode in ("inference", "training")
]
# XLA takes long to compile a program of synthetic data, so one of each kernel and mode.
FEW = ["dense-ipu-inference", "lstm-ipu-training"]


@pytest.mark.parametrize(
    ("data", "precision", "flags", "chosen"),
    [
        (
            "synthetic",
            "16.16",
            f"{MODEL} --use_synthetic_data --synthetic_data_initializer=normal",
            FEW,
        ),
        ("generated", "32.32", MODEL, ALL),  # without XLA, float16 is slow on a CPU
    ],
    ids=["synthetic", "generated"],
)
def test_the_suite_measures_the_kernels(
    tmp_path: Path, data: str, precision: str, flags: str, chosen: List[str]
) -> None:
    words = ["bench_kernels/bench_dense.py", "bench_kernels/bench_lstm.py", f"--data={data}"]
    words += [f"--precision={precision}", "--set=replicas=2"]
    words += ["-k", " or ".join(FEW)] if chosen is FEW else []
    run(tmp_path, *words).assert_code(0)
    found = records_in(tmp_path)
    assert {name.split("-bps3-")[0] for name in found} == {f"{name}-{data}" for name in chosen}
    for name, record in found.items():
        assert record["rounds"]["count"] == 2
        assert record["rounds"]["batches_per_step"] == 3
        assert record["items_per_round"] == (1 if name.startswith("lstm") else 32) * 3 * 2
        assert record["device"]["fingerprint"].startswith("ipu-model/emulated on ")
        assert record["canary"]["seconds"] == []
        assert record["effective"]["engine"] == "tensorflow-ipu"
        assert record["effective"]["precision"] == f"float{precision[:2]}"
        assert record["effective"]["options"]["flags"] == flags
        assert record["latency"]["source"] == OVER_BATCHES
        assert record["data"]["mode"] == data
    line = of_the_process(tmp_path)
    assert line["flags"] == flags
    calls = line["calls"]
    started, ended = "IPUConfig.configure_ipu_system", "reset_ipu_configuration"
    assert calls[started] == calls[ended] == calls["IPUInfeedQueue.deleter"] == len(found)


def test_the_fused_layer_leaves_its_graph(tmp_path: Path) -> None:
    graphs = tmp_path / "graphs"
    words: List[str] = ["--data=generated", "--set=popnn=yes", f"--save-graph={graphs}"]
    run(tmp_path, "bench_kernels/bench_lstm.py", *words).assert_code(0)
    found = records_in(tmp_path)
    assert len(found) == 2
    assert all(record["effective"]["fused_layers"] for record in found.values())
    assert all((graphs / name / "graph.pb").is_file() for name in found)
    assert "PopnnLSTM.__init__" in of_the_process(tmp_path)["calls"]


def test_profiling_runs_one_batch_for_the_engine_to_report(tmp_path: Path) -> None:
    words = ["-k", "lstm-ipu-inference", "--data=generated", f"--profile={tmp_path / 'profiles'}"]
    run(tmp_path, "bench_kernels/bench_lstm.py", *words).assert_code(0)
    calls = of_the_process(tmp_path)["calls"]
    assert calls["IPUStrategyV1.run"] == 3  # compile, warm-up and report
    assert calls["reset_ipu_configuration"] == 1


def test_a_failed_attach_fails_its_case_with_one_message(tmp_path: Path) -> None:
    words = ["-k", "lstm-ipu-inference", "--data=generated"]
    busy = {ATTACH_ERROR: "all busy"}
    text = run(tmp_path, "bench_kernels/bench_lstm.py", *words, **busy).assert_code(1).text
    assert " 1 IPU: all busy" in text
    assert "Traceback" not in text
    calls = of_the_process(tmp_path)["calls"]
    assert calls["reset_ipu_configuration"] == 1
