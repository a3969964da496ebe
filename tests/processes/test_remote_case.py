"""The fresh process of a case: its command, its time limit, its end."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Optional

import pytest

from ipubench.fixtures.pytest_fixtures import shared_of
from ipubench.plugins.benchmarks_yml.command import base_environment
from ipubench.plugins.command_line.arguments import MEASURING_OPTIONS
from ipubench.plugins.processes import remote_case
from ipubench.plugins.processes.place import THIS_PLACE, Place
from ipubench.plugins.processes.remote_case import CACHE, RemoteCase, child_environment
from ipubench.plugins.processes.revision import Revision
from ipubench.plugins.record.structs import Benchmark
from ipubench.plugins.results.run_results import RunResults
from ipubench.plugins.run.recording import Recording
from ipubench.plugins.selection.selected import Selection
from tests.run.test_interruption import is_running
from tests.support.command_line import given_options
from tests.support.harness import QUIETLY, Project
from tests.support.repository import run_alone
from tests.support.stored import a_benchmark

WITH_CHILDREN = """
import subprocess, sys, time
sleeper = [sys.executable, "-c", "import time; time.sleep(300)"]
print(*(subprocess.Popen(sleeper, start_new_session=own).pid for own in (False, True)), flush=True)
"""


def test_processes_in_another_folder_use_this_folders_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("DATASETS_DIR", "TFDS_DATA_DIR"):
        # The parent of a link is the parent of its target.
        monkeypatch.setenv(name, "link/../images")
        for environment in (child_environment(), base_environment(None)):
            assert environment[name] == f"{tmp_path}/link/../images"
        monkeypatch.delenv(name)
        assert name not in child_environment()


@pytest.mark.parametrize(("end", "seconds", "code"), [("", 60, 0), ("time.sleep(300)", 2, None)])
def test_child_processes_end_with_it(
    end: str, seconds: float, code: Optional[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it exits or hangs: its children, and a server in another session."""
    program = [sys.executable, "-c", WITH_CHILDREN + end]
    monkeypatch.setattr(RemoteCase, "command", lambda *_: program)
    (tmp_path / "images").mkdir()
    outcome = RemoteCase(run_in(tmp_path), "a.py::a").run(tmp_path, seconds)
    assert outcome.code == code
    assert not any(map(is_running, map(int, outcome.lines[0].split())))


def test_both_processes_run_in_the_same_folder_of_the_project(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here / "benchmarks", here / "only_here", there / "benchmarks"):
        folder.mkdir(parents=True)
    revision = Place("python", [], revision=Revision("commit", there))
    for start, expected in (
        (here, there),
        (here / "benchmarks", there / "benchmarks"),
        (here / "only_here", there),
        (tmp_path, there),  # with --rootdir
    ):
        params = SimpleNamespace(dir=start)
        config: Any = SimpleNamespace(invocation_params=params, rootpath=here)
        assert THIS_PLACE.folder(config) == start
        assert revision.folder(config) == expected


@pytest.mark.entry_point
def test_fresh_processes_load_the_plugins_of_the_run(project: Project) -> None:
    """All of them start like a user's, without the suite server."""
    (project.folder / "extra.py").write_text(
        "def pytest_configure():\n    open('extra.log', 'a').write('loaded\\n')\n"
    )
    words = ["bench_fake.py", "--device=fake", "-p", "extra", "-k", "beta-synthetic"]
    words += ["--baseline-save=main", "--processes=2"]
    command = ("-m", "pytest", *QUIETLY, *words)
    run_alone(project.folder, project.environment, *command).assert_code(0)
    assert (project.folder / "extra.log").read_text() == 2 * "loaded\n"


