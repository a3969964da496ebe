"""Three hosts over ssh: checkouts of the project are measured there, and the results come back."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Iterator, List

import pytest

from tests.fleet.test_local_fleet import outcomes
from tests.support.fleet import hosts_of
from tests.support.harness import Project, run_pytest
from tests.support.ssh_hosts import SshHost, ssh_hosts, why_not

pytest.importorskip("execnet", reason="execnet is not installed: pip install pytest-xdist")

NAMES = ("ipub-a", "ipub-b", "ipub-c")
#: More than a dozen cases, so each host has several.
SWEEP = ("--sweep", "--set=flavour=plain,sweet", "--set=flag=false,true")
FAKE_DEVICE = "env:IPUBENCH_FAKE_COUNT=1"
LEFT_OUT = shutil.ignore_patterns("rack", "results", "leases", "cache")
# Each process records its work on a case, on a clock that all share.
TURNS = """
import os
import time

import pytest


@pytest.mark.parametrize("number", range(4))
def bench_turn(meter, number):
    begins = time.monotonic()
    meter(lambda: sorted(range(1000)))
    with open(f"{os.environ['NOTES']}/turns-{os.getpid()}", "a") as file:
        file.write(f"{begins} {time.monotonic()}\\n")
"""


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[List[SshHost]]:
    missing = why_not()
    if missing:
        pytest.skip(missing)
    with ssh_hosts(tmp_path / "rack", *NAMES) as hosts:
        yield hosts


def hosts_in(project: Project, rack: List[SshHost], more: str = FAKE_DEVICE) -> List[str]:
    """Return the options that name these hosts, after copying the project to each."""
    for host in rack:
        shutil.copytree(project.folder, host.home / "checkout", ignore=LEFT_OUT)
    python = f"python={sys.executable}//ssh_config={rack[0].home.parent / 'ssh_config'}"
    return [
        f"--tx=ssh={host.name}//{python}//chdir={host.home / 'checkout'}//{more}" for host in rack
    ]


def measured_by(project: Project, host: SshHost) -> int:
    """Return how many cases a host measured in the latest run."""
    return list(hosts_of(project).values()).count(host.name)


def test_killing_one_host_of_a_rack_loses_nothing(project: Project, rack: List[SshHost]) -> None:
    wanted = 32
    words = (*SWEEP, *hosts_in(project, rack))
    victim = rack[1]

    def strike() -> None:
        until = time.monotonic() + 60
        while not project.journals() or measured_by(project, victim) < 2:
            assert time.monotonic() < until
            time.sleep(0.02)
        victim.kill()

    killer = threading.Thread(target=strike)
    killer.start()
    outcome = project.run(*words).assert_code(0)
    killer.join()
    outcome.line(f"{victim.name} was lost during the run: ")
    for host in rack:
        outcome.line(f"  {host.name}: fake device ({host.name})")
        assert measured_by(project, host) > 0
    found = outcomes(project)
    assert len(found) >= wanted and set(found.values()) == {"passed"}
    assert len(hosts_of(project)) == len(found)


def test_cpu_cases_on_a_rack_alternate(project: Project, rack: List[SshHost]) -> None:
    """Two names of one machine: one case at a time uses its processors."""
    (project.folder / "bench_turns.py").write_text(TURNS)
    # Not every test needs to measure this machine's peaks.
    more = f"env:NOTES={project.folder}//env:IPUBENCH_CACHE_DIR={os.environ['IPUBENCH_CACHE_DIR']}"
    words = ["bench_turns.py", "--device=cpu", "--budget=0.05"]
    words += hosts_in(project, rack[:2], more)
    run_pytest(project.folder, project.environment, *words).assert_code(0).line("4 passed")
    notes = [path.read_text() for path in project.folder.glob("turns-*")]
    assert len(notes) == 2  # one per host
    turns = sorted(tuple(map(float, line.split())) for note in notes for line in note.splitlines())
    assert len(turns) == 4
    assert all(ended <= begins for (_, ended), (begins, _) in zip(turns, turns[1:]))
