"""``python -m ipubench WORDS``: pytest on Graphcore's cases, from any folder, also of the wheel.

Paths such as bench_kernels/bench_dense.py are those of the installed cases. Without any path, all
cases are collected, as in a clone. The cases have the same node ids as there.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).absolute().parent
FOLDERS = ("bench_inference", "bench_training", "bench_kernels")


def main() -> int:
    """Run pytest; return its exit code."""
    words = [_installed(word) for word in sys.argv[1:]]
    if not any(os.path.exists(word.partition("::")[0]) for word in words):
        words += [str(HERE / name) for name in FOLDERS]
    cache = f"cache_dir={Path.cwd() / '.pytest_cache'}"
    return int(pytest.main(["-p", "ipubench", "-c", str(HERE / "cases.ini"), "-o", cache, *words]))


def _installed(word: str) -> str:
    """Return the path of an installed case file; other words stay."""
    path = HERE / word.partition("::")[0]
    is_ours = word.startswith(FOLDERS) and path.exists()
    return str(HERE / word) if is_ours else word


if __name__ == "__main__":
    sys.exit(main())
