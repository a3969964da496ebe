"""``python -m ipubench``: the installed cases from any folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ipubench.fixtures import pytest_fixtures
from ipubench.fixtures.case.errors import CaseError
from tests.support.harness import ROOT, run_command

DENSE = "bench_kernels/bench_dense.py::bench_dense[dense-inference-synthetic]"


def test_any_folder_has_the_cases_of_a_clone_by_the_same_names(tmp_path: Path) -> None:
    # The value of an option is no path, even if there is a file of its name.
    (tmp_path / "dense-inference-synthetic").touch()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for words in (["-k", "dense-inference-synthetic"], [DENSE]):
        listing = ["--collect-only", "-q", *words]
        outcome = run_command(tmp_path, environment, "ipubench", *listing).assert_code(0)
        assert [line for line in outcome.lines if "::" in line] == [DENSE]


def test_no_advice_replaces_the_frameworks_of_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("POPLAR_SDK_ENABLED", "/sdk")
    for module, advice in (("tensorflow", "wheel"), ("tensorflow_serving", "--no-deps")):
        with pytest.raises(CaseError, match=advice) as caught:
            pytest_fixtures._need(module)
        assert "[tensorflow]" not in str(caught.value) and "[serving]" not in str(caught.value)
