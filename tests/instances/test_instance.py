"""An instance's messages to its run, and where it writes."""

from __future__ import annotations

import json
import os
import socket
import threading
from multiprocessing import AuthenticationError
from multiprocessing.connection import Listener, Pipe
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple
from unittest.mock import Mock, call

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.devices.cpu import THREAD_VARIABLES
from ipubench.fixtures.instances import instance
from ipubench.fixtures.instances.instance import Instance
from ipubench.fixtures.instances.processes import RANK_VARIABLE
from ipubench.fixtures.instances.protocol import (
    LAUNCHER_VARIABLE,
    TOKEN_VARIABLE,
    receive,
    send,
)
from ipubench.fixtures.machine.output import LOGGER


def member(rank: int = 0, remote: bool = False, said: Optional[Mock] = None) -> Instance:
    """Return an instance that has joined; ``said`` gets its messages."""
    found = Instance.__new__(Instance)
    if said is not None:
        found._send = said  # type: ignore[method-assign]
    found.rank, found.remote, found.failed = rank, remote, False
    found._takes_share = False
    return found


@pytest.mark.parametrize("rank", [0, 1])
def test_only_the_first_instance_sends_log_lines(rank: int) -> None:
    said = Mock()
    one = member(rank, said=said)
    with one._forwarded_log():
        LOGGER.error("half way")
    LOGGER.error("no order is carried out")
    told = [] if rank else [call({"log": "half way"})]
    assert said.mock_calls == told


@pytest.mark.parametrize(
    ("remote", "place", "leads"),
    [(True, (0, 2), True), (True, (1, 2), False), (True, None, False), (False, (0, 2), False)],
)
def test_one_instance_leads_each_remote_host(
    remote: bool, place: Optional[Tuple[int, int]], leads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance, "place_on_host", lambda: place)
    assert member(remote=remote).is_first_on_other_host == leads


def test_a_log_behind_a_link_is_not_written(tmp_path: Path) -> None:
    one = member(said=Mock())
    one.log = tmp_path / "log"
    one.log.symlink_to("other")
    with pytest.raises(CaseError, match="log"):
        one.set_up()
    assert not (tmp_path / "other").exists()
    assert one.failed


class Run:
    """The run's end of a connection, where an instance joins."""

    def __init__(self, listener: Listener, welcome: Optional[Dict[str, Any]]) -> None:
        self.address = str(listener.address)
        self.heard: List[bytes] = []
        self._listener, self._welcome = listener, welcome
        self._thread = threading.Thread(target=self._answer)
        self._thread.start()

    def _answer(self) -> None:
        try:
            with self._listener.accept() as connection:
                self.heard.append(connection.recv_bytes())
                if self._welcome is not None:
                    send(connection, self._welcome)
        except AuthenticationError:
            pass

    def join(self) -> None:
        self._thread.join()


WELCOME: Dict[str, Any] = {
    "log": "/logs/instance-2.log",
    "cores": [3],
    "takes_share": True,
    "count": 2,
    "exchange": "",
    "remote": False,
    "alternates": False,
}
ENVIRON = {LAUNCHER_VARIABLE: "processes", TOKEN_VARIABLE: "token", RANK_VARIABLE: "1"}


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener(family="AF_UNIX", authkey=b"token") as found:
        yield found


def test_an_instance_gets_its_rank_and_folder(listener: Listener) -> None:
    run = Run(listener, WELCOME)
    one = Instance(run.address, ENVIRON)
    run.join()
    assert list(map(json.loads, run.heard)) == [{"rank": 1, "pid": os.getpid()}]
    assert (one.log, one.cores, one.rank, one.count) == (Path("/logs/instance-2.log"), [3], 1, 2)
    assert (one.exchange, one.alternates, one.remote) == ("", False, False)
    assert not one.serve_commands({})  # the run has closed the connection
    one.connection.close()


@pytest.mark.parametrize("token", ["guess", "token"])
def test_a_run_without_this_instance_gives_no_orders(listener: Listener, token: str) -> None:
    run = Run(listener, None)
    with pytest.raises(CaseError, match="--ipubench-instance"):
        Instance(run.address, {**ENVIRON, TOKEN_VARIABLE: token})
    run.join()


@pytest.mark.parametrize("words", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"\0\0\0\4none"])
def test_a_process_that_is_not_a_run_gives_no_orders(words: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def answer() -> None:
            with server.accept()[0] as end:
                end.sendall(words)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(CaseError, match=f"^--ipubench-instance={address}: "):
            Instance(address, ENVIRON)
        thread.join()


@pytest.mark.parametrize("missing", sorted(ENVIRON))
def test_only_a_run_starts_an_instance(missing: str) -> None:
    environ = {name: value for name, value in ENVIRON.items() if name != missing}
    with pytest.raises(CaseError, match="--ipubench-instance"):
        Instance("127.0.0.1:1", environ)


@pytest.mark.parametrize("remote", [True, False])
def test_after_its_last_order_an_instance_removes_a_log_that_only_it_can(
    remote: bool, tmp_path: Path
) -> None:
    one = member(remote=remote)
    one.log = tmp_path / "results" / "instances" / "case" / "log"
    one.log.parent.mkdir(parents=True)
    one.log.touch()
    (tmp_path / "another").touch()
    near, one.connection = Pipe()
    for order in ({"run": 7}, {"close": None}):
        send(near, order)
    assert one.serve_commands({"run": lambda batches: 2 * batches, "close": lambda _: None})
    assert [receive(near), receive(near)] == [{"answer": 14}, {"answer": None}]
    assert one.log.exists() == (tmp_path / "results").exists() == (not remote)


def test_an_instance_that_takes_its_share_has_only_threads_of_its_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in THREAD_VARIABLES:
        monkeypatch.setenv(name, "64")
    written: List[Any] = []
    monkeypatch.setattr(instance, "own_share", lambda *_: [0, 1])
    monkeypatch.setattr(instance, "bind_threads", written.append)
    # The output of this process goes where it went before.
    monkeypatch.setattr(os, "dup2", lambda log, stream: written.append(stream))
    one = member(remote=True)
    one._takes_share = True
    one.log = tmp_path / "made" / "log"
    one.set_up()
    assert written == [[0, 1], 1, 2] and one.cores == [0, 1] and not one.failed
    assert one.log.parent.stat().st_mode & 0o777 == 0o700
    assert not set(THREAD_VARIABLES).intersection(os.environ)


def test_only_the_first_failure_is_reported_and_a_closed_run_is_no_problem() -> None:
    one = member()
    near, one.connection = Pipe()
    one.fail("no memory")
    one.fail("and so nothing is built")
    one.reply(7)
    assert [receive(near), receive(near)] == [
        {"error": "no memory", "case": ""},
        {"answer": 7},
    ]
    near.close()
    one.reply(7)
