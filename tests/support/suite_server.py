"""Starts runs of the suite and its commands with their imports already done.

The imports are more than half of a short run. `python tests/support/suite_server.py FRAMEWORK
FOLDER PYTEST'S ARGUMENTS` imports pytest with these arguments, the suite's plugins and the
framework, if one is named: a framework starts threads at its first computation, which happens in a
fork. With ``no-suite`` instead of a framework it imports other packages but no module of this
checkout, for runs in another one. It publishes the address of its starter
(tests/support/process_starter.py), which forks for each request: for a test's run, and for the
processes that a run starts. Only imports happen before a run. All workers of pytest-xdist use one
server; it ends with the last of them.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import importlib.metadata
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import Any, Dict, List, NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)  # instead of this file's folder
from tests.support.known_names import know_names, know_sources  # noqa: E402
from tests.support.process_starter import NO_SUITE, Files, serve, use_starter  # noqa: E402

# As in plugins/record/host_process.py, which another checkout's server must not import.
PR_SET_PDEATHSIG = 1
# What a run imports if it reads a baseline, judges, writes a report or has workers, and some of
# pytest's own modules.
LATER = (
    "scipy.special",
    "jinja2",
    "xdist.remote",
    "xdist.dsession",
    "xdist.workermanage",
    "faulthandler",
    "pdb",
    "yaml",
    "pytest_benchmark.storage.file",
    "encodings.ascii",
    "encodings.unicode_escape",
    "encodings.utf_8_sig",
    "encodings.idna",
    "asyncio",
    "concurrent.futures",
)
#: Other modules of the suite that a run imports, beside those of its plugins.
OURS = ("tests.support.fake_device", "tests.support.fake_runtime")


class Installed:
    """An installed distribution whose entry points are read once.

    Pytest reads those of every distribution again for each plugin that a conftest.py names, which
    took 40% of a short run.
    """

    def __init__(self, distribution: importlib.metadata.Distribution) -> None:
        self._distribution = distribution
        self.entry_points = distribution.entry_points
        if any(point.group == "pytest11" for point in self.entry_points):
            self.files = [str(file) for file in distribution.files or ()]
            self.metadata = distribution.metadata  # the header of a run has its name and version
            self.version = distribution.version

    def __getattr__(self, name: str) -> Any:
        return getattr(self._distribution, name)


def load(framework: str, words: List[str]) -> None:
    """Import what every run would import, as pytest imports it."""
    os.chdir(ROOT)
    alone = framework == NO_SUITE
    unconfigured = ["--noconftest", "-c", os.devnull] if alone else []
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
        code = pytest.main(["-VV", *words, *unconfigured])
    assert code == 0, f"pytest -VV ended with {code}"
    # It configures nothing, so it kept conftest.py's handler of Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Before TensorFlow: an old one makes setuptools' vendored packages visible, with pytest
    # plugins.
    installed = [Installed(part) for part in importlib.metadata.distributions()]
    ours = () if alone else (*plugins(), *OURS, framework or "ruptures")
    for name in (*LATER, *ours):
        with contextlib.suppress(ImportError):  # some are not installed everywhere
            importlib.import_module(name)
    # py-cpuinfo takes up to a second, and the machine stays the same.
    benchmark: Any = sys.modules["pytest_benchmark.plugin"]
    found = benchmark.get_cpu_info()
    benchmark.get_cpu_info = lambda: dict(found)
    # For a file name that no run uses (--benchmark-autosave): up to six processes of git.
    benchmark.get_tag = lambda: "tag"
    if not alone:
        # Measures the machine's peaks with less work, in a fifth of the time: next to other tests
        # each process repeats that up to four times.
        cpu: Any = importlib.import_module("ipubench.fixtures.devices.cpu")
        cpu.CpuDevice.peak_size //= 2
        cpu.CpuDevice.copy_bytes //= 8
        rounds: Any = importlib.import_module("ipubench.plugins.measure.rounds")
        rounds.PEAK_SECONDS /= 5
    know_names()
    know_sources(*(ROOT / "tests/support" / name for name in ("fake_conftest.py", "fake_cases.py")))
    patched: Any = importlib.metadata
    find, known = patched.distributions, set(sys.path)

    def distributions(**where: Any) -> Any:
        return installed if known.issuperset(where.get("path", ())) else find(**where)

    patched.distributions = distributions
    found_here = [name for name in sys.modules if name.split(".")[0] == "ipubench"]
    assert not (alone and found_here), f"{found_here} would be another checkout's"
    gc.freeze()  # so that a fork need not copy what is never collected


def plugins() -> List[str]:
    """Return the modules of the suite's plugins, some of which a run imports late."""
    package: Any = importlib.import_module("ipubench.plugins")
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [module.name for module in found if not module.name.endswith("__main__")]


def run(request: Dict[str, Any], path: List[str]) -> NoReturn:
    """Turn this process into ``python WORDS``, and end it as Python would.

    Python would also free the server's memory at exit, which a fork would copy first.
    """
    code: Any = 0
    try:
        become(request, path)
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        code = 1
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(int(code or 0) & 0xFF)


def become(request: Dict[str, Any], path: List[str]) -> None:
    """Turn this process into ``python WORDS`` in another folder, and run it."""
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
    elif kind != "-c":
        sys.path[:] = [os.path.dirname(kind), *more, *path]
        sys.argv[:] = [kind, program, *words]
        runpy.run_path(kind, run_name="__main__")
    else:
        sys.path[:] = ["", *more, *path]
        sys.argv[:] = [kind, *words]
        exec(program, {"__name__": "__main__"})  # noqa: S102  a test's own program


def start_starter(address: str, links: Path, path: List[str]) -> None:
    """Start a starter and have ``subprocess.Popen`` use it from now on."""
    use_starter(address)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"\0{address}")
    listening.listen(128)
    if os.fork():
        listening.close()
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for target in (0, 1):
        os.dup2(nothing, target)
    os.close(nothing)
    run(serve(listening, links), path)


def wait_for_the_last(pipe: int, lock: Path, address: Path) -> None:
    """Return when no process has a pipe open for writing, and none is about to."""
    waiting = select.poll()
    waiting.register(pipe, 0)
    with lock.open("w") as file:
        while True:
            os.read(pipe, 1)
            fcntl.flock(file, fcntl.LOCK_EX)
            if waiting.poll(0):  # that they have closed it
                with contextlib.suppress(FileNotFoundError):  # tests have ended and cleaned up
                    address.unlink()
                return
            fcntl.flock(file, fcntl.LOCK_UN)


def main() -> None:
    path = sys.path[1:]
    framework, folder, *words = sys.argv[1:]
    files = Files(Path(folder), framework)
    users = os.open(str(files.users), os.O_RDONLY)
    load(framework, words)
    address = f"ipubench-tests-{os.getpid()}"
    start_starter(address, files.links, path)
    print(address, flush=True)
    wait_for_the_last(users, files.lock, files.address)
    os._exit(0)  # Python would first free all that was imported, for a second


if __name__ == "__main__":
    main()
