"""A new kind of device is one class and one registration."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.support.harness import ROOT, run_pytest
from tests.support.own_project import OwnProject

PAGE = ROOT / "docs" / "how-to" / "devices.md"
SECOND = """
from ipubench.fixtures.devices import register
from ipubench.fixtures.devices.cpu import CpuDevice


class Second(CpuDevice):
    kind = "second"
    peak_size = 256
    copy_bytes = 1 << 20


register(Second)
"""


def test_the_devices_of_the_page_measure(own: OwnProject) -> None:
    conftest, test = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (own.folder / "conftest.py").write_text(conftest)
    own.write(test)
    (own.folder / "pytest.ini").write_text("[pytest]\n")
    own.run("-p", "ipubench", "--device=simulated").assert_code(0)
    (found,) = own.records().values()
    record = found["extra_info"]["ipubench"]
    assert record["throughput"]["median"] == pytest.approx(100)
    assert record["device"]["kind"] == "simulated"
    own.run("-p", "ipubench", "--ipubench-device=simulate").assert_code(4).line("simulated")
    # Other processes get the option's long spelling, which pytest reads before the conftest.py.
    own.commit("as it is")
    own.write(test.replace("0.01", "0.02"))
    words = (
        "-p",
        "ipubench",
        "--device=simulated",
        "--against=git:HEAD",
        "--gate=5%",
        "--gate-cap=3",
    )
    own.run(*words).assert_code(1).line("regressed: ")


def test_a_device_without_frameworks_leaves_their_cases_out(tmp_path: Path) -> None:
    words = ("-p", "tests.support.fake_device", "bench_kernels/bench_dense.py", "--device=fake")
    outcome = run_pytest(ROOT, dict(os.environ), *words, f"--results-dir={tmp_path}")
    outcome.line("--device=fake has none")


@pytest.mark.framework
@pytest.mark.parametrize(
    ("file", "case"),
    [
        ("bench_kernels/bench_dense.py", "dense-inference-synthetic"),
        pytest.param(
            *("bench_kernels/bench_popart_lstm.py", "popart-lstm-inference-synthetic"),
            marks=pytest.mark.nightly,
        ),
        ("bench_inference/bench_cnn_torch.py", "mobilenet-v3-small-bs1-synthetic"),
    ],
)
def test_a_kind_that_names_the_frameworks_devices_runs_the_suite(
    file: str, case: str, tmp_path: Path
) -> None:
    (tmp_path / "second_cpu.py").write_text(SECOND)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)]),
        "IPUBENCH_LEASE_DIR": str(tmp_path / "leases"),
    }
    words = ("-p", "second_cpu", file, "-k", case, "--device=second", "--budget=0.2")
    outcome = run_pytest(ROOT, environment, *words, f"--results-dir={tmp_path / 'results'}")
    outcome.assert_code(0).line("1 passed")
