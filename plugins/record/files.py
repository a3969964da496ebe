"""Writes files so that no reader, not even after a crash, finds half of one."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import time
from pathlib import Path
from typing import Any, BinaryIO, Iterator, List, Optional

from ipubench.fixtures.case.masking import inner_name, is_secret, mask_output, mask_value
from ipubench.fixtures.case.untrusted import encodable, open_regular, parse_json
from ipubench.fixtures.machine.files import write_atomically
from ipubench.plugins.record.structs import Json

#: Size limits in bytes of a journal and of its lines; a case with a million rounds fits. The values
#: of a line are limited, too (fixtures/case/untrusted.py).
MOST_JOURNAL = 1 << 30
MOST_LINE = 64 << 20
#: A power failure loses the lines of at most this many seconds; nothing else loses a line.
SYNC_SECONDS = 1.0


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file with stable formatting, in one step. Raises ValueError for NaN."""
    write_atomically(path, json_text(value))


def json_text(value: Any) -> str:
    """Return the text that :func:`write_json` writes."""
    return json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n"


def storable(value: Any, name: str = "") -> Any:
    """Return a value for a file: secrets masked, surrogates escaped, null for NaN and infinity."""
    if isinstance(value, str):
        return encodable(mask_value(name, value) if is_secret(name) else mask_output(value))
    if isinstance(value, dict):
        inner = {key: storable(value[key], inner_name(name, key)) for key in value}
        return {storable(key): one for key, one in inner.items()}
    if isinstance(value, (list, tuple)):
        return [storable(inner, name) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class JsonLinesFile:
    """An append-only file of JSON lines that loses none when the process is killed."""

    #: Whether this process stores the lines.
    stores = True

    def __init__(self, path: Path) -> None:
        self.path = path
        # A test may change the working directory before its case is recorded.
        self._absolute = path.absolute()
        self._claim: Optional[BinaryIO] = None
        self._synced = -math.inf

    def claim(self) -> bool:
        """Lock the file for the life of this process; return False if another run has it."""
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
        """Create and lock the file; return False, and change nothing, if it exists."""
        try:
            file = self._absolute.open("xb")
        except FileExistsError:
            return False
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        self._claim = file
        return True

    def append(self, line: Json) -> None:
        """Append one line completely or not at all. Raises OSError."""
        text = (json.dumps(line, allow_nan=False) + "\n").encode()
        with self._absolute.open("rb+", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            try:
                # On a full disk, a partial write succeeds first, and then the next one fails.
                while text:
                    text = text[file.write(text) or 0 :]
                self._sync(file.fileno())
            except BaseException:
                file.truncate(end)
                raise

    def _sync(self, descriptor: int) -> None:
        """Sync the file to disk, unless that was done a moment ago: it takes milliseconds."""
        now = time.monotonic()
        if now - self._synced >= SYNC_SECONDS:
            os.fsync(descriptor)
            self._synced = now

    def drop_half_line(self) -> None:
        """Remove an incomplete last line."""
        with self._absolute.open("rb+") as file:
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)


class NoFile(JsonLinesFile):
    """Takes lines and stores none."""

    stores = False

    def __init__(self, path: Path = Path(os.devnull)) -> None:
        super().__init__(path)

    def append(self, line: Json) -> None:
        """Store nothing."""


def json_lines(path: Path) -> List[Any]:
    """Return the values of a file's lines, without damaged or half-written ones.

    Raises OSError.
    """
    return [line for line in each_json_line(path) if not isinstance(line, ValueError)]


def each_json_line(path: Path) -> Iterator[Any]:
    """Yield the value of each line, a ValueError for a damaged one; none for a half-written one.

    Only one line at a time is in memory. Raises OSError.
    """
    with open_regular(path, MOST_JOURNAL) as file:
        goes_on = False
        for text in iter(lambda: file.readline(MOST_LINE), b""):
            is_rest, goes_on = goes_on, not text.endswith(b"\n")
            if is_rest:
                continue
            if goes_on and len(text) < MOST_LINE:
                return
            try:
                yield ValueError("it is too long") if goes_on else parse_json(text)
            except ValueError as error:
                yield error
