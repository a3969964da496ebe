"""`-n N` on a shared host: only one worker at a time runs a case and its fresh processes."""

from __future__ import annotations

import itertools
import json
from typing import Dict, List, Tuple

import pytest

from tests.support.harness import Project

pytest.importorskip("xdist", reason="pytest-xdist is not installed: pip install pytest-xdist")

# Every part of a case records its start and end on a clock that all processes share. Building takes
# real time, so two workers' cases would overlap without the lock.
NOTED = """
import functools
import time


def noted(method):
    @functools.wraps(method)
    def timed(*args, **kwargs):
        start = time.monotonic_ns()
        result = method(*args, **kwargs)
        with open(f"intervals-{os.getpid()}", "a") as file:
            file.write(f"[{start}, {time.monotonic_ns()}]\\n")
        return result

    return timed


def build(step):
    time.sleep(0.15)
    return building(step)


building = FakeStep.build
FakeStep.__init__ = noted(FakeStep.__init__)
FakeStep.build = noted(build)
FakeStep.compile = noted(FakeStep.compile)
FakeStep.__call__ = noted(FakeStep.__call__)

"""

# A case continues when a case of the other worker has begun as well.
MEET = """
import time


def meet(step):
    open(f"building-{os.getpid()}", "w").close()
    deadline = time.monotonic() + 60
    while len([name for name in os.listdir(".") if name.startswith("building-")]) < 2:
        assert time.monotonic() < deadline, "no other worker runs a case"
        time.sleep(0.01)
    return building(step)


building = FakeStep.build
FakeStep.build = meet

"""


def insert(project: Project, helpers: str) -> None:
    """Insert code into the bench file before its first configuration."""
    bench = project.folder / "bench_fake.py"
    bench.write_text(bench.read_text().replace("\n@dataclass", helpers + "\n@dataclass", 1))


def intervals(project: Project) -> Dict[str, List[Tuple[int, int]]]:
    """Return (start, end) for each process, by the name of its file."""
    return {
        path.name: [tuple(json.loads(line)) for line in path.read_text().splitlines()]
        for path in project.folder.glob("intervals-*")
    }


def test_no_two_processes_of_a_run_work_on_cases_at_the_same_time(project: Project) -> None:
    insert(project, NOTED)
    words = ("-k", "beta", "--steps=20", "--baseline-save=main", "--processes=2")
    project.run(*words, "-n", "2").assert_code(0)
    found = intervals(project)
    assert len(found) == 2 + 2  # both workers, and a fresh process of each case
    for one, two in itertools.combinations(found.values(), 2):
        for (start, end), (begin, finish) in itertools.product(one, two):
            assert finish <= start or end <= begin


def test_workers_with_separate_devices_run_cases_in_parallel(project: Project) -> None:
    insert(project, MEET)
    two = {"IPUBENCH_FAKE_COUNT": "2"}
    project.run("-k", "beta", "-n", "2", env=two).assert_code(0)
