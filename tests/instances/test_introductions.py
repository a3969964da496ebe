"""What a connection to the run has to say before anything of it is believed."""

from __future__ import annotations

import os
import socket
import sys
from typing import Iterator, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.fixtures.instances.protocol import (
    MOST_BYTES,
    Stranger,
    StrangerError,
    encode,
    introduced,
)
from tests.support.harness import Project
from tests.support.instances import WORDS, with_instances
from tests.support.listening import LOOPBACK, listening, watched_run

TOKEN = "0123456789abcdef" * 2
TRUE = {"token": TOKEN, "rank": 3, "pid": 4194304}


def with_token(rest: str) -> bytes:
    return f'{{"token": "{TOKEN}",{rest}'.encode()


def test_an_instance_is_known_by_its_token() -> None:
    assert introduced(encode(TRUE)[:-1], TOKEN) == (3, 4194304)
    assert len(encode({**TRUE, "rank": 999999, "pid": 1 << 32})) <= MOST_BYTES


@pytest.mark.parametrize(
    "rest",
    [
        ' "rank": Infinity, "pid": 1}',
        ' "rank": -1, "pid": 1}',
        ' "rank": 1.0, "pid": 1}',
        ' "rank": true, "pid": 1}',
        ' "rank": "1", "pid": 1}',
        ' "rank": [1], "pid": 1}',
        ' "rank": 1e9, "pid": 1}',
        ' "rank": 1000000, "pid": 1}',
        ' "rank": 1, "pid": 10000000000000}',
        ' "rank": 1}',
        ' "pid": 1}',
        ' "rank": 1, "pid": 1}}',
        ' "rank": \u0661, "pid": 1}',
        "",
    ],
)
def test_the_token_alone_is_no_introduction(rest: str) -> None:
    with pytest.raises(StrangerError, match="does not say who it is"):
        introduced(with_token(rest), TOKEN)


@given(st.binary(max_size=MOST_BYTES) | st.text(max_size=MOST_BYTES).map(str.encode))
def test_nobody_else_is_read(line: bytes) -> None:
    with pytest.raises(StrangerError, match="does not know the token"):
        introduced(line, TOKEN)


@given(st.sampled_from("0123456789abcdef"), st.integers(0, len(TOKEN) - 1))
def test_a_token_that_is_almost_right_is_wrong(letter: str, place: int) -> None:
    guess = TOKEN[:place] + letter + TOKEN[place + 1 :]
    line = encode({**TRUE, "token": guess})[:-1]
    if guess == TOKEN:
        assert introduced(line, TOKEN) == (3, 4194304)
    else:
        with pytest.raises(StrangerError):
            introduced(line, TOKEN)


@pytest.fixture
def ends() -> Iterator[Tuple[socket.socket, Stranger]]:
    """The two ends of a connection; the run's end is a stranger's."""
    one, other = socket.socketpair()
    stranger = Stranger(other)
    yield one, stranger
    one.close()
    stranger.close()


def test_an_introduction_may_come_in_pieces(ends: Tuple[socket.socket, Stranger]) -> None:
    one, stranger = ends
    assert stranger.introduction(TOKEN) is None, "it has said nothing yet, and nobody waits for it"
    text = encode(TRUE)
    for place in range(len(text) - 1):
        one.sendall(text[place : place + 1])
        assert stranger.introduction(TOKEN) is None
    one.sendall(text[-1:])
    assert stranger.introduction(TOKEN) == (3, 4194304)


@pytest.mark.parametrize(
    "words",
    [b"[" * 60000, b"{" * (MOST_BYTES + 1), encode(TRUE) * 3, b"\n", encode(TRUE)[:-1] + b"\n\n"],
)
def test_what_is_too_long_or_more_than_one_line_is_refused(
    ends: Tuple[socket.socket, Stranger], words: bytes
) -> None:
    one, stranger = ends
    one.sendall(words)
    with pytest.raises(StrangerError):
        stranger.introduction(TOKEN)


def test_one_that_hangs_up_is_refused(ends: Tuple[socket.socket, Stranger]) -> None:
    one, stranger = ends
    one.sendall(encode(TRUE)[:-1])
    assert stranger.introduction(TOKEN) is None
    one.close()
    with pytest.raises(StrangerError):
        stranger.introduction(TOKEN)


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
def test_a_run_with_instances_listens_on_the_loopback_address_only(project: Project) -> None:
    with_instances(project)
    few = ("--steps=4", "--batches-per-step=1")
    outcome, seen = watched_run(project.folder, project.environment, *WORDS, *few)
    outcome.assert_code(0)
    assert seen == {LOOPBACK[0]}, "the run itself, until its instances are there"
