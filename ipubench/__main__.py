"""``python -m ipubench WORDS``: pytest on Graphcore's cases, from any folder, also of the wheel.

Paths such as bench_kernels/bench_dense.py are those of the installed cases. Without any path, all
cases are collected, as in a clone. The cases have the same node ids as there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import List

import pytest

HERE = Path(__file__).absolute().parent
FOLDERS = ("bench_inference", "bench_training", "bench_kernels")


class _AllCases:
    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self, early_config: pytest.Config, args: List[str]) -> None:
        """Add all cases if no path is given."""
        if not early_config.known_args_namespace.file_or_dir:
            args += [str(HERE / name) for name in FOLDERS]


def main() -> int:
    """Run pytest; return its exit code."""
    cache = f"cache_dir={Path.cwd() / '.pytest_cache'}"
    ours = ["-p", "ipubench", "-c", str(HERE / "cases.ini"), "-o", cache]
    return int(pytest.main([*ours, *map(_installed, sys.argv[1:])], plugins=[_AllCases()]))


def _installed(word: str) -> str:
    """Return the path of an installed case file; other words stay."""
    path = HERE / word.partition("::")[0]
    is_ours = word.startswith(FOLDERS) and path.exists()
    return str(HERE / word) if is_ours else word


if __name__ == "__main__":
    sys.exit(main())
