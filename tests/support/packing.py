"""Every page of a report contains the same script, which takes longest to compress."""

from __future__ import annotations

import contextlib
import functools
import gzip
from typing import Any, Optional


def pack_once() -> None:
    """Have ``gzip.compress`` cache its latest result, in this process and its forks.

    Only for tests that do not time compression.
    """
    really = gzip.compress

    @functools.lru_cache(maxsize=1)
    def remembered(data: bytes, level: int, mtime: float) -> bytes:
        return really(data, level, mtime=mtime)

    def compress(data: Any, compresslevel: int = 9, *, mtime: Optional[float] = None) -> bytes:
        if mtime is None or not isinstance(data, bytes):
            return really(data, compresslevel, mtime=mtime)
        return remembered(data, compresslevel, mtime)

    patched: Any = gzip
    patched.compress = compress


def pack_the_script() -> None:
    """Compress the script of the charts, if it is installed, as a page of a report does."""
    with contextlib.suppress(ImportError):
        from plotly.offline import get_plotlyjs

        gzip.compress(get_plotlyjs().encode(), mtime=0)
