"""Cases whose TF_POPLAR_FLAGS differ from the run's: each measured once, as part of one run."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from pathlib import Path
from typing import Any, Dict, List

import pytest

from ipubench.fixtures.poplar.poplar_options import TF_FLAGS
from ipubench.plugins.run.journal import journals
from tests.support.harness import ROOT, Outcome, listed, run_pytest
from tests.support.sdk_variables import ATTACH_ERROR, CRASH, LOG

pytestmark = pytest.mark.framework

KERNEL = "bench_kernels/bench_lstm.py"
CASES = {f"lstm-ipu-inference-{data}" for data in ("synthetic", "generated")}
MODEL = "--use_ipu_model"
SYNTHETIC = f"{MODEL} --use_synthetic_data --synthetic_data_initializer=normal"


@pytest.fixture(autouse=True)
def tensorflow() -> None:
    """Skip without TensorFlow; only the runs need it."""
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")


def run(folder: Path, *words: str, **environment: str) -> Outcome:
    given = {**os.environ, "IPUBENCH_LEASE_DIR": str(folder), "COLUMNS": "100", **environment}
    given.pop(TF_FLAGS, None)
    given[LOG] = str(folder / "log")
    return run_pytest(
        ROOT, given, "-p", "tests.support.sdk_plugin", "--device=ipu-model", KERNEL,
        f"--results-dir={folder / 'results'}", "--precision=32.32", "--steps=2",
        "--batches-per-step=3", "--set=hidden_size=8", "--set=timesteps=2", *words,
        framework="tensorflow",
    )  # fmt: skip


def short(nodeid: str) -> str:
    """Return the part of a node id that options do not change."""
    return nodeid.split("[")[1].split("-bps3")[0]


def processes(folder: Path) -> List[Dict[str, Any]]:
    """Return what each process ran, and clear it."""
    lines = (folder / "log").read_text().splitlines()
    (folder / "log").unlink()
    return [json.loads(line) for line in lines]


def measured(folder: Path) -> Dict[str, str]:
    """Return case -> flags of all processes; each case has run once."""
    ran = [(short(nodeid), line["flags"]) for line in processes(folder) for nodeid in line["ran"]]
    assert len(ran) == len(dict(ran))
    return dict(ran)


def journal(folder: Path) -> List[Dict[str, Any]]:
    """Return the lines of the latest journal."""
    path = journals(folder / "results")[-1]
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_one_run_measures_both_data_modes(tmp_path: Path) -> None:
    saved = f"--baseline-save={tmp_path / 'base.json'}"
    words = (saved, "-k", "inference", "--processes=1", "--keep-disturbed")
    outcome = run(tmp_path, *words).assert_code(0)
    outcome.line("1 case is measured")
    lines = processes(tmp_path)
    assert [len(line["ran"]) for line in lines] == [1, 1]
    for line in lines:
        (flags,) = {SYNTHETIC if "synthetic" in nodeid else MODEL for nodeid in line["ran"]}
        assert line["flags"] == flags
    assert {short(nodeid) for line in lines for nodeid in line["ran"]} == CASES
    found = journal(tmp_path)
    for kind in ("case", "outcome"):
        assert len([line for line in found if line["type"] == kind]) == len(CASES)
    assert all(outcome.line(f"{name}-bps3") for name in CASES)
    assert not (tmp_path / "results" / "apart").exists()
    baseline = json.loads((tmp_path / "base.json").read_text())
    assert {short(entry["fullname"]) for entry in baseline["benchmarks"]} == CASES
    run(tmp_path, "-k", "inference", f"--baseline={tmp_path / 'base.json'}").assert_code(0)
    compared = [line for line in journal(tmp_path) if line["type"] == "verdict"]
    assert {short(line["case"]) for line in compared} == CASES


def test_workers_measure_both_data_modes_and_a_resumed_run_the_rest(tmp_path: Path) -> None:
    words = ("-k", "inference", "-n", "2")
    crashed = run(tmp_path, *words, **{CRASH: "inference-generated"}).assert_code(1)
    crashed.line("ended with exit code 9")  # which costs one case
    first = {line["case"]: line["outcome"] for line in journal(tmp_path) if "outcome" in line}
    assert {short(case): how for case, how in first.items()} == {
        "lstm-ipu-inference-synthetic": "passed",
        "lstm-ipu-inference-generated": "failed",
    }
    assert measured(tmp_path) == {"lstm-ipu-inference-synthetic": SYNTHETIC}
    run(tmp_path, *words, "--resume").assert_code(0).line("1 case is done")
    assert measured(tmp_path) == {"lstm-ipu-inference-generated": MODEL}
    assert len([line for line in journal(tmp_path) if line["type"] == "case"]) == 2


def test_one_command_has_every_case_of_an_ipu_once(tmp_path: Path) -> None:
    """Collects the whole suite and notes which process would measure each case."""
    given = {**os.environ, "IPUBENCH_LEASE_DIR": str(tmp_path), "POPLAR_SDK_ENABLED": "/sdk"}
    given.pop(TF_FLAGS, None)
    log = tmp_path / "log"
    words = ["-p", "tests.support.hollow_plugin", "--device=ipu", "--sweep"]
    outcome = run_pytest(
        ROOT, {**given, LOG: str(log)}, *words, f"--results-dir={tmp_path / 'results'}"
    ).assert_code(0)
    # Excluded cases need another device, not another kind of data.
    reasons = [line for line in outcome.lines if re.match(r"\d+ cases? (?!are|is)", line)]
    assert [line.partition(": ")[2] for line in reasons] == ["--device=cpu or --device=cuda"]
    ran = json.loads(log.read_text())
    found = listed(ROOT, given, *words[2:], "--collect-only", "-q").assert_code(0).lines
    assert sorted(case for _, case, _ in ran) == sorted(line for line in found if "::" in line)
    here = {str(flags) for where, _, flags in ran if where == "here" and flags}
    apart = {str(flags) for where, _, flags in ran if where == "apart"}
    assert len(here) == 1 and apart and here.isdisjoint(apart)


def test_what_a_user_can_fix_is_one_message(tmp_path: Path) -> None:
    words = ("-k", "inference")
    outcome = run(tmp_path, *words, **{ATTACH_ERROR: "no device is free"}).assert_code(1)
    message = "--device=ipu-model: TensorFlow could not attach to 1 IPU: no device is free"
    assert outcome.lines.count(message) == 2  # one per case
    assert "Traceback" not in outcome.text
