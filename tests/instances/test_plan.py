"""Planning the processes of a case, and their connection to the controller."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.instances.hosts import poprun_arguments
from ipubench.fixtures.instances.plan import (
    CHOICE_VARIABLE,
    PROGRAM,
    host_launcher,
    instances_of,
    ipus_per_replica,
    own_share,
    plan,
    poprun,
    rank,
    shares,
)
from ipubench.fixtures.machine.processor import bind_threads

# --- cores -----------------------------------------------------------------------------------


def siblings(folder: Path, cores: Tuple[Tuple[int, ...], ...]) -> Path:
    """Write the kernel's files of the hardware threads of each core."""
    for core in cores:
        for cpu in core:
            path = folder / f"cpu{cpu}" / "topology" / "thread_siblings_list"
            path.parent.mkdir(parents=True)
            path.write_text(",".join(map(str, core)) + "\n")
    return folder


@pytest.mark.parametrize(
    ("cpus", "count", "expected"),
    [
        ((0, 1), 4, [[0], [1]]),
        ((0, 1, 2, 3, 4), 2, [[0, 1], [2, 3]]),
        ((3, 7, 5), 1, [[3, 5, 7]]),
    ],
)
def test_shares_are_equal_and_contiguous(
    tmp_path: Path, cpus: Tuple[int, ...], count: int, expected: List[List[int]]
) -> None:
    assert shares(cpus, count, tmp_path) == expected


def test_the_threads_of_a_core_stay_together(tmp_path: Path) -> None:
    system = siblings(tmp_path, ((0, 4), (1, 5), (2, 6), (3, 7)))
    assert shares(range(8), 2, system) == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert shares(range(8), 8, system) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    # For a run that is bound to one thread of each core.
    assert shares(range(4), 4, system) == [[0], [1], [2], [3]]


@given(st.sets(st.integers(0, 300), min_size=1), st.integers(1, 40))
def test_shares_are_disjoint_and_as_many_as_possible(cpus: Any, count: int) -> None:
    found = shares(cpus, count, Path("/nowhere"))
    assert len(found) == min(count, len(cpus))
    assert len({len(share) for share in found}) == 1
    together = [cpu for share in found for cpu in share]
    assert together == sorted(set(together)) and set(together) <= set(cpus)
    assert len(cpus) - len(together) < len(found)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux: run it there")
def test_all_threads_of_a_process_move_to_its_cores() -> None:
    before = os.sched_getaffinity(0)
    cpu = min(before)
    try:
        bind_threads([cpu])
        assert {
            frozenset(os.sched_getaffinity(int(task))) for task in os.listdir("/proc/self/task")
        } == {frozenset({cpu})}
    finally:
        bind_threads(before)


# --- launchers -------------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts programs on an otherwise empty PATH, with none next to this Python."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "elsewhere" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(CHOICE_VARIABLE, raising=False)

    def install(*names: str) -> Path:
        for name in names:
            (tmp_path / name).write_text("#!/bin/sh\n")
            (tmp_path / name).chmod(0o755)
        return tmp_path

    return install


def test_our_own_launcher_is_used_whatever_is_installed(installed: Any) -> None:
    installed("torchrun", "mpirun")
    found = host_launcher(3)
    assert found.name == "processes"
    assert found.arguments == (sys.executable, "-I", str(PROGRAM), "-n", "3")


def test_mpirun_is_used_on_request(installed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CHOICE_VARIABLE, "mpirun")
    with pytest.raises(CaseError, match="IPUBENCH_LAUNCHER=mpirun"):
        host_launcher(2)
    folder = installed("mpirun")
    assert host_launcher(3).arguments == (str(folder / "mpirun"), "-n", "3")
    elsewhere = plan(config(), "cpu", {1000}, ["--host", "a,b"])
    assert elsewhere.launcher.hosts == ("a", "b")
    # Each host shares its own cores, however many this one has.
    assert (elsewhere.ran, elsewhere.cores, elsewhere.takes_share) == (4, (), True)
    assert not elsewhere.one_job
    with pytest.raises(CaseError, match="--launcher-args"):  # replicas stay on one host
        plan(config(data_parallel=True), "cpu", (0, 1), ["--host", "a"])


def test_an_unusable_launcher_is_refused(installed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CaseError, match="--launcher-args.*IPUBENCH_LAUNCHER=mpirun"):
        host_launcher(2, ["--host", "a"])  # ours takes no arguments
    installed("torchrun")  # which executes data from anyone
    monkeypatch.setenv(CHOICE_VARIABLE, "torchrun")
    with pytest.raises(CaseError, match="IPUBENCH_LAUNCHER=torchrun"):
        host_launcher(2)


