"""Fixtures and hooks of the project's own tests."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import tempfile
from pathlib import Path
from typing import List, Optional

import pytest
from hypothesis import settings

from ipubench.fixtures.machine import onednn
from ipubench.fixtures.machine.packages import version_of
from ipubench.fixtures.machine.processor import CPUINFO, flags_of
from tests.support import fake_device  # noqa: F401  registers the kind
from tests.support.harness import Project, SuiteServer
from tests.support.own_project import OwnProject
from tests.support.repository import Repository
from tests.support.tries import tries

settings.register_profile("ipubench", tries(50))
settings.load_profile("ipubench")

NIGHTLY = Path(__file__).parents[1] / "nightly"

# For a file in which every test needs a framework.
MARKED = re.compile(r"^pytestmark = (\[\s*)?pytest\.mark\.framework\b", re.MULTILINE)


# A shell's background job ignores Ctrl-C, which all runs started by tests would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A run of the suite in another process is not a worker of pytest-xdist.
for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
    del os.environ[name]

# TensorFlow decides about oneDNN when it is imported. Tests choose oneDNN as the suite does
# (fixtures/devices/cpu.py), because gradients of grouped convolutions need it.
if onednn.is_faster(flags_of(CPUINFO)):
    os.environ.setdefault(onednn.VARIABLE, "1")


# A fork while other threads compute may hang, and keeps the pipe to pytest-xdist's controller open,
# which then does not notice that its worker has ended.
def _no_fork() -> int:
    raise RuntimeError("tests do not fork their own process: start one")


os.fork = _no_fork


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project of fake cases in an empty folder."""
    return Project(tmp_path)


@pytest.fixture
def stored(project: Project, baselines: Path) -> Project:
    """A project with the baselines that the file's own fixture has stored."""
    shutil.copytree(baselines, project.folder / "baselines")
    return project


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The peaks of the machine, measured once for all tests of a file."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def own(tmp_path: Path, cache: Path) -> OwnProject:
    """A project that only uses the plugin."""
    return OwnProject(tmp_path, cache)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A git repository with the suite and fake cases, in a folder next to others."""
    folder = tmp_path / "repository"
    folder.mkdir()
    return Repository(folder)


def pytest_configure(config: pytest.Config) -> None:
    """Give all tests of a run, including pytest-xdist's workers, one folder for the suite's caches.

    Later tests reuse what one test compiled or drew, and the user's own cache is not touched.
    """
    if not hasattr(config, "workerinput"):
        folder = tempfile.mkdtemp(prefix="ipubench-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        os.environ["IPUBENCH_CACHE_DIR"] = folder
        # Tests cover the program that XLA gets, not LLVM's optimisation of it, which takes almost
        # half of the time. `make test-avx2` runs tests of numbers without this flag.
        hasty = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
        if version_of("tensorflow").startswith("2.21."):
            # Half of the remaining time. TensorFlow ends a process that sets a flag it does not
            # know.
            hasty += " --xla_cpu_use_fusion_emitters=false"
        os.environ.setdefault("XLA_FLAGS", hasty)
    SuiteServer.folder = Path(os.environ["IPUBENCH_CACHE_DIR"])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> Optional[bool]:
    """Leave out tests/nightly unless named, and files that ``-m "not framework"`` deselects.

    Some of the latter import a framework.
    """
    if collection_path == NIGHTLY and not any("nightly" in arg for arg in config.args):
        return True
    chosen = re.sub(r"\([^()]*\)", "()", config.option.markexpr)  # an "or" within is another matter
    if " or " in chosen or "not framework" not in chosen.split(" and "):
        return None
    if collection_path.suffix != ".py":
        return None
    return True if MARKED.search(collection_path.read_text(encoding="utf-8")) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests that run the suite: they use the fixture ``project`` or ``own``."""
    if {"project", "own"} & set(getattr(item, "fixturenames", ())):
        item.add_marker("suite")


def pytest_collection_finish() -> None:
    """Exclude modules from garbage collection and collect less often, for TensorFlow's graphs."""
    gc.freeze()
    gc.set_threshold(50_000)


def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    """Put tests of PyTorch first and those of TensorFlow last.

    Each kernel that TensorFlow's XLA compiles slows down the unwinding of every later C++
    exception in the process, and OpenVINO throws thousands while it converts a network: seconds
    become minutes. With several workers one begins with PyTorch and another soon reaches
    TensorFlow.
    """
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    path = item.nodeid.split("::")[0]
    if any(name in path for name in ("torch", "triton")):
        return 0
    return 2 if item.get_closest_marker("framework") else 1
