"""The available memory, and the limit that keeps a process within it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Mapping, Optional

import pytest

from ipubench.fixtures.machine import memory
from tests.support.harness import ROOT

MEMINFO = "MemTotal: 16000 kB\nMemAvailable:    8000 kB\nSwapFree: 500 kB\nHugePages_Total: 0\n"
V2 = {"memory.max": "9000000", "memory.current": "4000000", "memory.stat": "inactive_file 100\n"}
V1 = {
    "memory.limit_in_bytes": "3000000",
    "memory.usage_in_bytes": "2000000",
    "memory.stat": "inactive_file 9\ntotal_inactive_file 30\ntotal_active_file 5\n",
}
# A machine with only a quarter of a GiB left; requested memory is never touched.
PROGRAM = """
import resource, subprocess, sys
from ipubench.fixtures.machine import memory
memory.available = lambda: 0
memory.UNUSED, memory.UNUSED_PER_CPU = 256 << 20, 0
before = resource.getrlimit(resource.RLIMIT_DATA)
try:
    with memory.bounded():
        bytes(100 << 20)
        subprocess.run([sys.executable, "-c", "bytes(100 << 20)"], check=True)
        bytes(1 << 30)
except MemoryError:
    print("refused")
bytes(1 << 30)
print(resource.getrlimit(resource.RLIMIT_DATA) == before)
"""


def write(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_bytes(os.fsencode(text))


@pytest.mark.parametrize(
    ("group", "files", "left"),
    [
        ("", {}, 8_500 * 1024),
        ("0::/own/group", {"own/group": V2}, 5_000_100),
        ("0::/own/group", {"own/group": {**V2, "memory.max": "max"}}, 8_500 * 1024),
        ("0::/own/group", {"own/group": {**V2, "memory.max": "max"}, "own": V2}, 5_000_100),
        ("0::/own/group", {"own": V2}, 5_000_100),
        ("0::/caf\udce9\u2028", {"caf\udce9\u2028": V2}, 5_000_100),
        ("0::/own/group", {"own/group": {**V2, "memory.current": "9500000"}}, 0),
        ("4:memory:/own\n0::/", {"memory/own": V1}, 1_000_035),
        ("4:memory:/of/the/host\n0::/", {"memory": V1}, 1_000_035),
    ],
)
def test_the_machine_and_each_ancestor_group_limit_the_available_memory(
    tmp_path: Path, group: str, files: Mapping[str, Mapping[str, str]], left: int
) -> None:
    write(tmp_path / "proc/self", {"cgroup": group + "\n" if group else ""})
    write(tmp_path / "proc", {"meminfo": MEMINFO})
    for folder, content in files.items():
        write(tmp_path / "cgroup" / folder, content)
    assert memory.available(tmp_path / "proc", tmp_path / "cgroup") == left


def test_a_group_has_as_much_memory_as_its_limit(tmp_path: Path) -> None:
    write(tmp_path / "proc/self", {"cgroup": "0::/own\n"})
    write(tmp_path / "cgroup/own", V2)
    assert memory.total(tmp_path / "proc", tmp_path / "cgroup") == 9_000_000
    assert memory.total(tmp_path, tmp_path) > 9_000_000
    write(tmp_path / "cgroup/own", {"memory.max": "max"})
    assert memory.total(tmp_path / "proc", tmp_path / "cgroup") > 9_000_000


@pytest.mark.parametrize("meminfo", [None, "MemTotal: 16000 kB\n"])
def test_a_system_without_these_files_has_no_limit(tmp_path: Path, meminfo: Optional[str]) -> None:
    if meminfo is not None:
        write(tmp_path, {"meminfo": meminfo})
    assert memory.available(tmp_path, tmp_path) is None


def test_within_the_limit_nothing_changes_and_beyond_it_an_allocation_fails() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=str(ROOT), stdout=subprocess.PIPE, check=True
    )
    assert answer.stdout.split() == [b"refused", b"True"]


GROWN = """
import sys
open("/proc/self/comm", "wb").write(bytes([0xC3, 0xA9]))
grown = bytearray(200 << 20)
del grown
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux counts peaks anew")
def test_the_peak_of_another_process_can_be_reset() -> None:
    with subprocess.Popen(
        [sys.executable, "-S", "-c", GROWN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        grown = memory.peak(str(process.pid))
        assert grown is not None and grown > 200 << 20
        memory.reset_peak(str(process.pid))
        assert (memory.peak(str(process.pid)) or grown) < 100 << 20
        process.communicate()
    assert memory.peak(str(process.pid)) is None