def test_poprun_gets_the_options_of_the_published_commands(installed: Any) -> None:
    found = poprun(4, 4, 4)
    assert found.arguments == (
        *("poprun", "--numa-aware=yes", "--num-replicas=4", "--num-instances=4"),
        "--ipus-per-replica=4",
        *poprun_arguments([], os.environ),
    )
    with pytest.raises(CaseError, match="poprun .* PATH"):
        found.check()
    with pytest.raises(CaseError, match="--device-id=1: poprun "):
        plan(config(), "ipu", {0}, device_id=1)
    with pytest.raises(CaseError, match="replicas=6 .* instances=4: .*=8"):
        poprun(4, 6, 1)


@pytest.mark.parametrize(
    ("launcher", "environ", "expected"),
    [
        ("processes", {"IPUBENCH_INSTANCE_RANK": "3", "OMPI_COMM_WORLD_RANK": "1"}, 3),
        ("mpirun", {"IPUBENCH_INSTANCE_RANK": "3", "OMPI_COMM_WORLD_RANK": "1"}, 1),
        ("mpirun", {"PMI_RANK": "2"}, 2),
        ("mpirun", {"RANK": "3"}, None),
        ("", {"RANK": "3"}, None),
    ],
)
def test_the_rank_comes_from_the_launcher(
    launcher: str, environ: Dict[str, str], expected: Any
) -> None:
    assert rank(launcher, environ) == expected


# --- plans -----------------------------------------------------------------------------------


def config(**options: Any) -> Any:
    return SimpleNamespace(**{"instances": 4, "replicas": 1, **options})


@pytest.fixture
def quota(monkeypatch: pytest.MonkeyPatch) -> Callable[[Optional[float]], None]:
    """Limits this process's group to this many CPUs; None is unlimited."""

    def give(cpus: Optional[float]) -> None:
        monkeypatch.setattr("ipubench.fixtures.instances.plan.quota", lambda: cpus)

    give(None)
    return give


@pytest.mark.usefixtures("quota")
def test_a_host_runs_as_many_instances_as_it_has_cores() -> None:
    found = plan(config(), "cpu", {1000, 1001, 1002})
    assert (found.requested, found.ran, found.one_job) == (4, 3, False)
    assert found.launcher.arguments[-2:] == ("-n", "3")
    assert found.describe() == {
        "asked": 4,
        "ran": 3,
        "launcher": "processes",
        "cores": [[1000], [1001], [1002]],
    }


@pytest.mark.parametrize(
    ("cpus", "cores"), [(0.5, [[1000]]), (1.5, [[1000], [1001]]), (9.0, [[1000], [1001], [1002]])]
)
def test_a_quota_limits_the_cores_of_all_instances(
    cpus: float, cores: List[List[int]], quota: Callable[[Optional[float]], None]
) -> None:
    quota(cpus)
    assert plan(config(), "cpu", {1000, 1001, 1002}).describe()["cores"] == cores
    only = {"OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
    assert own_share(only, {1000, 1001, 1002}) == [core for share in cores for core in share]


@pytest.mark.usefixtures("quota")
def test_replicas_that_train_together_are_one_job_on_a_host() -> None:
    together = config(processes=2, data_parallel=True)
    found = plan(together, "cpu", {1000, 1001, 1002})
    assert (found.requested, found.ran, found.one_job, found.exchanges) == (2, 2, True, True)
    with pytest.raises(CaseError, match="replicas=2 .*--set=replicas=1"):
        plan(together, "cpu", {1000})


def test_an_ipu_shares_the_replicas_of_one_job() -> None:
    found = plan(config(replicas=8, shards=2), "ipu", {0})
    assert (found.requested, found.ran, found.cores, found.one_job) == (4, 4, (), True)
    assert not found.exchanges  # IPUs do it in hardware
    assert found.launcher.arguments[2:5] == (
        *("--num-replicas=8", "--num-instances=4", "--ipus-per-replica=2"),
    )
    assert found.describe() == {"asked": 4, "ran": 4, "launcher": "poprun"}


def test_the_emulator_has_no_instances() -> None:
    with pytest.raises(CaseError, match="instances=4 .*--set=instances=1"):
        plan(config(), "ipu-model", {0, 1})


def test_ipus_of_a_replica_are_its_shards_or_stages() -> None:
    assert ipus_per_replica(config(shards=4, pipeline_splits=("a",))) == 4
    assert ipus_per_replica(config(pipeline_splits=("a", "b", "c"))) == 4
    assert ipus_per_replica(config()) == 1
    assert instances_of(SimpleNamespace()) == 1
