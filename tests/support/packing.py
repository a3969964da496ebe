"""Every page of a report holds the same script, which takes longer to pack than all the rest."""

from __future__ import annotations

import contextlib
import functools
import gzip
from typing import Any, Optional


def pack_once() -> None:
    """Have ``gzip.compress`` remember what it packed last, in this process and its forks.

    Only where the time of packing is no part of the result.
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
    """Pack the script of the charts, as a page of a report does, where there is one."""
    with contextlib.suppress(ImportError):
        from plotly.offline import get_plotlyjs

        gzip.compress(get_plotlyjs().encode(), mtime=0)
