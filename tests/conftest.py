"""Fixtures of the project's own tests."""

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
from tests.support.harness import Project, SuiteServer
from tests.support.own_project import OwnProject
from tests.support.repository import Repository
from tests.support.tries import tries

settings.register_profile("ipubench", tries(50))
settings.load_profile("ipubench")

NIGHTLY = Path(__file__).with_name("nightly")

# In a file of nothing but tests of frameworks.
MARKED = re.compile(r"^pytestmark = (\[\s*)?pytest\.mark\.framework\b", re.MULTILINE)


# A shell's background job ignores Ctrl-C, and so would every run of the suite that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A suite that a test runs in a process of its own is no worker of pytest-xdist.
for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
    del os.environ[name]

# TensorFlow decides about oneDNN when it is imported: tests ask for it where the suite does
# (fixtures/devices/cpu.py), because without it gradients of grouped convolutions do not exist.
if onednn.is_faster(flags_of(CPUINFO)):
    os.environ.setdefault(onednn.VARIABLE, "1")


# A fork beside threads that compute may wait for ever, and keeps the pipe to pytest-xdist's
# controller open, which then never learns that its worker was ended.
def _no_fork() -> int:
    raise RuntimeError("tests do not fork their own process: start one")


os.fork = _no_fork


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project of fake cases in an empty folder."""
    return Project(tmp_path)


@pytest.fixture
def stored(project: Project, baselines: Path) -> Project:
    """A project with the folder of baselines that the file's own fixture has made."""
    shutil.copytree(baselines, project.folder / "baselines")
    return project


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the machine can do at most is found once for all tests of a file."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def own(tmp_path: Path, cache: Path) -> OwnProject:
    """A project of somebody else's."""
    return OwnProject(tmp_path, cache)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A git repository with the suite and fake cases, in a folder beside others."""
    folder = tmp_path / "repository"
    folder.mkdir()
    return Repository(folder)


def pytest_configure(config: pytest.Config) -> None:
    """Give all tests of a run, in workers of pytest-xdist too, one folder for the suite's caches.

    What one test has compiled or drawn is there for the next, and the user's own cache is not used.
    """
    if not hasattr(config, "workerinput"):
        folder = tempfile.mkdtemp(prefix="ipubench-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        os.environ["IPUBENCH_CACHE_DIR"] = folder
        # What XLA is given is ours, not how LLVM optimises what it makes of it, which takes almost
        # half of the time; tests of numbers do without this where make test-avx2 runs them.
        hasty = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
        if version_of("tensorflow").startswith("2.21."):
            # Half of what is left. TensorFlow ends a process that gives a flag it does not know.
            hasty += " --xla_cpu_use_fusion_emitters=false"
        os.environ.setdefault("XLA_FLAGS", hasty)
    SuiteServer.folder = Path(os.environ["IPUBENCH_CACHE_DIR"])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> Optional[bool]:
    """Leave out tests/nightly unless it is named, and files that ``-m "not framework"`` deselects.

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
    """Mark what runs the suite: it uses the fixture ``project``, or one's own project."""
    if {"project", "own"} & set(getattr(item, "fixturenames", ())):
        item.add_marker("suite")


def pytest_collection_finish() -> None:
    """Leave modules out of garbage collections, and have fewer: TensorFlow's graphs cause many."""
    gc.freeze()
    gc.set_threshold(50_000)


def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    """Put tests of PyTorch first and those of TensorFlow last.

    Each kernel that TensorFlow's XLA compiles makes every later C++ exception of the process slower
    to unwind, and OpenVINO throws thousands while it converts a network: seconds become minutes.
    Of several workers one begins with PyTorch, another soon comes to TensorFlow.
    """
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    path = item.nodeid.split("::")[0]
    if any(name in path for name in ("torch", "triton")):
        return 0
    return 2 if item.get_closest_marker("framework") else 1
