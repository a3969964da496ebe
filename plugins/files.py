"""Files of which a reader, or a crash, never meets half."""

from __future__ import annotations

import contextlib
import json
import math
import os
import uuid
from pathlib import Path
from typing import Any


def write_atomically(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` in one step; its folder is made. Raises OSError.

    What UTF-8 has not, such as a byte of a file's name that is no text, is written as an escape.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not mkstemp, whose files only their owner may read.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    try:
        with temporary.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file with stable formatting, in one step. Raises ValueError for NaN."""
    write_atomically(path, json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n")


def finite(value: Any) -> Any:
    """Return a value with null for each number that JSON has not: NaN and the infinities."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
