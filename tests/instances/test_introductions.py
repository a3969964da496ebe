"""What a connection to the run has to prove before anything of it is believed."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any, Iterator, List, Optional, Tuple

import pytest

from ipubench.fixtures.instances import introductions
from ipubench.fixtures.instances.introductions import Introductions, Known
from ipubench.fixtures.instances.protocol import receive, send
from tests.support.harness import Project
from tests.support.instances import WORDS, with_instances
from tests.support.listening import LOOPBACK, listening, watched_run


@pytest.fixture(params=["", "127.0.0.1"])
def listener(request: pytest.FixtureRequest) -> Iterator[Introductions]:
    """A run that listens to this user, and one that listens to a network."""
    found = Introductions(request.param)
    yield found
    found.close()


def place(listener: Introductions) -> Any:
    """Return what a socket connects to."""
    host, _, port = listener.address.rpartition(":")
    return (host, int(port)) if host else listener.address


def connected(listener: Introductions, *sent: bytes) -> Optional[Known]:
    """Connect, send something, and say nothing more; return whom the run knows then."""
    with socket.socket(socket.AF_INET if ":" in listener.address else socket.AF_UNIX) as end:
        end.connect(place(listener))
        for words in sent:
            end.sendall(words)
            end.shutdown(socket.SHUT_WR)
        return listener.wait((), 60)


def join(listener: Introductions, key: str) -> Tuple[List[Connection], Optional[Known]]:
    """Introduce rank 3; return its end of the connection, if it has one, and whom the run knows."""
    found: List[Connection] = []

    def call() -> None:
        with contextlib.suppress(AuthenticationError):
            found.append(Client(place(listener), authkey=key.encode()))
            send(found[0], {"rank": 3, "pid": 4194304})

    thread = threading.Thread(target=call)
    thread.start()
    known = listener.wait((), 60)
    thread.join()
    return found, known


def test_only_who_has_the_key_is_known(
    listener: Introductions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(introductions, "PROOF_SECONDS", 1)
    for words in (b"GET / HTTP/1.1\r\n\r\n", b"\n", b"[" * 60000, b"\0\0\0\4none"):
        assert connected(listener, words) is None
    assert connected(listener) is None, "it is silent"
    assert join(listener, listener.key[:-1] + "x") == ([], None)
    (joined,), known = join(listener, listener.key)
    assert known is not None and known[:3] == (3, 4194304, "")
    listener.close()
    send(known.connection, {"run": 7})
    assert receive(joined) == {"run": 7}, "it stays"
    with pytest.raises(OSError, match=r"."):  # nobody else is awaited
        Client(place(listener))
    for end in (known.connection, joined):
        end.close()


def test_on_one_host_only_this_user_can_connect() -> None:
    listener = Introductions("")
    folder = Path(listener.address).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    listener.close()
    assert not folder.exists()


# --- what listens ----------------------------------------------------------------------------

needs_linux = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2,
    reason="needs Linux and two cores that this process may use",
)


@needs_linux
def test_the_look_at_sockets_sees_one_that_is_open_to_all() -> None:
    with socket.socket() as everywhere, socket.socket() as here:
        everywhere.bind(("0.0.0.0", 0))  # noqa: S104  only looked for
        everywhere.listen()
        here.bind(("127.0.0.1", 0))
        here.listen()
        assert {"00000000", LOOPBACK[0]} <= listening(os.getpid())


@needs_linux
def test_a_run_with_instances_on_its_own_host_listens_on_no_address(project: Project) -> None:
    with_instances(project)
    few = ("--steps=4", "--batches-per-step=1")
    outcome, seen = watched_run(project.folder, project.environment, *WORDS, *few)
    outcome.assert_code(0)
    assert not seen
