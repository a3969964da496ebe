"""Leases between processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Iterator, List

import pytest

from ipubench.fixtures.devices.base import DeviceError
from ipubench.fixtures.devices.lease import INHERIT_VARIABLE, lease
from tests.support.harness import ROOT

HOLD = """
import sys
from ipubench.fixtures.devices.lease import lease
with lease(["dev"], 1):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("IPUBENCH_LEASE_DIR", str(tmp_path))
    monkeypatch.delenv(INHERIT_VARIABLE, raising=False)
    return tmp_path


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the device until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        cwd=str(ROOT),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_lease_can_be_taken_again_after_it_ends() -> None:
    for _ in range(2):
        with lease(["dev"], 0.1):
            pass


def test_a_held_device_names_its_holder(holder: subprocess.Popen[bytes]) -> None:
    lines: List[str] = []
    with pytest.raises(DeviceError) as caught, lease(["dev"], 0.3, lines.append):
        pass
    assert f"still held by process {holder.pid} since" in str(caught.value)
    assert "--device-timeout=SECONDS" in str(caught.value)
    assert lines and lines[0].startswith(f"waiting for dev, held by process {holder.pid}")


def test_a_waiting_run_goes_on_when_the_device_is_free(
    holder: subprocess.Popen[bytes],
) -> None:
    threading.Timer(0.3, holder.terminate).start()
    with lease(["dev"], 30):
        pass


def test_the_lock_of_a_killed_process_is_taken_over(holder: subprocess.Popen[bytes]) -> None:
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with lease(["dev"], 1):
        pass


def test_another_device_is_free(holder: subprocess.Popen[bytes]) -> None:
    with lease(["other"], 0.1):
        pass


def test_a_child_that_measures_for_its_parent_uses_the_parents_device(
    holder: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(INHERIT_VARIABLE, str(os.getppid()))
    with lease(["dev"], 0.1):
        pass
    monkeypatch.setenv(INHERIT_VARIABLE, str(os.getpid()))
    with pytest.raises(DeviceError), lease(["dev"], 0.1):
        pass


def test_a_folder_that_cannot_hold_locks_is_one_message(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "dev.lock").mkdir()
    with pytest.raises(DeviceError, match="IPUBENCH_LEASE_DIR"), lease(["dev"], 0.1):
        pass


def test_a_damaged_holder_file_does_not_matter(
    holder: subprocess.Popen[bytes], folder: Path
) -> None:
    (folder / "dev.holder").write_text("{")
    with pytest.raises(DeviceError, match="held by another run"), lease(["dev"], 0.1):
        pass
