"""``python -m ipubench``: the installed cases from any folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import List, Tuple

import pytest

from ipubench.fixtures import pytest_fixtures
from ipubench.fixtures.case.errors import CaseError
from tests.support.harness import ROOT

DENSE = "bench_kernels/bench_dense.py::bench_dense[dense-inference-synthetic]"


def collected(folder: Path, *words: str) -> Tuple[int, List[str]]:
    """Return the exit code of a listing, and its node ids."""
    command = [sys.executable, "-m", "ipubench", "--collect-only", "-q", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        command, cwd=str(folder), env=environment, stdout=subprocess.PIPE, check=False
    )
    return ended.returncode, [line for line in ended.stdout.decode().splitlines() if "::" in line]


def test_any_folder_has_the_cases_of_a_clone_by_the_same_names(tmp_path: Path) -> None:
    assert collected(tmp_path, "-k", "dense-inference-synthetic") == (0, [DENSE])
    assert collected(tmp_path, DENSE) == (0, [DENSE])
    # The value of an option is no path, even if there is a file of its name.
    (tmp_path / "dense-inference-synthetic").touch()
    assert collected(tmp_path, "-k", "dense-inference-synthetic") == (0, [DENSE])


def test_no_advice_replaces_the_frameworks_of_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("POPLAR_SDK_ENABLED", "/sdk")
    for module, advice in (("tensorflow", "wheel"), ("tensorflow_serving", "--no-deps")):
        with pytest.raises(CaseError, match=advice) as caught:
            pytest_fixtures._need(module)
        assert "[tensorflow]" not in str(caught.value) and "[serving]" not in str(caught.value)
