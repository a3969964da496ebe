"""Counters of energy, in folders and a module that stand for the kernel's and NVIDIA's."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.fixtures.devices import cuda, make
from ipubench.fixtures.devices.base import DeviceError
from ipubench.fixtures.devices.energy import Nvml, Package, Rapl
from tests.devices.test_devices import Driver

MOST = 262_143_328_850


def zone(root: Path, number: str, name: str, microjoules: int, most: int = MOST) -> Path:
    """Make a folder like the kernel's."""
    folder = root / f"intel-rapl:{number}"
    folder.mkdir(parents=True)
    for file, text in (("name", name), ("max_energy_range_uj", most), ("energy_uj", microjoules)):
        (folder / file).write_text(f"{text}\n")
    return folder / "energy_uj"


def test_all_packages_count_and_no_zone_counts_twice(tmp_path: Path) -> None:
    first, second = zone(tmp_path, "0", "package-0", 5), zone(tmp_path, "1", "package-1", 7)
    others = [
        zone(tmp_path, "0:0", "core", 1),
        zone(tmp_path, "1:1", "dram", 1),
        zone(tmp_path, "2", "psys", 1),
        zone(tmp_path / "mmio", "0", "package-0", 1),
    ]
    (tmp_path / "mmio" / "intel-rapl:0").rename(tmp_path / "intel-rapl-mmio:0")
    rapl = Rapl(tmp_path)
    before = rapl.read()
    first.write_text("3000005\n")
    second.write_text("1500007\n")
    for other in others[:3]:
        other.write_text("900000000\n")
    assert rapl.read() - before == pytest.approx(4.5)
    assert rapl.source == "RAPL, package-0, package-1"
    assert rapl.longest == pytest.approx(262.1, abs=0.1)


@given(st.integers(1, 1000), st.data())
def test_a_counter_that_starts_again_loses_no_energy(most: int, data: st.DataObject) -> None:
    steps: List[int] = data.draw(st.lists(st.integers(0, most), max_size=20))
    now = first = data.draw(st.integers(0, most))
    file: Any = type("File", (), {"read_text": lambda self, encoding: f"{now % (most + 1)}\n"})()
    package = Package(file, most, first)
    for step in steps:
        now += step
        assert package.read() == now - first


@pytest.mark.parametrize("inside", [(), ("core",)])
def test_a_machine_without_packages_is_refused(tmp_path: Path, inside: List[str]) -> None:
    for name in inside:
        zone(tmp_path, "0:0", name, 1)
    with pytest.raises(DeviceError, match="leave --energy out"):
        Rapl(tmp_path)


def test_counters_of_root_are_refused_with_the_command_that_opens_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = zone(tmp_path, "0", "package-0", 1)
    reads = Path.read_text

    def read(path: Path, **named: Any) -> str:  # the tests may run as root
        if path == file:
            raise PermissionError(13, os.strerror(13))
        return reads(path, **named)

    monkeypatch.setattr(Path, "read_text", read)
    with pytest.raises(DeviceError, match=rf"sudo chmod a\+r {tmp_path}/intel-rapl:\*/energy_uj"):
        Rapl(tmp_path)


class NvmlStandIn(ModuleType):
    """Counts the energy of one GPU, like pynvml."""

    class NVMLError(Exception):
        pass

    millijoules = 1500

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByUUID(self, name: str) -> str:
        if not name.endswith("-000000000007"):
            raise self.NVMLError("Not Found")
        return name

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        return self.millijoules


def test_the_gpu_of_the_run_counts_however_it_is_numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    pynvml = NvmlStandIn("pynvml")
    monkeypatch.setitem(sys.modules, "pynvml", pynvml)
    monkeypatch.setattr(cuda, "_driver", lambda: Driver(old=False))
    monkeypatch.setattr(cuda.CudaDevice, "device_ids", staticmethod(lambda: [0, 1]))
    counter = make("cuda", 1).energy()
    before = counter.read()
    pynvml.millijoules += 2500
    assert counter.read() - before == pytest.approx(2.5)
    assert counter.source == "NVML, GPU-00000000-0000-0000-0000-000000000007"
    for number in (0, 2):  # has no counter; is none
        with pytest.raises(DeviceError, match="--energy"):
            make("cuda", number).energy()


def test_without_its_library_a_gpu_is_refused_with_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(DeviceError, match="pip install nvidia-ml-py"):
        Nvml(32 * "0")


@pytest.mark.parametrize("kind", ["ipu", "ipu-model", "fake"])
def test_a_device_without_a_counter_is_refused(kind: str) -> None:
    with pytest.raises(DeviceError, match="leave --energy out"):
        make(kind).energy()
