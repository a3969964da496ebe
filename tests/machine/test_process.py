"""Server processes: how they start and fail, and that they leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator, List, Sequence

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.machine.loopback import check_port
from ipubench.fixtures.machine.process import ServerProcess, accepts_connections, free_port
from tests.support.harness import ROOT

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the supervisor needs Linux: run it there"
)

# A server with a child in its group and one in another session. Both outlive it if they can.
SERVER = """
import os, signal, socket, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: print("asked to end", flush=True))
sleeper = [sys.executable, "-c", "import signal; signal.pause()"]
children = [subprocess.Popen(sleeper, start_new_session=own) for own in (False, True)]
print("serving", os.getpid(), *(child.pid for child in children), flush=True)
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    listener.accept()[0].close()
"""
# Starts the server and waits to be killed.
PARENT = """
import signal, sys
from pathlib import Path
from tests.machine.test_process import pids_of, started
server = started(Path(sys.argv[1]))
print(*pids_of(server), flush=True)
signal.pause()
"""


def server_process(folder: Path, command: Sequence[str], grace: float = 0.2) -> ServerProcess:
    patterns = [str(folder / "scratch*")]
    return ServerProcess("the test server", command, folder / "logs" / "server.log", None, grace,
                         remove=patterns, abandoned=[str(folder / "kept")])  # fmt: skip


def started(folder: Path) -> ServerProcess:
    port = free_port()
    (folder / "scratch-1").mkdir()
    (folder / "scratch-1" / "file").write_text("x")
    (folder / "kept").write_text("x")
    process = server_process(folder, [sys.executable, "-c", SERVER, str(port)])
    process.start()
    process.wait_until(lambda: accepts_connections(port), 30)
    return process


def pids_of(process: ServerProcess) -> List[int]:
    line = process.last_lines()[-1]
    assert line.startswith("serving ")
    return [int(word) for word in line.split()[1:]]


def runs(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def wait_until_gone(pids: Sequence[int], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while any(map(runs, pids)):
        assert time.monotonic() < deadline, f"still there: {[pid for pid in pids if runs(pid)]}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = started(tmp_path)
    yield process
    process.stop()


def test_stopping_ends_the_server_and_everything_it_started(
    server: ServerProcess, tmp_path: Path
) -> None:
    pids = pids_of(server)
    assert len(pids) == 3 and all(map(runs, pids)) and pids[0] == server.pid
    assert server.alive
    server.stop()
    assert not any(map(runs, pids))
    assert not server.alive
    assert server.last_lines()[-1] == "asked to end" and server.exit_code == -signal.SIGKILL
    assert not (tmp_path / "scratch-1").exists()
    assert (tmp_path / "kept").exists()
    server.stop()


def test_a_killed_server_is_noticed_and_its_children_are_killed(
    server: ServerProcess, tmp_path: Path
) -> None:
    pids = pids_of(server)
    os.kill(pids[0], signal.SIGKILL)
    assert server.ends_within(10)
    assert not any(map(runs, pids))
    assert (tmp_path / "kept").exists()  # for the next server of this process
    assert server.exit_code == -signal.SIGKILL and "SIGKILL" in server.how_it_ended()
    assert f"\n    serving {pids[0]}" in str(server.failure("is gone"))


def test_nothing_is_left_when_the_run_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        cwd=str(ROOT),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 3 and all(map(runs, pids))
    parent.kill()
    # The supervisor has the same standard error and ends last.
    assert parent.communicate()[1] == b""
    wait_until_gone(pids)
    assert not (tmp_path / "scratch-1").exists() and not (tmp_path / "kept").exists()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_the_supervisor_is_killed(
    server: ServerProcess, how: signal.Signals
) -> None:
    pids = pids_of(server)
    supervisor = int(Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(supervisor, how)
    assert server.ends_within(10)
    if how == signal.SIGTERM:
        assert not any(map(runs, pids))
    else:  # processes that left the server's group are out of reach now
        wait_until_gone(pids[:2])
        os.kill(pids[2], signal.SIGKILL)


def test_a_server_that_exits_early_fails_with_its_last_lines(tmp_path: Path) -> None:
    program = "print('first'); print('no model'); raise SystemExit(3)"
    process = server_process(tmp_path, [sys.executable, "-c", program])
    process.start()
    with pytest.raises(CaseError, match=r"exit code 3 (.|\n)*    first\n    no model$"):
        process.wait_until(lambda: False, 30)
    process.stop()


def test_a_server_that_is_never_ready_is_stopped(server: ServerProcess) -> None:
    pids = pids_of(server)
    with pytest.raises(CaseError, match=r"0\.3 s"):
        server.wait_until(lambda: False, 0.3)
    assert not any(map(runs, pids))


def test_a_program_that_cannot_start_is_one_message(tmp_path: Path) -> None:
    process = server_process(tmp_path, [str(tmp_path / "tritonserver")])
    with pytest.raises(CaseError, match="tritonserver"):
        process.start()
    assert not process.alive
    (tmp_path / "results").write_text("a file")
    with pytest.raises(CaseError, match="--results-dir"):
        server_process(tmp_path / "results", ["true"]).start()


def test_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    check_port(port, "port")
    assert not accepts_connections(port)
    with socket.create_server(("127.0.0.1", port)) as listener:
        with pytest.raises(CaseError, match=f"port={port}"):
            check_port(port, "port")
        assert accepts_connections(port)
        listener.accept()[0].close()  # the connection of accepts_connections
        with socket.create_connection(("127.0.0.1", port)) as client:
            listener.accept()[0].close()
            assert not client.recv(1)
    # The server's end of that connection still exists for a while.
    check_port(port, "port")


def test_a_process_with_many_open_files_can_have_a_server(tmp_path: Path) -> None:
    """It has more open files than ``select`` can take (1024)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip(f"a process may open {hard} files here; needs 1200 (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    with contextlib.ExitStack() as opened:
        for _ in range(1050):
            opened.enter_context(open(os.devnull, "rb"))
        process = started(tmp_path)
        pids = pids_of(process)
        process.stop()
        wait_until_gone(pids)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
