"""Files of others: read within limits, or one error."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, Callable, Dict

import pytest

from ipubench.fixtures.case import untrusted
from ipubench.fixtures.case.untrusted import (
    MOST_LEVELS,
    BadFile,
    parse_json,
    printable,
    printable_lines,
    read_bytes,
    read_json,
)

MAKE: Dict[str, Callable[[Path], Any]] = {
    "pipe": os.mkfifo,
    "folder": os.mkdir,
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "large": lambda path: path.write_bytes(b" " * 2000),
    "nested": lambda path: path.write_text("[" * 500 + "]" * 500),
    "digits": lambda path: path.write_text("1" * 400),
    "infinite": lambda path: path.write_text("1e999"),
    "surrogate": lambda path: path.write_text('["\\ud800"]'),
    "surrogate in a key": lambda path: path.write_text('{"\\\\\\udc00": 1}'),
    "bytes": lambda path: path.write_bytes(b'"\xff"'),
    "empty": lambda path: path.touch(),
}


@pytest.mark.parametrize("kind", MAKE)
def test_a_bad_file_is_one_error_with_its_path(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    MAKE[kind](path)
    with pytest.raises(BadFile) as caught:
        read_json(path, most=1000)
    assert caught.value.path == path and caught.value.reason
    assert str(caught.value) == f"{path}: {caught.value.reason}"


def test_a_link_is_followed_if_allowed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("[1]")
    (tmp_path / "link").symlink_to("file")
    assert read_json(tmp_path / "link") == [1]
    with pytest.raises(BadFile):
        read_json(tmp_path / "link", follow=False)


def test_a_file_of_the_largest_size_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 10)
    assert read_bytes(tmp_path / "file", 10) == b"x" * 10
    with pytest.raises(BadFile, match="larger than 9 bytes"):
        read_bytes(tmp_path / "file", 9)
    # Its size is given as 0.
    with pytest.raises(BadFile, match="larger than 5 bytes"):
        read_bytes(Path("/proc/self/status"), 5)


def test_a_missing_file_is_not_a_bad_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "file")


def test_the_deepest_value_and_brackets_in_strings() -> None:
    parse_json("[" * MOST_LEVELS + "]" * MOST_LEVELS)
    with pytest.raises(ValueError, match="levels"):
        parse_json("[" * (MOST_LEVELS + 1) + "]" * (MOST_LEVELS + 1))
    assert parse_json('["%s"]' % ("[" * 1000)) == ["[" * 1000]
    assert len(parse_json("[" + ",".join(["[]"] * 1000) + "]")) == 1000


def test_both_halves_of_a_character_and_an_escaped_backslash_are_no_lone_surrogate() -> None:
    assert parse_json('["\\ud83d\\ude00", "\\\\ud800"]') == ["\U0001f600", "\\ud800"]


def test_the_number_of_values_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted, "MOST_VALUES", 100)
    assert len(parse_json("[" + "1," * 98 + "1]")) == 99
    with pytest.raises(ValueError, match="more than 100 values"):
        parse_json("[" + "[]," * 99 + "[]]")


def test_a_file_that_has_nothing_to_read_yet_is_a_bad_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like /proc/kmsg, which seems to be a regular file."""
    os.mkfifo(tmp_path / "file")
    writer = os.open(str(tmp_path / "file"), os.O_RDWR)
    monkeypatch.setattr(stat, "S_ISREG", lambda mode: True)
    with pytest.raises(BadFile, match="without waiting"):
        read_bytes(tmp_path / "file")
    with untrusted.open_regular(tmp_path / "file", 10) as file:
        for read in (file.read, file.readline):
            with pytest.raises(BlockingIOError):
                read()
    os.close(writer)


def test_printed_text_moves_no_cursor() -> None:
    assert printable("a\x1b[2J\r\u202e\udc80é") == "a\\x1b[2J\\r\\u202e\\udc80é"
    assert printable("x" * 9, 5) == "xxxxx..."


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        *(("::error::x", "\\x3a:error::x"), ("  ::debug::x", "  \\x3a:debug::x")),
        *(("##[error]x", "\\x23#[error]x"), ("a ##teamcity[x]", "a \\x23#teamcity[x]")),
        *(("a.py::b", "a.py::b"), ("a\n::error::x", "a\\n::error::x"), ("## a", "## a")),
    ],
)
def test_printed_text_is_no_command_to_a_ci_service(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable_lines(f"{text}\n") == [*map(printable, text.split("\n")), ""]
