"""Files of which a reader, or a crash, never meets half."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import time
from pathlib import Path
from typing import Any, BinaryIO, List, Optional

from ipubench.fixtures.case.masking import mask_output
from ipubench.fixtures.case.untrusted import open_regular, parse_json
from ipubench.fixtures.machine.files import write_atomically
from ipubench.plugins.record.structs import Json

#: Bytes of a journal, and of one of its lines: a case with a million rounds has fewer.
MOST_JOURNAL = 1 << 30
MOST_LINE = 64 << 20
#: A power failure takes the lines of this many seconds at most; no other end takes one.
SYNC_SECONDS = 1.0


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file with stable formatting, in one step. Raises ValueError for NaN."""
    write_atomically(path, json_text(value))


def json_text(value: Any) -> str:
    """Return what :func:`write_json` writes."""
    return json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n"


def storable(value: Any) -> Any:
    """Return a value as files hold it: texts without secrets, null for a number that JSON lacks."""
    if isinstance(value, str):
        return mask_output(value)
    if isinstance(value, dict):
        return {storable(key): storable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [storable(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class JsonLinesFile:
    """An append-only file of JSON lines; a process that is killed loses none of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # A test may change the working directory while its case is recorded.
        self._absolute = path.absolute()
        self._claim: Optional[BinaryIO] = None
        self._synced = -math.inf

    def claim(self) -> bool:
        """Make the file this run's for as long as its process lives; False: another run has it."""
        file = self._absolute.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        except OSError:
            pass  # a file system without locks
        self._claim = file
        return True

    def create(self) -> bool:
        """Make the file and claim it; False: there is one of this name, which stays as it is."""
        try:
            file = self._absolute.open("xb")
        except FileExistsError:
            return False
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        self._claim = file
        return True

    def append(self, line: Json) -> None:
        """Add one line, or nothing of it. Raises OSError."""
        text = (json.dumps(line, allow_nan=False) + "\n").encode()
        with self._absolute.open("rb+", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            try:
                # A full disk takes a part of it and says so, and fails at the next part.
                while text:
                    text = text[file.write(text) or 0 :]
                self._sync(file.fileno())
            except BaseException:
                file.truncate(end)
                raise

    def _sync(self, descriptor: int) -> None:
        """Put the file on the disk, unless that was done a moment ago: it takes milliseconds."""
        now = time.monotonic()
        if now - self._synced >= SYNC_SECONDS:
            os.fsync(descriptor)
            self._synced = now

    def drop_half_line(self) -> None:
        """Cut a last line without its end, so that the next line starts on one of its own."""
        with self._absolute.open("rb+") as file:
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)


def json_lines(path: Path) -> List[Any]:
    """Return the values of a file's lines; damaged ones, and a half-written last one, are left out.

    Raises OSError.
    """
    lines = []
    with open_regular(path, MOST_JOURNAL) as file:
        # What is left of a longer line is no line either.
        for text in iter(lambda: file.readline(MOST_LINE), b""):
            try:
                line = parse_json(text)
            except ValueError:
                continue
            if text.endswith(b"\n"):
                lines.append(line)
    return lines
