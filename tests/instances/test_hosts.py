"""Launchers and several hosts: their arguments, and the address on which the run listens."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import List, Tuple

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.instances.hosts import (
    listening_address,
    mpirun_arguments,
    named_hosts,
    place_on_host,
    poprun_arguments,
)
from ipubench.fixtures.instances.plan import own_share

ENVIRON = {"PATH": "/bin", "TF_POPLAR_FLAGS": "x", "PYTEST_ADDOPTS": "-v", "SECRET": "s"}
ENVIRON["IPUBENCH_LEASE_DIR"] = "/leases"
PODS = ("pod09-ipu1", "pod09-ipu3", "pod10-ipu1", "pod10-ipu3")
#: The part of ENVIRON for an instance, and its credentials.
EXPORTS = "-x IPUBENCH_INSTANCE_LAUNCHER -x IPUBENCH_INSTANCE_TOKEN -x PATH -x TF_POPLAR_FLAGS"


@pytest.mark.parametrize(
    ("words", "hosts"),
    [
        ("", ()),
        ("--mca btl tcp", ()),
        ("--host a,b", ("a", "b")),
        ("-H a:2,b:2,a", ("a", "b")),
        ("--host=10.0.0.1,10.0.0.2 --vipu-partition=pod64", ("10.0.0.1", "10.0.0.2")),
        ("-hosts a,b", ("a", "b")),
        ("--host=ipu[0-2,4]", ("ipu0", "ipu1", "ipu2", "ipu4")),
        ("--host a:2,pod[09-10]-ipu[1,3]:4,b", ("a", *PODS, "b")),
        ("--verbose --host", ()),
    ],
)
def test_hosts_are_read_from_launcher_arguments(words: str, hosts: Tuple[str, ...]) -> None:
    assert named_hosts(words.split()) == hosts


@pytest.mark.parametrize("ranges", ["2-0", "1-", "-", "0-1-2", ","])
def test_a_range_of_hosts_that_is_none_is_named(ranges: str) -> None:
    with pytest.raises(CaseError, match=f"--launcher-args: ipu.{ranges}]: "):
        named_hosts([f"--host=ipu[{ranges}]"])


@pytest.mark.parametrize(
    "name", ["POPXL_CACHE_DIR", "PVTI_OPTIONS", "POPDIST_EXECUTABLE_CACHE_PATH", "POPLAR_LOG_LEVEL"]
)
def test_the_variables_of_the_sdk_reach_other_hosts(name: str) -> None:
    (words,) = poprun_arguments([], {name: "1"})
    assert f" -x {name}" in words


def test_hosts_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# the rack\na slots=2\n  b:2 # the last\n\t\na#\n")
    assert named_hosts(["--hostfile", str(path)]) == ("a", "b")
    for gone in (str(tmp_path / "gone"), "~no-such-user/h"):
        with pytest.raises(CaseError, match=f"--launcher-args: --hostfile {gone}"):
            named_hosts(["--hostfile", gone])


def test_a_run_on_this_host_listens_on_loopback() -> None:
    assert listening_address(()) == ""
    # Debian's hosts file has 127.0.1.1 for the machine's own name.
    assert listening_address(["localhost", "127.0.0.1", "127.0.1.1"]) == ""


def test_a_run_on_other_hosts_listens_on_their_network(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: List[str] = []

    class Probe(socket.socket):
        def bind(self, address: Tuple[str, int]) -> None:  # type: ignore[override]
            if address[0] != "10.0.0.1":
                raise OSError("Cannot assign requested address")

        def connect(self, address: Tuple[str, int]) -> None:  # type: ignore[override]
            asked.append(address[0])
            if address[0] == "10.0.0.3":
                raise OSError("Network is unreachable")

        def getsockname(self) -> Tuple[str, int]:
            return "10.0.0.1", 0

    monkeypatch.setattr(socket, "socket", Probe)
    assert listening_address(["10.0.0.1", "10.0.0.2"]) == "10.0.0.1"
    assert asked == ["10.0.0.2"]
    with pytest.raises(CaseError, match=r"10\.0\.0\.3"):
        listening_address(["10.0.0.3"])


@pytest.mark.parametrize("name", ["no-such-host.invalid", "10.0.0..2"])
def test_a_host_without_address_is_named(name: str) -> None:
    with pytest.raises(CaseError, match=name):
        listening_address([name])


@pytest.mark.parametrize(
    ("version", "more"),
    [("mpirun (Open MPI) 4.1.4", EXPORTS), ("HYDRA build details:", "")],
)
def test_open_mpi_gets_the_variables_to_forward(tmp_path: Path, version: str, more: str) -> None:
    program = tmp_path / "mpirun"
    program.write_text(f"#!/bin/sh\necho '{version}'\n")
    program.chmod(0o755)
    words = mpirun_arguments(str(program), ["--host", "a"], ENVIRON)
    assert " ".join(words) == f"--host a {more}".strip()
    program.unlink()
    with pytest.raises(CaseError, match="mpirun --version"):
        mpirun_arguments(str(program), ["--host", "a"], ENVIRON)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--host=a"], ["--host=a", f"--mpi-local-args={EXPORTS}"]),
        (["--mpi-local-args=-x FOO"], [f"--mpi-local-args=-x FOO {EXPORTS}"]),
        (["--mpi-local-args", "-x FOO", "-v"], ["-v", f"--mpi-local-args=-x FOO {EXPORTS}"]),
        # The user's values stay: Open MPI takes the last one, or refuses two.
        (
            ["--mpi-local-args=-x PATH=/opt/bin"],
            ["--mpi-local-args=-x PATH=/opt/bin " + EXPORTS.replace(" -x PATH", "")],
        ),
    ],
)
def test_poprun_gets_the_variables_to_forward_once(words: List[str], expected: List[str]) -> None:
    assert poprun_arguments(words, ENVIRON) == expected


def test_an_instance_takes_its_share_of_its_hosts_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipubench.fixtures.instances.plan.quota", lambda: None)
    second = {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    assert place_on_host(second) == (1, 2)
    assert place_on_host({"MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "3"}) == (0, 3)
    assert place_on_host({"MPI_LOCALRANKID": "0"}) is None
    assert own_share(second, (0, 1)) == [1]
    with pytest.raises(CaseError, match="2 instances"):
        own_share(second, (0,))
    with pytest.raises(CaseError, match="does not report"):
        own_share({}, (0, 1))