def run_in(folder: Path, first: Optional[Benchmark] = None, **options: Any) -> Recording:
    """Imitate a run that began in ``images`` of a project."""
    given = {
        **dict.fromkeys(MEASURING_OPTIONS),
        **{"budget": 5.0, "dataset_dir": "data", "case_options": ["size=64", "xla=on"]},
        **{"wait_for_quiet": None, "zero_values": False, "importmode": "prepend", "plugins": []},
        **options,
    }
    config: Any = SimpleNamespace(
        rootpath=folder,
        inipath=folder / "pytest.ini",
        invocation_params=SimpleNamespace(dir=folder / "images", args=["--benchmark-disable-gc"]),
        option=given_options(**given),
        getini=lambda _: [],
        stash={},
        pluginmanager=SimpleNamespace(hasplugin=lambda name: name == given.get("has")),
    )
    results = RunResults(benchmarks={} if first is None else {"a.py::a": first})
    return Recording(config, Selection({}, "cpu"), results=results)


def ours(*words: str) -> List[str]:
    """Return our options in the spelling that no other plugin uses."""
    return [f"--ipubench-{word}" for word in words]


def test_the_command_of_a_fresh_process_measures_like_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_case, "own_arguments", lambda *_: ["--own=1"])
    here, there = tmp_path / "here", tmp_path / "there"
    words: Dict[str, Any] = {"zero_values": True, "importmode": "importlib", "has": CACHE}
    run = run_in(here, plugins=["no:terminal", "extra", "no:unraisableexception"], **words)
    measuring = ["set=size=64", "set=xla=on", "budget=5.0"]
    first = ["-q", "-p", "no:unraisableexception", "-p", "extra"]
    last = ["--benchmark-disable-gc", "--own=1", "-o", "cache_dir=cache"]
    last.append("--import-mode=importlib")
    assert RemoteCase(run, "a.py::a").command(Path("out"), Path("cache")) == [
        *(sys.executable, "-m", "pytest", *first, "-c", f"{here}/pytest.ini"),
        *("-o", "addopts=", f"--rootdir={here}"),
        *ours(*measuring, "dataset-dir=data", "zero-values"),
        *(*last, *ours("sweep", "results-dir=out"), f"{here}/a.py::a"),
    ]
    options = ("case_options", "dataset_dir")  # an older revision has no --budget
    older = Place("python", [], revision=Revision("commit", there), options=options, prefix="--")
    found = RemoteCase(run, "a.py::a", older).command(Path("out"), Path("cache"))
    shared_of(run.config).energy = True  # a gate on it implies --energy
    assert "--ipubench-energy" in RemoteCase(run, "a.py::a").command(Path("out"), Path("cache"))
    assert found == RemoteCase(run, "a.py::a", older).command(Path("out"), Path("cache"))
    assert found[found.index("-q") :] == [
        *(*first, "-o", "addopts=", f"--rootdir={there}"),
        *("--set=size=64", "--set=xla=on", f"--dataset-dir={here}/images/data", "--zero-values"),
        *(*last, "--sweep", "--results-dir=out", f"{there}/a.py::a"),
    ]


def test_a_fresh_process_may_take_long_but_has_a_limit() -> None:
    spent = {"build": 1.0, "compile": 2.0, "rounds": 64.0}
    benchmark = a_benchmark([1.0], spent=spent)
    folder = Path("/")
    assert RemoteCase(run_in(folder), "a.py::a").most_seconds == 600 + 10 * 5
    assert RemoteCase(run_in(folder, wait_for_quiet=120.0), "a.py::a").most_seconds == 770
    assert RemoteCase(run_in(folder, benchmark), "a.py::a").most_seconds == 600 + 10 * (5 + 67)


def test_a_fresh_process_has_the_initial_cpus_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.sched_getaffinity(0)
    program = [sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"]
    monkeypatch.setattr(RemoteCase, "command", lambda *_: program)
    (tmp_path / "images").mkdir()
    run = run_in(tmp_path)
    run.cpus = frozenset([min(before)])
    outcome = RemoteCase(run, "a.py::a").run(tmp_path)
    assert (outcome.code, outcome.lines) == (0, [str({min(before)})])
    assert os.sched_getaffinity(0) == before


def test_a_path_is_relative_to_the_folder_where_it_was_given() -> None:
    words = ["--dataset-dir=a", "--gate-policy=/b", "--dataset-dir", "--set=a=b", "-q"]
    found = remote_case.for_another_folder(words, Path("/here"))
    assert found == ["--dataset-dir=/here/a", *words[1:]]
