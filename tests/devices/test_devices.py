"""Choosing, describing, attaching and releasing devices."""

from __future__ import annotations

import os
import platform
import sys
import threading
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Callable, Dict, List, Optional, Tuple

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.devices import cuda, ipu
from ipubench.fixtures.devices.base import Device, DeviceError, DeviceInfo
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.devices.ipu import IpuDevice
from ipubench.fixtures.machine.processor import quota, read_topology
from ipubench.fixtures.poplar.poplar_options import TF_FLAGS

CPUINFO = """processor : 0
model name : Example CPU @ 2.0GHz
flags : fpu sse avx2 avx512f avx512_bf16 amx_bf16

processor : 1
model name : Example CPU @ 2.0GHz
flags : fpu sse avx2 avx512f avx512_bf16 amx_bf16
"""


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A host with two hardware threads per core and two NUMA nodes."""
    for cpu in os.sched_getaffinity(0):
        topology = tmp_path / "system" / "cpu" / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text("0-1\n")
    for node in (0, 1):
        (tmp_path / "system" / "node" / f"node{node}").mkdir(parents=True)
    (tmp_path / "cpuinfo").write_text(CPUINFO)
    return tmp_path


def test_the_topology_keeps_one_thread_per_core(system: Path) -> None:
    found = read_topology(system / "cpuinfo", system / "system", {})
    assert found.model == "Example CPU @ 2.0GHz"
    assert found.flags == ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
    assert found.cores == (min(os.sched_getaffinity(0)),)
    assert found.numa_nodes == 2


def test_arm_processors_are_identified_by_their_numbers(tmp_path: Path) -> None:
    models = []
    for part in ("0xd0c", "0xd40"):
        text = f"processor : 0\nCPU implementer : 0x41\nCPU variant : 0x3\nCPU part : {part}\n"
        (tmp_path / part).write_text(text)
        models.append(read_topology(tmp_path / part, tmp_path, {}).model)
    assert models == ["ARM 0x41 0x3 0xd0c", "ARM 0x41 0x3 0xd40"]


@pytest.mark.parametrize("name", ["gone", "x" * 300])  # the name is too long for a lookup
def test_a_host_without_these_files_has_cores(tmp_path: Path, name: str) -> None:
    found = read_topology(tmp_path / name, tmp_path / "gone", {})
    assert found.model == (platform.processor() or platform.machine())
    assert set(found.cores) == os.sched_getaffinity(0) and found.numa_nodes == 1
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("0::/own\n")
    assert quota(tmp_path, tmp_path / name) is None


@pytest.mark.parametrize(
    ("environ", "flags"),
    [
        ({"ONEDNN_MAX_CPU_ISA": "AVX2"}, ("avx2",)),
        ({"ONEDNN_MAX_CPU_ISA": "sse41"}, ()),
        ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}, ("avx2", "avx512f")),
        ({"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "ALL"}, ("avx2",)),
        ({"ATEN_CPU_CAPABILITY": "avx512"}, ("avx2", "avx512f", "avx512_bf16", "amx_bf16")),
    ],
)
def test_a_cpu_that_imitates_a_smaller_one_has_its_instructions(
    environ: Dict[str, str], flags: Tuple[str, ...], system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_topology(system / "cpuinfo", system / "system", environ).flags == flags
    monkeypatch.setattr(
        "ipubench.fixtures.devices.cpu.read_topology",
        lambda: read_topology(system / "cpuinfo", system / "system", environ),
    )
    monkeypatch.setattr("ipubench.fixtures.devices.cpu.quota", lambda: None)
    found = CpuDevice()
    assert found.half == ("bfloat16" if "avx512_bf16" in flags else "float32")
    name = flags[-1] if flags else platform.machine()
    assert found._fingerprint() == f"cpu/Example CPU @ 2.0GHz/{name}/1 threads"
    assert CpuDevice(pin=False).threads == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("group", "files", "cpus"),
    [
        ("", {}, None),
        ("0::/own", {"own/cpu.max": "250000 100000"}, 2.5),
        ("0::/own", {"own/cpu.max": "max 100000"}, None),
        ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "50000 100000"}, 0.5),
        ("0::/slice/session", {"slice/cpu.max": "400000 100000"}, 4.0),
        (
            "2:cpu,cpuacct:/own",
            {
                "cpu,cpuacct/own/cpu.cfs_quota_us": "300000",
                "cpu,cpuacct/own/cpu.cfs_period_us": "100000",
                "cpu,cpuacct/cpu.cfs_quota_us": "-1",
                "cpu,cpuacct/cpu.cfs_period_us": "100000",
            },
            3.0,
        ),
    ],
)
def test_the_smallest_quota_of_a_group_and_its_ancestors_counts(
    group: str, files: Dict[str, str], cpus: Optional[float], tmp_path: Path
) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text(group + "\n" if group else "")
    for name, text in files.items():
        path = tmp_path / "top" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert quota(tmp_path, tmp_path / "top") == cpus


def test_a_quota_limits_threads_and_makes_another_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = CpuDevice()
    monkeypatch.setattr("ipubench.fixtures.devices.cpu.quota", lambda: 0.5)
    part = CpuDevice()
    assert part.threads == 1
    info = part.attach()
    try:
        assert len(os.sched_getaffinity(0)) == len(info.details["cores"]) == 1
    finally:
        part.release()
    assert os.sched_getaffinity(0) == whole.allowed
    assert info.fingerprint.endswith("/1 threads/quota of 0.5 CPUs")


def test_threads_started_by_libraries_are_pinned_too() -> None:
    ready, done = threading.Event(), threading.Event()

    def wait() -> None:
        ready.set()
        done.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    ready.wait()
    device = CpuDevice()
    device.attach()
    try:
        pinned = os.sched_getaffinity(thread.native_id or 0)
    finally:
        device.release()
    after = os.sched_getaffinity(thread.native_id or 0)
    done.set()
    thread.join()
    assert pinned == set(device.topology.cores[: device.threads])
    assert after == device.allowed


class Driver:
    """Two GPUs; the second's identity ends in 7. An old driver has another call for it."""

    def __init__(self, old: bool) -> None:
        if not old:
            self.cuDeviceGetUuid_v2 = self.cuDeviceGetUuid

    def cuDeviceGet(self, device: Any, number: int) -> int:
        device._obj.value = 40 + number
        return 0 if number < 2 else 101

    def cuDeviceGetUuid(self, uuid: Any, device: Any) -> int:
        uuid._obj[15] = 7 if device.value == 41 else 3
        return 0


