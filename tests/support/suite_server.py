"""Starts runs of the suite and its commands without importing them first.

The imports are more than half of a short run. `python tests/support/suite_server.py PYTEST'S WORDS`
imports pytest with these words and the suite's plugins, then reads a request a line (JSON: folder,
environment, module, words, output), forks itself for each, and answers with the run's exit code.
Nothing but imports happens before a run.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.metadata
import json
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 300  # that a run may take before SIGALRM ends it


class Installed:
    """A distribution that is installed; its entry points are read once.

    Pytest reads those of every distribution anew for each plugin that a conftest.py names, which
    was 40 % of a short run.
    """

    def __init__(self, distribution: importlib.metadata.Distribution) -> None:
        self._distribution = distribution
        self.entry_points = distribution.entry_points
        if any(point.group == "pytest11" for point in self.entry_points):
            self.files = distribution.files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._distribution, name)


def load(words: List[str]) -> None:
    """Import what every run would, as pytest imports it."""
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
        code = pytest.main(["-VV", *words])
    assert code == 0, f"pytest -VV ended with {code}"
    # py-cpuinfo takes up to a second, and this remains the same machine.
    benchmark: Any = sys.modules["pytest_benchmark.plugin"]
    found = benchmark.get_cpu_info()
    benchmark.get_cpu_info = lambda: dict(found)
    installed = [Installed(part) for part in importlib.metadata.distributions()]
    patched: Any = importlib.metadata
    patched.distributions = lambda: installed
    gc.freeze()  # so that a fork need not copy what is never collected


def become(request: Dict[str, Any], path: List[str]) -> None:
    """Turn this process into ``python -m MODULE WORDS`` in another folder."""
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    more = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    sys.path[:] = [request["folder"], *more, *path]
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.argv[:] = [request["module"], *request["words"]]
    importlib.invalidate_caches()
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(request["output"], os.O_WRONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.closerange(3, 1 + max(nothing, output))
    signal.alarm(SECONDS)


def main() -> None:
    path = sys.path[1:]
    load(sys.argv[1:])
    for line in sys.stdin:
        child = os.fork()
        if not child:
            request = json.loads(line)
            become(request, path)
            runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
            return
        _, status = os.waitpid(child, 0)
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        print(code, flush=True)


if __name__ == "__main__":
    main()
