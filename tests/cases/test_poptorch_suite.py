"""The original program's case, run by the whole suite on the PopTorch stand-in."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Sequence

import pytest

from tests.support.harness import Outcome, records_in, run_program

PROGRAM = """
import importlib.machinery, json, sys
import pytest
import torch
from tests.doubles import poptorch as double
torch.set_num_threads(1)  # several would wait for each other on a busy machine
module = double.as_module()
module.__spec__ = importlib.machinery.ModuleSpec("poptorch", None)
sys.modules["poptorch"] = module
double.recorder.attach_error = sys.argv[1]
code = pytest.main(sys.argv[2:])
names = double.recorder.names()
print("calls:", json.dumps({name: names.count(name) for name in names}))
sys.exit(code)
"""

RANDOM = ("--set=random_weights=yes",)


def run(
    tmp_path: Path,
    attach_error: str,
    *words: str,
    model: str = "mobilenet-v3-small",
    weights: Sequence[str] = RANDOM,
) -> Outcome:
    return run_program(
        PROGRAM,
        {**os.environ, "IPUBENCH_LEASE_DIR": str(tmp_path), "COLUMNS": "100"},
        attach_error,
        "bench_inference/bench_cnn_torch.py", "-k", "resnet50-ipu", "--device=ipu-model",
        f"--results-dir={tmp_path}", "--set=micro_batch_size=1", "--set=device_iterations=2",
        f"--set=model={model}", "--steps=2",
        "--precision=32.32",  # float16, slow on a CPU, is in test_poptorch_ipu.py
        *weights, *words, framework="torch",
    )  # fmt: skip


@pytest.fixture(autouse=True)
def torch() -> Any:
    return pytest.importorskip("torch", reason="needs PyTorch: make setup installs it")


@pytest.mark.framework
def test_the_suite_measures_the_ipu_cases(tmp_path: Path) -> None:
    text = run(tmp_path, "").assert_code(0).text
    found = {r["config"]["data"]: r for r in records_in(tmp_path).values()}
    assert set(found) == {"synthetic", "generated", "real"}
    for mode, record in found.items():
        assert record["rounds"]["count"] == 2
        assert record["rounds"]["batches_per_step"] == 2
        assert record["items_per_round"] == 2
        assert record["device"]["fingerprint"].startswith("ipu-model/emulated on ")
        assert record["canary"]["seconds"] == []
        assert record["effective"]["engine"] == "poptorch"
        expected = "rounds over batches per step" if mode == "synthetic" else "the device"
        assert record["latency"]["source"] == expected
    calls = json.loads(text.split("calls:")[1])
    assert calls["inferenceModel"] == calls["PoplarExecutor.destroy"] == 3


@pytest.mark.framework
def test_a_failed_attach_fails_its_case_with_one_message(tmp_path: Path) -> None:
    text = (
        run(tmp_path, "no device with 1 IPU is free", "-k", "resnet50-ipu-bs1-synthetic")
        .assert_code(1)
        .text
    )
    assert "no device with 1 IPU is free" in text
    assert "Traceback" not in text


@pytest.mark.framework
def test_only_real_images_need_published_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    words = ["-k", "resnet50-ipu-bs1-generated or resnet50-ipu-bs1-real"]
    text = run(tmp_path, "", *words, model="resnet18", weights=()).assert_code(1).text
    assert [r["config"]["data"] for r in records_in(tmp_path).values()] == ["generated"]
    assert "python -m ipubench.models.torch fetch resnet18" in text


@pytest.mark.framework
def test_missing_weights_are_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    words, published = ["-k", "resnet50-ipu-bs1-generated"], ["--set=random_weights=no"]
    text = run(tmp_path, "", *words, model="resnet18", weights=published).assert_code(1).text
    assert "--set=random_weights=true" in text
    assert "Traceback" not in text and "poptorch_ipu.py" not in text


@pytest.mark.framework
def test_compile_only_keeps_the_program_for_later_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POPLAR_SDK_ENABLED", "/opt/poplar")
    kept = f"--set=model_cache_path={tmp_path / 'kept'}"
    words = ["--device=ipu", "--set=compile_only=yes", kept]
    for found in ("", " s less than without its cache)"):
        text = run(tmp_path, "", "-k", "resnet50-ipu-bs1-generated", *words).assert_code(0).text
        assert f"{found}, not run" in text
        calls = json.loads(text.split("calls:")[1])
        assert calls["PoplarExecutor.compile"] == 1
        assert "PoplarExecutor.__call__" not in calls
    assert len(list((tmp_path / "kept").glob("*.popef"))) == 1
