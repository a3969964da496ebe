"""Leases between processes."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Iterator, List

import pytest

from ipubench.fixtures.devices import HOLDER_VARIABLE
from ipubench.fixtures.devices import lease as lease_of_devices
from ipubench.fixtures.devices.base import DeviceError
from ipubench.fixtures.devices.lease import lease
from ipubench.fixtures.machine import locks
from tests.support.harness import ROOT

HOLD = """
import sys
from ipubench.fixtures.devices import lease as lease_of_devices
from ipubench.fixtures.devices.lease import lease
with lease(["dev"], 1):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("IPUBENCH_LEASE_DIR", str(tmp_path))
    monkeypatch.delenv(HOLDER_VARIABLE, raising=False)
    return tmp_path


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the device until its input is closed."""
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


def test_a_held_device_names_its_holder(holder: subprocess.Popen[bytes]) -> None:
    lines: List[str] = []
    with pytest.raises(DeviceError) as caught, lease(["dev"], 0.3, lines.append):
        pass
    assert f" process {holder.pid} " in str(caught.value)
    assert "--device-timeout=SECONDS" in str(caught.value)
    assert lines and re.search(rf" dev,.* process {holder.pid}\b", lines[0])


def test_a_waiting_run_reports_repeatedly(
    holder: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_of_devices, "REPORT_SECONDS", 0.0)
    lines: List[str] = []

    def report(text: str) -> None:
        lines.append(text)
        if len(lines) == 2:
            holder.terminate()

    with lease(["dev"], 60, report):
        pass
    assert len(lines) >= 2 and "--device-timeout" in lines[1]


def test_a_waiting_run_continues_when_the_device_is_free(
    holder: subprocess.Popen[bytes],
) -> None:
    threading.Timer(0.3, holder.terminate).start()
    with lease(["dev"], 30):
        pass


def test_two_runs_that_name_devices_in_different_orders_never_wait_for_each_other(
    holder: subprocess.Popen[bytes],
) -> None:
    """A run that waits for its first device holds none of the others."""
    waits = threading.Event()
    held = threading.Event()

    def wait() -> None:
        with lease(["zzz", "dev"], 60, lambda text: waits.set()):
            held.set()

    other = threading.Thread(target=wait)
    other.start()
    assert waits.wait(30)
    with lease(["zzz"], 0.1):
        pass
    holder.terminate()
    other.join(60)
    assert held.is_set()


def test_a_freed_lock_does_not_name_its_last_holder(folder: Path) -> None:
    with lease(["dev"], 0.1):
        assert json.loads((folder / "dev.lock").read_text())["pid"] == os.getpid()
    assert (folder / "dev.lock").read_text() == ""


def test_the_lock_of_a_killed_process_is_taken_over(holder: subprocess.Popen[bytes]) -> None:
    with lease(["other"], 0.1):
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with lease(["dev"], 1):
        pass


def test_a_child_uses_its_parents_device(
    holder: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOLDER_VARIABLE, str(os.getppid()))
    with lease(["dev"], 0.1):
        pass
    monkeypatch.setenv(HOLDER_VARIABLE, str(os.getpid()))
    with pytest.raises(DeviceError), lease(["dev"], 0.1):
        pass
    # There may be a supervisor or a launcher between them.
    take = (
        "from ipubench.fixtures.devices.lease import lease\n"
        "with lease(['dev'], 0.1): print('taken')"
    )
    between = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    words = [sys.executable, "-c", between, take]
    ran = subprocess.run(words, cwd=str(ROOT), stdout=subprocess.PIPE, check=True)
    assert ran.stdout == b"taken\n"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[" * 100_000,
        '{"pid": 1, "command": "x", "since": 1e300}',
        '{"pid": true, "command": "x", "since": 1}',
        '{"pid": 1, "command": "%s", "since": 1}' % ("x" * 20_000),
        '{"pid": 1, "command": "\\ud800", "since": 1}',
        '{"pid": 1, "command": "x", "since": 1, "\\ud800": 1}',
        '{"type": [], "pid": [], "command": {}}',
    ],
    ids=["nothing", "cut", "nested", "late", "truth", "long", "surrogate", "key", "types"],
)
def test_a_lock_without_its_holder_is_still_a_lock(
    holder: subprocess.Popen[bytes], folder: Path, content: str
) -> None:
    (folder / "dev.lock").write_text(content)
    with pytest.raises(DeviceError, match="another run"), lease(["dev"], 0.1):
        pass


def test_a_lock_that_only_another_user_may_open_is_still_a_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Root may open all files, so the operating system's refusal is simulated."""

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(locks, "take", refuse)
        with pytest.raises(DeviceError, match="another run"), lease(["dev"], 0.1):
            pass


