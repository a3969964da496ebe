"""When TensorFlow computes with oneDNN, and how the suite controls that."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, Optional

import pytest

from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.machine.onednn import Operations, operations
from ipubench.fixtures.machine.processor import read_topology

VNNI = "avx2 avx512f avx512_vnni"


def installed(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that this TensorFlow is installed, or none for ''."""
    monkeypatch.setattr("ipubench.fixtures.machine.onednn.version_of", lambda _: version)


@pytest.mark.parametrize(
    ("flags", "environ", "expected"),
    [
        ("sse4_2", {}, Operations.EIGEN),
        ("fma avx2", {}, Operations.ONEDNN),
        ("fma avx2 avx_vnni", {}, Operations.ONEDNN_VNNI),
        (VNNI, {}, Operations.ONEDNN_VNNI),
        (VNNI, {"TF_ENABLE_ONEDNN_OPTS": "False"}, Operations.EIGEN),
        (VNNI, {"ONEDNN_MAX_CPU_ISA": "AVX2"}, Operations.ONEDNN),
        (f"{VNNI} avx512_bf16", {}, Operations.ONEDNN_BFLOAT16),
        (f"{VNNI} amx_bf16", {}, Operations.ONEDNN_BFLOAT16),
        (f"{VNNI} amx_bf16", {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}, Operations.ONEDNN_VNNI),
        ("sse4_2", {"TF_ENABLE_ONEDNN_OPTS": "1"}, Operations.ONEDNN),
    ],
)
def test_tensorflows_operations_depend_on_the_cpu_and_its_variable(
    flags: str,
    environ: Dict[str, str],
    expected: Operations,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed("2.21.0", monkeypatch)
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor : 0\nflags : {flags}\n\nprocessor : 1\nflags : other\n")
    assert operations(cpuinfo, environ) is expected


@pytest.mark.parametrize(
    ("flags", "version", "given", "found"),
    [
        ("fma avx2", "2.21.0", None, "1"),
        ("fma avx2", "2.9.1", None, "1"),
        ("fma avx2", "2.6.2", None, None),
        ("fma avx2", "", None, None),
        ("fma avx2", "2.21.0", "0", "0"),
        ("sse4_2", "2.21.0", None, None),
    ],
)
def test_tensorflow_computes_with_onednn_unless_disabled(
    flags: str,
    version: str,
    given: Optional[str],
    found: Optional[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed(version, monkeypatch)
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    if given is not None:
        monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", given)
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor : 0\nflags : {flags}\n")
    monkeypatch.setattr(
        "ipubench.fixtures.devices.cpu.read_topology", lambda: read_topology(cpuinfo, environ={})
    )
    device = CpuDevice(pin=False)
    info = device.attach()
    assert os.environ.get("TF_ENABLE_ONEDNN_OPTS") == found
    assert info.details["environment"].get("TF_ENABLE_ONEDNN_OPTS") == found
    device.release()
    assert os.environ.get("TF_ENABLE_ONEDNN_OPTS") == given
