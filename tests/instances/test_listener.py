"""A connection must prove its origin before the run trusts its data."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any, Iterator, List

import pytest

from ipubench.fixtures.instances.listener import Listener
from ipubench.fixtures.instances.protocol import receive, send
from tests.support.harness import Project
from tests.support.instances import WORDS, with_instances
from tests.support.listening import LOOPBACK, listening, watched_run


@pytest.fixture(params=["", "127.0.0.1"])
def listener(request: pytest.FixtureRequest) -> Iterator[Listener]:
    """A run that listens to this user, and one that listens on a network."""
    found = Listener(request.param)
    yield found
    found.close()


def place(listener: Listener) -> Any:
    """Return the address to connect to."""
    host, _, port = listener.address.rpartition(":")
    return (host, int(port)) if host else listener.address


def knock(listener: Listener) -> socket.socket:
    """Connect and send nothing."""
    end = socket.socket(socket.AF_INET if ":" in listener.address else socket.AF_UNIX)
    end.settimeout(60)
    end.connect(place(listener))
    assert listener.wait((), 60) is None
    return end


def join(listener: Listener, key: str) -> List[Connection]:
    """Join as rank 3 while the run waits; return the connection, or None for a wrong key."""
    found: List[Connection] = []

    def call() -> None:
        with contextlib.suppress(AuthenticationError):
            found.append(Client(place(listener), authkey=key.encode()))
            send(found[0], {"rank": 3, "pid": 4194304})

    thread = threading.Thread(target=call)
    thread.start()
    assert listener.wait((), 60) is None, "it has only connected"
    thread.join()
    return found


def met(listener: Listener) -> Connection:
    """Wait for rank 3; return the run's end of its connection."""
    known = listener.wait((), 60)
    assert known is not None
    assert known[:3] == (3, 4194304, "")
    return known.connection


def test_silent_connections_do_not_keep_an_instance_out(listener: Listener) -> None:
    silent = knock(listener)
    (joined,) = join(listener, listener.key)
    known = met(listener)
    listener.close()
    while silent.recv(100):  # its challenge and the end
        pass
    send(known, {"run": 7})
    assert receive(joined) == {"run": 7}, "it stays"
    with pytest.raises(OSError, match=r"."):  # no other connection is awaited
        Client(place(listener))
    for end in (known, joined):
        end.close()
    silent.close()


def test_a_process_with_a_wrong_key_or_none_is_disconnected(listener: Listener) -> None:
    assert not join(listener, listener.key[:-1] + "x")
    for words in (b"GET / HTTP/1.1\r\n\r\n", b"\n", b"[" * 60000, b"\0\0\0\4none"):
        with knock(listener) as end, contextlib.suppress(OSError):
            end.sendall(words)  # refused, perhaps before it is complete
            end.shutdown(socket.SHUT_WR)
            while end.recv(100):
                pass
    (joined,) = join(listener, listener.key)
    met(listener).close()
    joined.close()


def test_of_too_many_silent_connections_the_first_is_closed(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ipubench.fixtures.instances.listener.MOST_PENDING", 2)
    crowd = [knock(listener) for _ in range(3)]
    while crowd[0].recv(100):
        pass
    (joined,) = join(listener, listener.key)
    met(listener).close()
    joined.close()
    for end in crowd:
        end.close()


def test_on_one_host_only_this_user_can_connect() -> None:
    listener = Listener("")
    folder = Path(listener.address).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    listener.close()
    assert not folder.exists()


# --- sockets ---------------------------------------------------------------------------------

needs_linux = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2,
    reason="needs Linux and two cores that this process may use",
)


@needs_linux
def test_the_check_of_sockets_finds_one_that_is_open_to_all() -> None:
    with socket.socket() as everywhere, socket.socket() as here:
        everywhere.bind(("0.0.0.0", 0))  # noqa: S104  only looked for
        everywhere.listen()
        here.bind(("127.0.0.1", 0))
        here.listen()
        assert {"00000000", LOOPBACK[0]} <= listening(os.getpid())


@needs_linux
def test_a_run_with_local_instances_listens_on_no_address(project: Project) -> None:
    with_instances(project)
    few = ("--steps=4", "--batches-per-step=1")
    outcome, seen = watched_run(project.folder, project.environment, *WORDS, *few)
    outcome.assert_code(0)
    assert not seen