def test_a_holder_cannot_write_to_the_terminal(
    holder: subprocess.Popen[bytes], folder: Path
) -> None:
    facts = {"pid": 1, "command": "a\x1b[2J\r\n\u202eb" + "x" * 1000, "since": 1.0}
    (folder / "dev.lock").write_text(json.dumps(facts))
    with pytest.raises(DeviceError) as caught, lease(["dev"], 0.1):
        pass
    assert str(caught.value).isprintable()
    assert "a\\x1b[2J\\r\\n\\u202ebxxx" in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("what", ["link", "link to nothing", "folder", "pipe"])
def test_a_file_that_is_not_a_lock_is_one_message(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, what: str
) -> None:
    precious = tmp_path_factory.mktemp("home") / "precious"
    if what == "link":
        precious.write_text("mine")
    if what in ("folder", "pipe"):
        (os.mkdir if what == "folder" else os.mkfifo)(folder / "dev.lock")
    else:
        (folder / "dev.lock").symlink_to(precious)
    with pytest.raises(DeviceError, match="IPUBENCH_LEASE_DIR"), lease(["dev"], 0.1):
        pass
    assert precious.exists() == (what == "link")


def test_another_file_of_ours_with_the_name_of_a_lock_is_kept(folder: Path) -> None:
    (folder / "precious").write_text("mine")
    os.link(folder / "precious", folder / "dev.lock")
    with lease(["dev"], 0.1):
        pass
    assert (folder / "precious").read_text() == "mine"


def test_a_folder_that_everyone_can_change_is_refused(folder: Path) -> None:
    folder.chmod(0o777)
    with pytest.raises(DeviceError, match="IPUBENCH_LEASE_DIR"), lease(["dev"], 0.1):
        pass
    folder.chmod(0o1777)
    with lease(["dev"], 0.1):
        pass


def test_another_users_folder_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    if folder.stat().st_uid == 0:
        os.chown(folder, 54321, -1)
    with pytest.raises(DeviceError, match="IPUBENCH_LEASE_DIR"), lease(["dev"], 0.1):
        pass


def test_by_default_the_locks_are_in_the_temporary_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("IPUBENCH_LEASE_DIR")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with lease(["dev"], 0.1):
        assert [path.name for path in folder.iterdir()] == ["ipubench-dev.lock"]
    assert (folder / "ipubench-dev.lock").stat().st_mode & 0o777 == 0o666


def test_a_named_folder_is_created_for_all_users(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("IPUBENCH_LEASE_DIR", "~/new/locks")
    with lease(["dev"], 0.1):
        assert (folder / "new" / "locks" / "dev.lock").is_file()
    assert stat.S_IMODE((folder / "new" / "locks").stat().st_mode) == 0o1777
    for name in ("~no-such-user/locks", "/dev/null/x"):
        monkeypatch.setenv("IPUBENCH_LEASE_DIR", name)
        with pytest.raises(DeviceError, match=name), lease(["dev"], 0.1):
            pass


def test_the_holder_reveals_no_secret(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["pytest", "--set=token=CANARY-1", "https://u:CANARY-2@h"])
    with lease(["dev"], 0.1):
        said = (folder / "dev.lock").read_text()
    assert "CANARY" not in said
    assert "--set=token=***" in said