@pytest.mark.parametrize("old", [False, True])
def test_a_gpu_is_leased_by_its_identity(old: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_driver", lambda: Driver(old))
    assert cuda.CudaDevice(1).leases() == ("cuda-" + 30 * "0" + "07",)
    assert cuda.CudaDevice(2).leases() == ("cuda-2",)  # no such GPU: attaching reports it
    monkeypatch.setattr(cuda, "_driver", lambda: None)
    assert cuda.CudaDevice(1).leases() == ("cuda-1",)


def test_gpus_that_the_user_hides_are_not_reported_as_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: Dict[str, Any] = {"is_available": lambda: False, "device_count": lambda: 1}
    torch: Any = ModuleType("torch")
    torch.__spec__ = ModuleSpec("torch", None)
    torch.__version__, torch.cuda = "2.0", SimpleNamespace(**seen)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(DeviceError, match="CUDA_VISIBLE_DEVICES='-1'"):
        cuda.CudaDevice().attach()
    torch.cuda.is_available = lambda: True
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    with pytest.raises(DeviceError, match="--device-id=1: .* 0 to 0$"):
        cuda.CudaDevice(1).attach()


@pytest.mark.parametrize(
    ("shown", "number", "value"),
    [(None, 1, "1"), ("", 0, "0"), ("2,3", 1, "3"), ("GPU-ab, GPU-cd", 0, "GPU-ab")],
)
def test_a_server_gets_the_gpu_of_the_run(shown: Optional[str], number: int, value: str) -> None:
    environ = {} if shown is None else {"CUDA_VISIBLE_DEVICES": shown}
    assert cuda.visible(number, environ) == value


def test_a_process_that_may_not_choose_its_cores_gets_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: int, cpus: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    device = CpuDevice()
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    with pytest.raises(DeviceError, match="--affinity=system"):
        device.attach()


def test_a_cpu_run_is_pinned_and_everything_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    before = os.sched_getaffinity(0)
    device = CpuDevice()
    info = device.attach()
    try:
        assert os.sched_getaffinity(0) == set(device.topology.cores)
        assert os.environ["OMP_NUM_THREADS"] == str(device.threads)
        assert os.environ["MKL_NUM_THREADS"] == "7"
        assert info.fingerprint.endswith(f"{device.threads} threads")
        assert info.details["cores"] == list(device.topology.cores)
    finally:
        device.release()
    assert os.sched_getaffinity(0) == before
    assert "OMP_NUM_THREADS" not in os.environ
    assert os.environ["MKL_NUM_THREADS"] == "7"
    left_alone = CpuDevice(pin=False)
    assert left_alone.attach().details["pinned"] is False
    assert os.sched_getaffinity(0) == before
    left_alone.release()


@pytest.mark.parametrize("kind", ["ipu", "ipu-model"])
def test_the_sdks_flag_for_the_emulator_points_to_our_option(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TF_FLAGS, "--use_ipu_model")
    monkeypatch.delenv("POPLAR_SDK_ENABLED", raising=False)
    for found in ([], ["tensorflow"]) if kind == "ipu" else ([],):
        monkeypatch.setattr(ipu, "frameworks", lambda found=found: found)
        with pytest.raises(DeviceError) as caught:
            devices.make(kind).attach()
        assert ("give --device=ipu-model" in str(caught.value)) is (kind == "ipu")


@pytest.mark.parametrize("kind", ["ipu", "ipu-model"])
def test_an_ipu_without_the_sdk_is_refused_with_what_is_missing(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ipubench.fixtures.devices.ipu.frameworks", list)
    device = devices.make(kind)
    with pytest.raises(DeviceError, match=f"--device={kind} "):
        device.attach()
    # The emulator computes on the CPU.
    assert device.leases() == (("ipu",) if kind == "ipu" else CpuDevice().leases())


@pytest.fixture
def gc_info(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Installs the SDK's tool, which prints a text, or fails if there is none."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("POPLAR_SDK_ENABLED", "/sdk")

    def answer(text: str) -> None:
        tool = tmp_path / "gc-info"
        tool.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\n" if text else "#!/bin/sh\nexit 1\n")
        tool.chmod(0o755)

    return answer


def test_auto_takes_an_ipu_if_the_sdk_lists_one(
    gc_info: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    gc_info("Device Info:\n")
    assert devices.choose("auto") == "ipu"
    assert devices.choose("cpu") == "cpu"
    monkeypatch.delenv("POPLAR_SDK_ENABLED")
    assert devices.choose("auto") != "ipu"
    monkeypatch.setenv("POPLAR_SDK_ENABLED", "/sdk")
    gc_info("")
    assert devices.choose("auto") != "ipu"


@pytest.mark.parametrize(
    ("clock", "chip"), [("1330MHz", "GC200"), ("1850MHz", "Bow"), ("1600MHz", None), ("N/A", None)]
)
def test_the_clock_of_an_ipu_names_its_chip(
    gc_info: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, clock: str, chip: Optional[str]
) -> None:
    monkeypatch.setattr("ipubench.fixtures.devices.ipu.frameworks", lambda: ["popart"])
    gc_info(f"Device Info:\n  board type: M2000\n  clock: {clock}\n  ipu architecture: ipu2\n")
    info = IpuDevice().attach()
    assert (info.name, info.details.get("chip")) == ("M2000 ipu2", chip)
    # The peaks in the datasheets of machines with four chips.
    found = info.details.get("datasheet", {"float16_flops": None})["float16_flops"]
    assert (4 * found if found else None) == {"GC200": 1e15, "Bow": 1.4e15}.get(str(chip))


LISTED = """Graphcore device listing:
Partition: p1 [active]
-+- Id: [0], target: [Fabric], IPU-M host: [10.1.5.10], IPU#: [3]
-+- Id: [1], target: [Fabric], IPU-M host: [10.1.5.10], IPU#: [2]
-+- Id: [4], target: [Multi IPU]
 |--- Id: [0], DNC Id: [0], IPU-M host: [10.1.5.10], IPU#: [3]
 |--- Id: [1], DNC Id: [1], IPU-M host: [10.1.5.10], IPU#: [2]
"""


def test_an_ipu_number_must_be_listed_by_the_sdk(
    gc_info: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group of IPUs is a device, but not a single IPU."""
    monkeypatch.setattr("ipubench.fixtures.devices.ipu.frameworks", lambda: ["popart"])
    gc_info(LISTED)
    assert IpuDevice.device_ids() == [0, 1]
    for number in (None, 1, 4):
        assert IpuDevice(number).attach().kind == "ipu"
    with pytest.raises(DeviceError, match="--device-id=2: .* only 0, 1, 4"):
        IpuDevice(2).attach()
    gc_info(LISTED.replace("target:", "type:"))  # the name in other SDKs
    assert IpuDevice.device_ids() == [0, 1]
    assert devices.available_ipus() == (2, "the partition p1")
    single = "-+- Id: [0], target: [Fabric]\n-+- Id: [1], target: [Fabric]\n"
    gc_info(single)
    assert devices.available_ipus() == (2, "this machine")
    gc_info(LISTED[LISTED.index("-+- Id: [4]") :])  # a partition may offer one group alone
    assert devices.available_ipus()[0] == 2
    gc_info("Graphcore device listing:\n")
    assert devices.available_ipus()[0] == 0
    with pytest.raises(DeviceError, match="--device-id=1"):
        IpuDevice(1).attach()
    gc_info("")
    IpuDevice(2).attach()


@pytest.mark.parametrize(
    ("build", "gpus", "kind"),
    [("'12.8'", [0], "cuda"), ("'12.8'", [], "cpu"), ("None", [0], "cpu"), ("", [0], "cpu")],
)
def test_auto_takes_cuda_if_pytorch_and_the_driver_have_it(
    build: str, gpus: List[int], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if build:
        (tmp_path / "version.py").write_text(f"cuda: Optional[str] = {build}\n")
    torch = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: torch)
    monkeypatch.setattr(cuda.CudaDevice, "device_ids", staticmethod(lambda: gpus))
    monkeypatch.delenv("POPLAR_SDK_ENABLED", raising=False)
    assert devices.choose("auto") == kind


class LeastDevice(Device):
    def leases(self) -> Tuple[str, ...]:
        return ()

    def attach(self) -> DeviceInfo:
        return DeviceInfo("least", "least", "least")

    def release(self) -> None:
        pass


def test_a_device_needs_only_the_documented_members() -> None:
    device = LeastDevice()
    start = device.clock()
    assert device.clock() - start >= 0 and device.look() is None
