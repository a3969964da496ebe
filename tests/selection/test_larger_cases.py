"""Cases that need more IPUs than there are, by a stand-in for the SDK's gc-info."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Tuple

import pytest

from ipubench.fixtures.poplar.poplar_options import TF_FLAGS
from tests.support.harness import ROOT, Outcome, listed

FOUR = "".join(f"-+- Id: [{number}], target: [Fabric]\n" for number in range(4))
TRAINING = ("bench_training/bench_cnn_tensorflow.py", "-k")


def run(folder: Path, *words: str) -> Outcome:
    tool = folder / "gc-info"
    tool.write_text(f"#!/bin/sh\necho 'Partition: p1 [active]'\ncat <<'END'\n{FOUR}END\n")
    tool.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "IPUBENCH_LEASE_DIR": str(folder),
    }
    results = f"--results-dir={folder / 'results'}"
    return listed(ROOT, environment, "--device=ipu", results, *words)


@pytest.mark.parametrize(
    "words",
    [
        (*TRAINING, "resnet50-pod16"),
        ("bench_inference/bench_cnn_torch.py", "-k", "resnet50-ipu-bs1", "--set=replicas=16"),
        ("bench_kernels/bench_dense.py", "-k", "dense-ipu", "--set=replicas=16"),
    ],
)
def test_cases_that_need_more_ipus_than_the_partition_has_are_left_out(
    tmp_path: Path, words: Tuple[str, ...]
) -> None:
    text = run(tmp_path, *words, "--data=synthetic").assert_code(5).text
    assert re.search("16 IPUs, .* p1 has 4", text)


def test_the_sdks_flag_for_the_emulator_points_to_our_option() -> None:
    environment = {**os.environ, TF_FLAGS: "--use_ipu_model"}
    words = ("bench_kernels/bench_dense.py", "--device=cpu", "--collect-only")
    assert "--device=ipu-model takes" in listed(ROOT, environment, *words).assert_code(0).text


@pytest.mark.parametrize(
    "words",
    [("resnet50-m2000", "--collect-only"), ("resnet50-pod16", "--collect-only")],
    ids=["four", "listed"],
)
def test_cases_that_fit_and_all_listed_ones_stay(tmp_path: Path, words: Tuple[str, ...]) -> None:
    text = run(tmp_path, *TRAINING, *words).assert_code(0).text
    assert "has 4" not in text
