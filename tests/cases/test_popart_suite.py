"""The original PopART programs' cases, run by the whole suite on the PopART stand-in."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ipubench.plugins.record.record import OVER_BATCHES
from tests.support.harness import Outcome, records_in, run_program

PROGRAM = """
import importlib.machinery, json, sys
import pytest
from tests.doubles import popart as double
module = double.as_module()
module.__spec__ = importlib.machinery.ModuleSpec("popart", None)
sys.modules["popart"] = module
code = pytest.main(sys.argv[1:])
names = double.recorder.names()
print("calls:", json.dumps({name: names.count(name) for name in names}))
print("attached:", sum(device.isAttached for device in double.recorder.devices))
sys.exit(code)
"""
LSTM = "bench_kernels/bench_popart_lstm.py"
CONV = "bench_kernels/bench_popart_conv.py"


def run(tmp_path: Path, *words: str, device: str = "ipu-model") -> Outcome:
    environment = {
        **os.environ,
        "IPUBENCH_LEASE_DIR": str(tmp_path),
        "COLUMNS": "100",
        "POPLAR_SDK_ENABLED": "/sdk",
    }
    results = f"--results-dir={tmp_path / 'results'}"
    words = (f"--device={device}", results, *words)
    return run_program(PROGRAM, environment, *words, framework="torch")


@pytest.fixture(autouse=True)
def frameworks() -> None:
    for name in ("onnx", "torch"):
        pytest.importorskip(name, reason=f"needs {name}: make setup installs it")


@pytest.mark.framework
def test_the_suite_measures_the_lstm_cases(tmp_path: Path) -> None:
    words = [LSTM, "--steps=4", "--batches-per-step=3", "--set=batch_size=2"]
    text = run(tmp_path, *words).assert_code(0).text
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
    calls = json.loads(text.split("calls:")[1].splitlines()[0])
    assert calls["InferenceSession.__init__"] == 4  # inference and evaluation
    assert calls["TrainingSession.__init__"] == 2
    assert calls["DeviceInfo.detach"] == 6
    assert "attached: 0" in text


@pytest.mark.framework
def test_the_suite_measures_a_small_convolution_with_the_driver_options(tmp_path: Path) -> None:
    run(
        tmp_path, CONV, "-k", "training-generated", "--steps=2", "--batches-per-step=4",
        "--set=input_width=16", "--set=input_height=8", "--set=replicas=2", "--set=shards=2",
        "--set=pipeline=yes", "--set=recompute=yes",
        '--set=convolution_options={"availableMemoryProportion": 0.2}',
        f"--save-graph={tmp_path / 'graphs'}",
    ).assert_code(0)  # fmt: skip
    ((name, record),) = records_in(tmp_path / "results").items()
    assert record["items_per_round"] == 2 * 4
    assert record["effective"]["ipus"] == 4
    saved = {path.name for path in (tmp_path / "graphs" / name).iterdir()}
    assert saved == {"model.onnx"}


@pytest.mark.framework
def test_cycles_are_in_the_record(tmp_path: Path) -> None:
    words = [LSTM, "-k", "inference-synthetic", "--steps=2", "--batches-per-step=5"]
    run(tmp_path, *words, "--set=report_hw_cycle_count=yes", device="ipu").assert_code(0)
    (record,) = records_in(tmp_path / "results").values()
    assert record["counters"] == {"cycles": 5000}
