"""`--dry-run` prints the commands of cases. It runs nothing and needs no device."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

from ipubench.plugins.listing import dry_run
from tests.support.harness import WITHOUT_OTHERS, Outcome, Project, listed
from tests.support.instances import WORDS, record_of, with_instances

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: run it there")


@pytest.fixture
def together(project: Project) -> Project:
    """A project with the case of several processes and a launcher."""
    return with_instances(project)


def dry_run_of(together: Project, *words: str) -> Outcome:
    return listed(together.folder, together.environment, *WORDS, "--dry-run", *words)


def commands(text: str) -> List[str]:
    """Join the printed lines of commands as a shell does."""
    lines = text.replace(" \\\n", " ").splitlines()
    return [" ".join(line.split()) for line in lines if "pytest " in line and "==" not in line]


def test_a_dry_run_shows_poprun_without_an_ipu(together: Project) -> None:
    answer = dry_run_of(together, "--device=ipu").assert_code(0)
    typed, launched = commands(answer.text)
    case = "bench_together.py::bench_together[hash-pod16-synthetic]"
    assert typed.endswith(f" '{case}' --device=cpu --device=ipu")
    assert launched.startswith(
        "poprun --numa-aware=yes --num-replicas=4 --num-instances=4 --ipus-per-replica=4 "
        "'--mpi-local-args=-x "
    )
    assert f"' {sys.executable} -m pytest " in launched
    assert launched.endswith(f"'{together.folder / case}' -s --ipubench-instance=SOCKET")
    assert any(" 4 instances " in line for line in answer.lines)
    assert not together.journals()
    assert not (together.folder / "leases").exists()


def test_a_dry_run_shows_poprun_on_several_hosts(together: Project) -> None:
    variable = "-x A_TOKEN=hunter2hunter2"
    words = f"--launcher-args={variable} --host=localhost,127.0.0.1 --vipu-partition=pod64"
    answer = dry_run_of(together, "--device=ipu", words).assert_code(0)
    _, launched = commands(answer.text)
    given = "-x 'A_TOKEN=***' --host=localhost,127.0.0.1 --vipu-partition=pod64 "
    assert "hunter2" not in answer.text
    assert f" {given}'--mpi-local-args=-x " in launched
    assert "-x IPUBENCH_INSTANCE_TOKEN -x " in launched
    answer = dry_run_of(together, "--device=ipu", "--launcher-args=-H gone.invalid")
    assert re.search(r"run: --launcher-args: .*gone\.invalid", answer.text)


def test_a_fresh_process_of_one_case_takes_what_is_for_others(together: Project) -> None:
    together.environment["IPUBENCH_LEASE_HOLDER"] = "1"
    words = ("--set=instances=1", "--launcher-args=-H a")
    (typed,) = commands(dry_run_of(together, *words).assert_code(0).text)
    assert "--launcher-args" not in typed


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--launcher-args=-H 'a"], "--launcher-args: "),
        (["--launcher-args=--hostfile gone"], "--launcher-args: "),
        (["--launcher-args=-H a", "--set=instances=1"], "--launcher-args"),
        (["--launcher-args=-H a", "--profile=here"], "--profile: "),
        (["--launcher-args=-H a", "--against=git:HEAD"], "--against=git:REV: "),
        (["--launcher-args=-H a", "--tx=ssh=a"], "--launcher-args with several hosts: "),
    ],
)
def test_invalid_launcher_arguments(together: Project, words: List[str], option: str) -> None:
    assert option in dry_run_of(together, *words).assert_code(4).text


@pytest.mark.slow
def test_the_command_of_a_dry_run_works_when_typed(together: Project) -> None:
    brief = ("--steps=2", "--batches-per-step=1", "--set=instances=1")
    answer = dry_run_of(together, *brief, "--set", "batch_size=3").assert_code(0)
    (typed,) = commands(answer.text)
    typed_run = subprocess.run(
        ["sh", "-c", typed],
        cwd=str(together.folder),
        env={**together.environment, "PYTEST_ADDOPTS": " ".join(WITHOUT_OTHERS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert typed_run.returncode == 0, typed_run.stdout.decode()
    record = record_of(together)
    assert record["config"]["batch_size"] == 3
    assert record["rounds"]["count"] == 2


@pytest.mark.entry_point
def test_a_dry_run_shows_a_case_of_one_process_and_a_sweep_point(project: Project) -> None:
    project.add_to_conftest("def pytest_addoption(parser):\n    parser.addoption('--size')\n")
    words = ("--sweep", "-k", "alpha and bs4 and synthetic", "--size", "5", "-o", "log_level=ERROR")
    finding = ("-o", "addopts=--tb=no", "-p", "no:faulthandler", "--rootdir=.", "--profile=traces")
    answer = project.run("--dry-run", *words, *finding).assert_code(0)
    (typed,) = commands(answer.text)
    case = "bench_fake.py::bench_fake[alpha-bs4-synthetic]"
    given = "--size 5 -o log_level=ERROR -o addopts=--tb=no"
    leading = "-p no:faulthandler --rootdir=."
    assert "-m pytest -p " in typed
    assert typed.endswith(f" {leading} '{case}' --device=fake --profile=traces {given} --sweep")
    assert "which starts" not in answer.text


def test_an_inactive_virtual_environment_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "one" / "python"))
    for folder, typed in (("one", "python"), ("other", sys.executable), ("none", sys.executable)):
        monkeypatch.setenv("PATH", str(tmp_path / folder))
        assert dry_run.python() == typed


def test_no_line_of_a_command_is_wider_than_a_terminal() -> None:
    assert dry_run.wrapped([40 * "a", 37 * "b", "c"]) == [f"{40 * 'a'} {37 * 'b'} \\", "  c"]
    assert dry_run.wrapped([40 * "a", 38 * "b", "c"]) == [f"{40 * 'a'} \\", f"  {38 * 'b'} c"]


def test_fewer_instances_than_requested_are_shown(together: Project) -> None:
    asked = len(os.sched_getaffinity(0)) + 7
    answer = dry_run_of(together, f"--set=instances={asked}").assert_code(0)
    assert f" of {asked} instances, " in answer.text
    _, launched = commands(answer.text)
    assert launched.endswith(" -s --ipubench-instance=SOCKET")


def test_a_dry_run_reports_cases_that_cannot_run_and_shows_the_others(together: Project) -> None:
    words = ("--device=ipu", "--set=shards=0,2", "--set=replicas=3,4")
    answer = dry_run_of(together, *words).assert_code(0)
    assert "  cannot run: replicas=3 " in answer.text
    assert "-shards4-invalid\n  cannot run: --set=shards=0: " in answer.text
    launched = [line for line in commands(answer.text) if line.startswith("poprun ")]
    assert len(launched) == 1 and "--ipus-per-replica=2 " in launched[0]
