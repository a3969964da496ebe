"""Starts runs of the suite and its commands without importing them first.

The imports are more than half of a short run. `python tests/support/suite_server.py FRAMEWORK
PYTEST'S WORDS` imports pytest with these words, the suite's plugins and the framework, if one is
named: its threads start with its first computation, which a fork does. It reads a request a line
(JSON: folder, environment, words, output), forks itself for each, and answers with the run's exit
code. Nothing but imports happens before a run. What a run starts in turn:
tests/support/process_starter.py.
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
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)  # instead of this file's folder
from tests.support.process_starter import by_starter, serve  # noqa: E402

SECONDS = 300  # that a run may take before SIGALRM ends it
# What a run imports that reads a baseline, judges, writes a report or has workers, and some of
# pytest's own.
LATER = (
    "ipubench.plugins.baseline.promote",
    "jsonschema",
    "scipy.special",
    "plotly.offline",
    "xdist.remote",
    "xdist.dsession",
    "xdist.workermanage",
    "faulthandler",
    "pdb",
)


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


def load(framework: str, words: List[str]) -> None:
    """Import what every run would, as pytest imports it."""
    os.chdir(ROOT)
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
        code = pytest.main(["-VV", *words])
    assert code == 0, f"pytest -VV ended with {code}"
    # It configures nothing, so conftest.py's answer to Ctrl-C remained.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in (*LATER, *([framework] if framework else [])):
        with contextlib.suppress(ImportError):  # not everything is installed everywhere
            importlib.import_module(name)
    # py-cpuinfo takes up to a second, and this remains the same machine.
    benchmark: Any = sys.modules["pytest_benchmark.plugin"]
    found = benchmark.get_cpu_info()
    benchmark.get_cpu_info = lambda: dict(found)
    installed = [Installed(part) for part in importlib.metadata.distributions()]
    patched: Any = importlib.metadata
    patched.distributions = lambda: installed
    gc.freeze()  # so that a fork need not copy what is never collected


def become(request: Dict[str, Any], path: List[str]) -> None:
    """Turn this process into ``python WORDS`` in another folder, and run that."""
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # of another TMPDIR
    more = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    importlib.invalidate_caches()
    kind, program, *words = request["words"]
    if kind == "-m":
        sys.path[:] = [request["folder"], *more, *path]
        sys.argv[:] = [program, *words]
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        sys.path[:] = ["", *more, *path]
        sys.argv[:] = [kind, *words]
        exec(program, {"__name__": "__main__"})  # noqa: S102  a test's own program


def use_files(output_name: str) -> None:
    """Read from nothing and write into a file; close all that the server has open."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(output_name, os.O_WRONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.closerange(3, 1 + max(nothing, output))


def start_starter(path: List[str]) -> bool:
    """Have ``subprocess.Popen`` use a starter from now on; return whether this process is it."""
    from ipubench.plugins.record.host_process import end_with_parent  # after pytest's rewriting

    address = f"ipubench-tests-{os.getpid()}"

    class Popen(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, args: Any, *more: Any, **named: Any) -> None:
            super().__init__(by_starter(address, args), *more, **named)

    patched: Any = subprocess
    patched.Popen = Popen
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"\0{address}")
    listening.listen()
    if os.fork():
        listening.close()
        return False
    end_with_parent()
    nothing = os.open(os.devnull, os.O_RDWR)
    for target in (0, 1):
        os.dup2(nothing, target)
    os.close(nothing)
    become(serve(listening), path)
    return True


def main() -> None:
    path = sys.path[1:]
    load(sys.argv[1], sys.argv[2:])
    if start_starter(path):
        return
    for line in sys.stdin:
        child = os.fork()
        if not child:
            request = json.loads(line)
            use_files(request["output"])
            signal.alarm(SECONDS)
            become(request, path)
            return
        _, status = os.waitpid(child, 0)
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        print(code, flush=True)


if __name__ == "__main__":
    main()
