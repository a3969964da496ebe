"""Messages between a run and its instances: whole, in order, without delay."""

from __future__ import annotations

import os
import socket
import struct
from multiprocessing.connection import Connection, Pipe

from ipubench.fixtures.instances.protocol import keep_alive, receive, send


def test_messages_are_json_and_come_in_order_until_the_other_end_closes() -> None:
    near, far = Pipe()
    send(far, {"answer": "ü\n"})
    send(far, {"log": "two"})
    assert [receive(near), receive(near)] == [{"answer": "ü\n"}, {"log": "two"}]
    send(near, {"run": [1.5, None]})
    assert far.recv_bytes() == b'{"run": [1.5, null]}'
    far.close()
    assert receive(near) is None


def test_between_hosts_orders_do_not_queue_and_a_silent_host_is_pinged() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        far = socket.create_connection(listener.getsockname())
        end = listener.accept()[0]
    near = Connection(os.dup(end.fileno()))
    keep_alive(near)
    assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    far.close()  # as of a process that was killed with something unread
    assert receive(near) is None
    end.close()
