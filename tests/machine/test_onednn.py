"""When TensorFlow computes with oneDNN, and what the suite does about it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, Optional

import pytest

from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.machine.onednn import has_vnni, tensorflow_has_onednn
from ipubench.fixtures.machine.processor import read_topology


def installed(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that this TensorFlow is installed; '' is none."""
    monkeypatch.setattr("ipubench.fixtures.machine.onednn.version_of", lambda _: version)


@pytest.mark.parametrize(
    ("flags", "environ", "onednn", "vnni"),
    [
        ("sse4_2", {}, False, False),
        ("fma avx2", {}, True, False),
        ("fma avx2 avx_vnni", {}, True, True),
        ("avx2 avx512f", {}, True, False),
        ("avx2 avx512f avx512_vnni", {}, True, True),
        ("avx2 avx512f avx512_vnni", {"TF_ENABLE_ONEDNN_OPTS": "False"}, False, True),
        ("avx2 avx512f avx512_vnni", {"ONEDNN_MAX_CPU_ISA": "AVX2"}, True, False),
        ("fma avx2", {"TF_ENABLE_ONEDNN_OPTS": "0"}, False, False),
        ("sse4_2", {"TF_ENABLE_ONEDNN_OPTS": "1"}, True, False),
    ],
)
def test_what_tensorflows_operations_are_follows_from_the_cpu_and_its_variable(
    flags: str,
    environ: Dict[str, str],
    onednn: bool,
    vnni: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed("2.21.0", monkeypatch)
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor : 0\nflags : {flags}\n\nprocessor : 1\nflags : other\n")
    assert tensorflow_has_onednn(cpuinfo, environ) is onednn
    assert has_vnni(cpuinfo, environ) is vnni


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
def test_tensorflow_computes_with_onednn_unless_asked_not_to(
    flags: str,
    version: str,
    given: Optional[str],
    found: Optional[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where it has AVX2; and the variable is as it was once the device is given back."""
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
