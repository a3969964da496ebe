"""What travels between a run and its instances: whole messages, in order, at once."""

from __future__ import annotations

import socket
import struct
from typing import Iterator, Tuple
from unittest.mock import Mock

import pytest

from ipubench.fixtures.instances.protocol import (
    MOST_BYTES,
    Connection,
    Lines,
    Stranger,
    StrangerError,
    encode,
)

Ends = Tuple[socket.socket, Connection]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """The other end, and ours."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        far = socket.create_connection(listener.getsockname())
        stranger = Stranger(listener.accept()[0])
    near = stranger.known()
    yield far, near
    far.close()
    near.close()


def test_messages_are_put_together_from_pieces() -> None:
    lines = Lines()
    text = encode({"answer": "ü\n"}) + encode({"log": "two"})
    found = [message for place in range(len(text)) for message in lines.take(text[place:][:1])]
    assert found == [{"answer": "ü\n"}, {"log": "two"}]
    for bad in (b"[1]\n", b"7\n", b"\xff\n", b"no\n"):
        with pytest.raises(ValueError, match=r"."):
            Lines().take(bad)


def test_messages_are_received_in_order_until_the_other_end_hangs_up(ends: Ends) -> None:
    far, near = ends
    assert near.end.getblocking(), "it waits for an order"
    far.sendall(b"".join(encode({"run": number}) for number in range(3)))
    assert [near.receive() for _ in range(3)] == [{"run": 0}, {"run": 1}, {"run": 2}]
    near.send({"answer": 1})
    assert far.recv(100) == encode({"answer": 1})
    assert near.elsewhere() == ""
    far.close()
    assert near.receive() is None


def test_an_end_that_breaks_off_is_gone(ends: Ends) -> None:
    far, near = ends
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    far.close()  # as of a process that was killed with something unread
    assert near.read() is None and near.elsewhere() == ""


def test_an_order_waits_for_no_other_and_a_silent_host_is_asked(ends: Ends) -> None:
    _, near = ends
    assert near.end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert near.end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_no_more_than_an_introduction_is_read_of_anybody() -> None:
    end = Mock(recv=Mock(side_effect=[b"x" * 150, b"x" * 51]))
    stranger = Stranger(end)
    assert stranger.introduction("token") is None
    with pytest.raises(StrangerError, match="said too much"):
        stranger.introduction("token")
    assert [call.args[0] for call in end.recv.mock_calls] == [MOST_BYTES + 1, MOST_BYTES - 149]
