"""The fresh process of a case: its command, its time limit, its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Tuple

import pytest

from ipubench.fixtures.devices import INHERIT_VARIABLE
from ipubench.plugins.benchmarks_yml.command import base_environment
from ipubench.plugins.command_line.words import MEASURING_OPTIONS
from ipubench.plugins.processes import fresh
from ipubench.plugins.processes.other_python import Environment
from ipubench.plugins.processes.revision import Revision
from ipubench.plugins.run.results import run_key
from tests.run.test_interruption import is_running
from tests.support.command_line import given_options
from tests.support.harness import QUIETLY, Project

WITH_A_CHILD = """
import os, pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
print("child", child.pid, flush=True)
"""

# A server that a test has left running; the alarm ends it where nobody does.
DAEMON = """
import os, signal
daemon = os.fork()
if not daemon:
    os.setsid()
    signal.alarm(30)
    signal.pause()
print(daemon, flush=True)
"""


def test_a_data_set_is_that_of_this_folder_for_processes_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("DATASETS_DIR", "TFDS_DATA_DIR"):
        # The folder above a link is that of what it leads to.
        monkeypatch.setenv(name, "link/../images")
        for environment in (fresh.fresh_environment(), base_environment(None)):
            assert environment[name] == f"{tmp_path}/link/../images"
        monkeypatch.delenv(name)
        assert name not in fresh.fresh_environment()


@pytest.mark.parametrize(("end", "seconds", "code"), [("", 60, 0), ("time.sleep(300)", 2, None)])
def test_the_children_of_a_process_end_with_it(
    end: str, seconds: float, code: Optional[int]
) -> None:
    """Whether it ends by itself or hangs."""
    command = [sys.executable, "-c", WITH_A_CHILD + end]
    found, output = fresh.run_bounded(command, ".", os.environ, seconds)
    assert found == code
    pid = int(output.split()[1])
    deadline = time.monotonic() + 60
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(pid)


@pytest.mark.parametrize(("end", "seconds", "code"), [("", 60, 0), ("signal.pause()", 2, None)])
def test_nobody_waits_for_a_server_that_a_process_leaves_running(
    end: str, seconds: float, code: Optional[int]
) -> None:
    command = [sys.executable, "-c", DAEMON + end]
    found, output = fresh.run_bounded(command, ".", os.environ, seconds)
    pid = int(output)
    assert is_running(pid)
    os.kill(pid, signal.SIGKILL)
    assert found == code


def test_both_sides_run_in_the_same_folder_of_the_project(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here / "benchmarks", here / "only_here", there / "benchmarks"):
        folder.mkdir(parents=True)
    revision = Environment("python", [], {}, Revision("commit", there))
    for start, expected in (
        (here, there),
        (here / "benchmarks", there / "benchmarks"),
        (here / "only_here", there),
        (tmp_path, there),  # with --rootdir
    ):
        params = SimpleNamespace(dir=start)
        config: Any = SimpleNamespace(invocation_params=params, rootpath=here)
        assert fresh.folder_of(config, None) == start
        assert fresh.folder_of(config, revision) == expected


@pytest.mark.entry_point
def test_a_plugin_of_the_run_is_one_of_its_fresh_processes(project: Project) -> None:
    """All of them start as a user's do: no suite server is in between."""
    (project.folder / "extra.py").write_text(
        "def pytest_configure():\n    open('extra.log', 'a').write('loaded\\n')\n"
    )
    words = ["--device=fake", "-p", "extra", "-k", "beta-synthetic", "--baseline-save=main"]
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", *QUIETLY, *words, "--processes=2", "bench_fake.py"],
        cwd=project.folder,
        env=project.environment,
        stdout=subprocess.PIPE,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout
    assert (project.folder / "extra.log").read_text() == 2 * "loaded\n"


