"""The programs that start instances on a host: the suite's own, and the stand-in for mpirun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import List

import pytest

from ipubench.fixtures.instances.plan import PROGRAM
from tests.machine.test_process import runs, wait_until_gone
from tests.support.harness import Project
from tests.support.instances import notes_of, record_of, run, with_instances

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2,
    reason="needs Linux and two cores that this process may use",
)

# --- the program -----------------------------------------------------------------------------


def start(code: str, count: int = 2) -> subprocess.Popen[str]:
    """Start a Python program several times; each process has its number in `rank`."""
    program = f"import os, sys, time; rank = int(os.environ['IPUBENCH_INSTANCE_RANK'])\n{code}"
    return subprocess.Popen(
        [sys.executable, "-I", str(PROGRAM), "-n", str(count), sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
    )


def started(launcher: subprocess.Popen[str]) -> List[int]:
    """Wait for the started processes and return them."""
    assert launcher.stdout is not None
    word, *pids = launcher.stdout.readline().split()
    assert word == "started"
    return [int(pid) for pid in pids]


def test_each_process_gets_its_number() -> None:
    launcher = start("os.write(1, b'%d\\n' % rank)", 3)
    *numbers, begun = sorted(launcher.communicate()[0].splitlines())
    assert numbers == ["0", "1", "2"]
    word, *pids = begun.split()
    assert word == "started" and len(set(pids)) == 3
    assert launcher.returncode == 0


@pytest.mark.parametrize(
    ("last_act", "code", "how"),
    [
        ("os.kill(os.getpid(), 9)", 137, "was ended by signal 9"),
        ("sys.exit(5)", 5, "ended with exit code 5"),
    ],
)
def test_a_failed_process_ends_the_others_and_is_named(last_act: str, code: int, how: str) -> None:
    launcher = start(f"if rank == 1: {last_act}\ntime.sleep(100)")
    pids = started(launcher)
    assert launcher.communicate(timeout=30)[0] == f"instance 2, process {pids[1]}, {how}\n"
    assert launcher.returncode == code
    assert not any(map(runs, pids))


def test_a_successful_process_leaves_the_others_alone() -> None:
    launcher = start("if rank == 0: sys.exit()\ntime.sleep(0.5); os.write(1, b'done')")
    started(launcher)
    assert launcher.communicate(timeout=30)[0] == "done"


def test_sigterm_reaches_all() -> None:
    launcher = start("time.sleep(100)")
    pids = started(launcher)
    launcher.send_signal(signal.SIGTERM)
    launcher.communicate(timeout=30)
    wait_until_gone(pids)


#: The program, with an event when it starts the process of a certain number.
WHILE_STARTING = """\
import os, signal, sys
sys.path.insert(0, {folder!r})
import processes
start = processes.started
def started(command, rank):
    {what}
    pid = start(command, rank)
    print("began", pid, flush=True)
    return pid
processes.started = started
sys.exit(processes.main(["-n", "2", *sys.argv[1:]]))
"""


def while_starting(what: str, *command: str) -> subprocess.CompletedProcess[str]:
    program = WHILE_STARTING.format(folder=str(PROGRAM.parent), what=what)
    words = [sys.executable, "-I", "-S", "-c", program, *command]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=30, check=False)


def test_an_early_sigterm_reaches_all() -> None:
    found = while_starting("rank or os.kill(os.getpid(), signal.SIGTERM)", "sleep", "60")
    assert found.returncode == 128 + signal.SIGTERM
    first, second = (int(line.split()[1]) for line in found.stdout.splitlines()[:2])
    assert not runs(first) and not runs(second)


def test_if_one_cannot_be_started_the_earlier_ones_end() -> None:
    found = while_starting("rank and open('/nowhere')", "sleep", "60")
    began, why = found.stdout.splitlines()
    assert found.returncode == 1 and why.startswith("/nowhere ")
    wait_until_gone([int(began.split()[1])])


# --- mpirun ----------------------------------------------------------------------------------


def test_mpirun_starts_the_instances(project: Project) -> None:
    together = with_instances(project, "mpirun")
    run(together, "--steps=2", "--batches-per-step=1").assert_code(0)
    facts = record_of(together)["effective"]["instances"]
    assert facts["launcher"] == "mpirun"
    notes = notes_of(together)
    assert [note["affinity"] for note in notes] == facts["cores"]
    assert [note["threads"] for note in notes] == [len(share) for share in facts["cores"]]
