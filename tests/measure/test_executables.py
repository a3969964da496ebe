"""Compiled IPU programs are stored for the other processes of a case, and for later runs."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Dict, List

import pytest

from ipubench.fixtures.poplar.executables import storing
from ipubench.fixtures.poplar.poplar_options import TF_FLAGS
from ipubench.plugins.run.journal import journals
from tests.support.harness import ROOT, Outcome, refused, run_pytest

CASES = {
    "tensorflow": ["bench_kernels/bench_dense.py", "-k", "dense-ipu-inference-generated"],
    "onnx": ["bench_kernels/bench_popart_lstm.py", "-k", "inference-synthetic"],
    "torch": [
        *("bench_inference/bench_cnn_torch.py", "-k", "resnet50-ipu-bs1-synthetic"),
        *("--precision=32.32", "--set=model=mobilenet-v3-small"),
    ],
}
FOUND = "fresh or cached"


def run(folder: Path, framework: str, *words: str, **environment: str) -> Outcome:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"needs {framework}: make setup installs it")
    given = {
        **os.environ,
        "IPUBENCH_LEASE_DIR": str(folder),
        "COLUMNS": "100",
        "POPLAR_SDK_ENABLED": "/sdk",
        "TMPDIR": str(folder),
        **environment,
    }
    return run_pytest(
        ROOT, given, "-p", "tests.support.sdk_plugin", "--device=ipu", *CASES[framework],
        f"--results-dir={folder / 'results'}", "--steps=2", "--batches-per-step=2", *words,
        framework="torch" if framework == "onnx" else framework,
    )  # fmt: skip


def compiled(folder: Path) -> List[str]:
    """Return how the processes of the latest run came by their program, this run's first."""
    lines = journals(folder / "results")[-1].read_text(encoding="utf-8").splitlines()
    found = [line for line in map(json.loads, lines) if line["type"] in ("case", "fresh")]
    return [line["benchmark"]["extra_info"]["ipubench"]["compile"] for line in found]


@pytest.mark.framework
@pytest.mark.parametrize("framework", ["tensorflow", "torch"])
def test_a_fresh_process_finds_the_program_of_the_first(tmp_path: Path, framework: str) -> None:
    run(tmp_path, framework, "--processes=2").assert_code(0)
    assert compiled(tmp_path) == ["fresh", FOUND]
    assert not list(tmp_path.glob("ipubench-scratch-*"))


@pytest.mark.framework
def test_a_later_run_finds_the_programs_in_a_named_folder(tmp_path: Path) -> None:
    given = f"--executable-cache={tmp_path / 'kept here'}"
    for expected in ("fresh", FOUND):
        run(tmp_path, "onnx", given).assert_code(0)
        assert compiled(tmp_path) == [expected]
    assert (tmp_path / "kept here").stat().st_mode & 0o77 == 0


def test_the_folder_needs_ipus_and_no_other_writer(tmp_path: Path) -> None:
    environment = {**os.environ, "POPLAR_SDK_ENABLED": "/sdk"}
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    for device, folder, message in (
        ("ipu", shared, "other users"),
        ("cpu", tmp_path / "kept", "--device=ipu"),
        ("ipu-model", tmp_path / "kept", "--device=ipu"),
    ):
        words = (f"--device={device}", f"--executable-cache={folder}")
        assert message in refused(ROOT, environment, *CASES["torch"], *words).text


FOLDER = Path("/a folder")
QUOTED = "--executable_cache_path='/a folder'"


@pytest.mark.parametrize(
    ("environ", "given", "expected"),
    [
        (
            {},
            False,
            {"POPART_CACHE_DIR": "/a folder", "POPTORCH_CACHE_DIR": "/a folder", TF_FLAGS: QUOTED},
        ),
        ({"POPXL_CACHE_DIR": "/mine"}, False, {TF_FLAGS: QUOTED}),
        (
            {"POPXL_CACHE_DIR": "/mine", TF_FLAGS: "--executable_cache_path=/mine"},
            True,
            {
                "POPART_CACHE_DIR": "/a folder",
                "POPTORCH_CACHE_DIR": "/a folder",
                "POPXL_CACHE_DIR": None,
                TF_FLAGS: f"--executable_cache_path=/mine {QUOTED}",
            },
        ),
    ],
)
def test_the_users_folders_take_precedence_over_the_runs_own(
    environ: Dict[str, str], given: bool, expected: Dict[str, str]
) -> None:
    found = {"POPXL_CACHE_DIR": None, **storing(environ, FOLDER, given)}
    assert found == {"POPXL_CACHE_DIR": None, **expected}
