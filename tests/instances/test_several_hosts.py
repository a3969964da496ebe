"""Instances on several hosts, with a real Open MPI over real SSH."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Iterator, List

import pytest

from tests.machine.test_process import wait_until_gone
from tests.support.harness import ROOT, Project, holding
from tests.support.instances import notes_of, record_of, run, with_instances
from tests.support.ssh_hosts import SshHost, ssh_hosts, why_not

MPIRUN = shutil.which("mpirun")
BRIEF = ("--steps=2", "--batches-per-step=1")


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[List[SshHost]]:
    missing = why_not()
    if MPIRUN is None:
        missing = "needs Open MPI: apt-get install openmpi-bin"
    if missing:
        pytest.skip(missing)
    with ssh_hosts(tmp_path_factory.mktemp("several") / "rack", "ipub-x", "ipub-y") as hosts:
        yield hosts


@pytest.fixture
def together(project: Project, rack: List[SshHost]) -> Project:
    """A project whose instances are started by a real mpirun, not by the stand-in."""
    with_instances(project)
    assert MPIRUN is not None
    project.environment.update(
        IPUBENCH_LAUNCHER="mpirun",
        PATH=f"{Path(MPIRUN).parent}{os.pathsep}{os.environ['PATH']}",
        PYTHONPATH=str(ROOT),
    )
    return project


def on(hosts: List[SshHost], slots: int = 1) -> str:
    """Return the option that names the hosts."""
    names = ",".join(f"{host.address}:{slots}" for host in hosts)
    config = hosts[0].home.parent / "ssh_config"
    return f"--launcher-args=--host {names} --mca plm_rsh_args '-F {config}' -x TOGETHER"


def test_a_case_runs_on_both_hosts_at_once(together: Project, rack: List[SshHost]) -> None:
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        pytest.skip("needs two cores, for two instances of each host")
    run(together, *BRIEF, "--set=instances=4", on(rack, 2)).assert_code(0)
    record = record_of(together)
    batches = record["rounds"]["batches_per_step"]
    assert record["items_per_round"] == 4 * 8 * batches
    facts = record["effective"]["instances"]
    places = facts.pop("places")
    assert facts == {"asked": 4, "ran": 4, "launcher": "mpirun"}
    counted = record["counters"]["instances"]
    assert sorted(one["host"] for one in counted) == [*["ipub-x"] * 2, *["ipub-y"] * 2]
    notes = {note["pid"]: note for note in notes_of(together)}
    for name in ("ipub-x", "ipub-y"):
        one, other = [notes[found["pid"]] for found in counted if found["host"] == name]
        # Each host's instances share its cores.
        assert not set(one["affinity"]) & set(other["affinity"])
        theirs = [place["cores"] for place in places if place["host"] == name]
        assert sorted(theirs) == sorted([one["affinity"], other["affinity"]])
        assert one["threads"] == other["threads"] == len(one["affinity"]) == cores // 2
    calls = [note["calls"] for note in notes.values()]
    for before, after in zip(zip(*calls), list(zip(*calls))[1:]):
        assert min(start for start, _ in after) >= max(end for _, end in before)
    assert not (together.folder / "results" / "instances").exists()


def test_an_instance_that_dies_on_another_host_is_named(
    together: Project, rack: List[SshHost]
) -> None:
    words = ("--set=trouble=kill", "--batches-per-step=1")
    answer = run(together, *words, on(rack)).assert_code(1)
    line = answer.line("instance 2 of 2 (process ")
    assert f" on {rack[1].address}) " in line and "SIGKILL" in line
    assert "/instance-2.log" in line
    wait_until_gone([int(line.split("(process ")[1].split()[0])])


def test_each_host_holds_its_own_device(together: Project, rack: List[SshHost]) -> None:
    """Another run holds the CPU of one host; the case waits for it as on one host."""
    leases = rack[1].home / "leases"
    leases.mkdir(exist_ok=True)
    environment = {**os.environ, "IPUBENCH_LEASE_DIR": str(leases), "PYTHONPATH": str(ROOT)}
    with holding("cpu", environment) as other:
        answer = run(together, *BRIEF, "--device-timeout=0.3s", on(rack)).assert_code(1)
        line = answer.line("instance 2 of 2 (process ")
        assert f" on {rack[1].address}): " in line
        assert f" process {other} " in line