def test_a_process_whose_test_fails_after_its_measurement_has_measured_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: List[Dict[str, Any]] = [
        {"type": "case", "benchmark": {"fullname": "a.py::a"}},
        {"type": "outcome", "case": "a.py::a", "outcome": "failed", "why": "a wrong result"},
    ]

    def run(config: Any, nodeid: str, folder: Path, *_: Any, **__: Any) -> Tuple[int, str]:
        (folder / "run-1.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return 1, "1 failed"

    monkeypatch.setattr(fresh, "run_case", run)
    monkeypatch.setattr(fresh, "most_seconds", lambda *_: 60.0)
    config: Any = None
    with pytest.raises(fresh.FreshError, match=r"a\.py::a .*\(exit code 1\); its") as told:
        fresh.measure_again(config, "a.py::a")
    assert told.value.why == "a wrong result"
    lines[1]["outcome"] = "passed"
    assert fresh.measure_again(config, "a.py::a") == lines[0]["benchmark"]


def run_in(folder: Path, first: Optional[Dict[str, Any]] = None, **options: Any) -> Any:
    """Stand for the configuration of a run that began in ``images`` of a project."""
    given = {
        **dict.fromkeys(MEASURING_OPTIONS),
        **{"budget": 5.0, "dataset_dir": "data", "case_options": ["size=64", "xla=on"]},
        **{"wait_for_quiet": None, "zero_values": False, "importmode": "prepend", "plugins": []},
        **options,
    }
    results = SimpleNamespace(benchmarks={} if first is None else {"a.py::a": first})
    return SimpleNamespace(
        rootpath=folder,
        inipath=folder / "pytest.ini",
        invocation_params=SimpleNamespace(dir=folder / "images", args=["--benchmark-disable-gc"]),
        option=given_options(**given),
        getini=lambda _: [],
        pluginmanager=SimpleNamespace(hasplugin=lambda name: name == given.get("has")),
        stash={run_key: SimpleNamespace(results=results)},
    )


def ours(*words: str) -> List[str]:
    """Return our options in the spelling that no other plugin has."""
    return [f"--ipubench-{word}" for word in words]


def test_the_command_of_a_fresh_process_measures_as_its_run_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fresh, "own_arguments", lambda *_: ["--own=1"])
    here, there = tmp_path / "here", tmp_path / "there"
    words: Dict[str, Any] = {"zero_values": True, "importmode": "importlib", "has": fresh.CACHE}
    config = run_in(here, plugins=["no:terminal", "extra", "no:unraisableexception"], **words)
    measuring = ["set=size=64", "set=xla=on", "budget=5.0"]
    first = ["-q", "-p", "no:unraisableexception", "-p", "extra"]
    last = ["--benchmark-disable-gc", "--own=1", "-o", "cache_dir=cache"]
    last.append("--import-mode=importlib")
    assert fresh.fresh_command(config, "a.py::a", "out", Path("cache")) == [
        *(sys.executable, "-m", "pytest", *first, "-c", f"{here}/pytest.ini"),
        *("-o", "addopts=", f"--rootdir={here}"),
        *ours("sweep", "results-dir=out", *measuring, "dataset-dir=data", "zero-values"),
        *(*last, f"{here}/a.py::a"),
    ]
    options = ("case_options", "dataset_dir")  # an older revision has no --budget
    older = Environment("python", [], {}, Revision("commit", there), options, prefix="--")
    found = fresh.fresh_command(config, "a.py::a", "out", Path("cache"), older)
    assert found[found.index("-q") :] == [
        *(*first, "-o", "addopts=", f"--rootdir={there}", "--sweep", "--results-dir=out"),
        *("--set=size=64", "--set=xla=on", f"--dataset-dir={here}/images/data", "--zero-values"),
        *(*last, f"{there}/a.py::a"),
    ]


def test_a_fresh_process_may_take_long_but_not_for_ever() -> None:
    spent = {"build": 1.0, "compile": 2.0, "rounds": 64.0}
    benchmark = {"extra_info": {"ipubench": {"spent": spent}}}
    folder = Path("/")
    assert fresh.most_seconds(run_in(folder), "a.py::a") == 600 + 10 * 5
    assert fresh.most_seconds(run_in(folder, wait_for_quiet=120.0), "a.py::a") == 770
    assert fresh.most_seconds(run_in(folder, benchmark), "a.py::a") == 600 + 10 * (5 + 67)


def test_a_fresh_process_does_not_outlive_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What directs an instance ends it, maybe from another host."""

    def configure(holder: int, instance: Optional[str] = None) -> None:
        monkeypatch.setenv(INHERIT_VARIABLE, str(holder))
        config: Any = SimpleNamespace(stash={}, option=given_options(instance=instance))
        fresh.follow_parent(config)
        assert config.stash[fresh.cpus_key]

    gone = 1 << 30  # more than Linux numbers
    configure(os.getpid())
    configure(gone, "host:1")
    with pytest.raises(pytest.exit.Exception, match="the run that started this process is gone"):
        configure(gone)


def test_a_fresh_process_has_the_cpus_with_which_its_run_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.sched_getaffinity(0)
    config = run_in(tmp_path)
    config.stash[fresh.cpus_key] = frozenset([min(before)])
    monkeypatch.setattr(fresh, "own_arguments", lambda *_: [])
    monkeypatch.setattr(fresh, "run_bounded", lambda *_: (0, str(os.sched_getaffinity(0))))
    assert fresh.run_case(config, "a.py::a", tmp_path, None) == (0, str({min(before)}))
    assert os.sched_getaffinity(0) == before


def test_a_path_is_that_of_the_folder_in_which_it_was_given() -> None:
    words = ["--dataset-dir=a", "--gate-policy=/b", "--dataset-dir", "--set=a=b", "-q"]
    found = fresh.for_another_folder(words, Path("/here"))
    assert found == ["--dataset-dir=/here/a", *words[1:]]
