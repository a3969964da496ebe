"""The original PopART programs' cases, run by the whole suite on the PopART stand-in."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict

import pytest

from ipubench.plugins.record.record import OVER_BATCHES
from tests.support.harness import ROOT, records_in, run_pytest
from tests.support.sdk_variables import LOG

LSTM = "bench_kernels/bench_popart_lstm.py"
CONV = "bench_kernels/bench_popart_conv.py"


def run(tmp_path: Path, *words: str, device: str = "ipu-model") -> Dict[str, Any]:
    """Run cases on the stand-in; return the line that the process wrote."""
    environment = {
        **os.environ,
        "IPUBENCH_LEASE_DIR": str(tmp_path),
        "POPLAR_SDK_ENABLED": "/sdk",
        LOG: str(tmp_path / "log"),
    }
    results = f"--results-dir={tmp_path / 'results'}"
    words = ("-p", "tests.support.sdk_plugin", f"--device={device}", results, *words)
    run_pytest(ROOT, environment, *words, framework="torch").assert_code(0)
    line: Dict[str, Any] = json.loads((tmp_path / "log").read_text())
    return line


@pytest.fixture(autouse=True)
def frameworks() -> None:
    for name in ("onnx", "torch"):
        pytest.importorskip(name, reason=f"needs {name}: make setup installs it")


@pytest.mark.framework
def test_the_suite_measures_the_lstm_cases(tmp_path: Path) -> None:
    words = [LSTM, "--steps=4", "--batches-per-step=3", "--set=batch_size=2"]
    line = run(tmp_path, *words)
    found = records_in(tmp_path / "results")
    assert len(found) == 6
    for name, record in found.items():
        assert name.startswith("popart-lstm-ipu-")
        assert record["rounds"]["count"] == 4
        assert record["rounds"]["batches_per_step"] == 3
        assert record["items_per_round"] == 2 * 3
        assert record["device"]["fingerprint"].startswith("ipu-model/emulated on ")
        assert record["canary"]["seconds"] == []
        assert record["effective"]["engine"] == "popart"
        assert record["effective"]["precision"] == "float16"
        assert record["latency"]["source"] == OVER_BATCHES
    calls = line["calls"]
    assert calls["InferenceSession.__init__"] == 4  # inference and evaluation
    assert calls["TrainingSession.__init__"] == 2
    assert calls["DeviceInfo.detach"] == 6
    assert line["attached"] == 0


@pytest.mark.framework
def test_the_suite_measures_a_small_convolution_with_the_driver_options(tmp_path: Path) -> None:
    run(
        tmp_path, CONV, "-k", "training-generated", "--steps=2", "--batches-per-step=4",
        "--set=input_width=16", "--set=input_height=8", "--set=replicas=2", "--set=shards=2",
        "--set=pipeline=yes", "--set=recompute=yes",
        '--set=convolution_options={"availableMemoryProportion": 0.2}',
        f"--save-graph={tmp_path / 'graphs'}",
    )  # fmt: skip
    ((name, record),) = records_in(tmp_path / "results").items()
    assert record["items_per_round"] == 2 * 4
    assert record["effective"]["ipus"] == 4
    saved = {path.name for path in (tmp_path / "graphs" / name).iterdir()}
    assert saved == {"model.onnx"}


@pytest.mark.framework
def test_cycles_are_in_the_record(tmp_path: Path) -> None:
    words = [LSTM, "-k", "inference-synthetic", "--steps=2", "--batches-per-step=5"]
    run(tmp_path, *words, "--set=report_hw_cycle_count=yes", device="ipu")
    (record,) = records_in(tmp_path / "results").values()
    assert record["counters"] == {"cycles": 5000}
