"""CPU time taken by others, with a made-up /proc and with this machine's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict

import pytest

from ipubench.fixtures.machine.contention import Contention, Reading, between, per_interval

BURN = "while True: pass"
# Its parent exits at once, so the busy process is not our descendant.
ORPHAN = f"""\
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {BURN!r}], stdout=subprocess.DEVNULL)
print(child.pid)
"""


def reading(at: float, **counters: float) -> Reading:
    found = dict.fromkeys(("used", "beside", "stolen", "ours", "waited", "throttled"), 0.0)
    return Reading(at, **{**found, **counters})


@pytest.mark.parametrize(
    ("seconds", "counters", "lost"),
    [
        (1.0, {"used": 2.0, "ours": 2.0, "waited": 2.0}, 0.0),  # our threads wait for each other
        (1.0, {"used": 2.0, "ours": 1.0}, 0.0),  # others run, and we do not wait
        (2.0, {"used": 4.0, "ours": 3.0, "waited": 0.8, "stolen": 0.1}, 0.4 + 0.05),
        (2.0, {"used": 4.0, "ours": 3.5, "waited": 0.8}, 0.25),  # no more than others used
        (2.0, {"used": 2.0, "ours": 2.0, "beside": 1.0}, 0.5),  # on our core's other thread
        (1.0, {"throttled": 0.5}, 0.0),  # a quota is no loss, but counts as waiting
        (1.0, {"used": 1.5, "ours": 0.5, "waited": 0.5, "throttled": 0.4}, 0.1),
    ],
)
def test_cpu_time_taken_by_others(seconds: float, counters: Dict[str, float], lost: float) -> None:
    assert between(reading(0.0), reading(seconds, **counters)).lost == pytest.approx(lost)


def test_ticks_are_averaged_over_short_intervals_and_waiting_is_exact() -> None:
    # Each interval lasts a tenth of a second; all ticks of the others fall into one.
    readings = [
        reading(k / 10, used=0.5 if k > 5 else 0.0, waited=0.05 if k > 7 else 0.0)
        for k in range(12)
    ]
    found = per_interval(readings)
    assert len(found) == 11
    assert [taken.lost > 0.1 for taken in found] == [k == 7 for k in range(11)]
    assert all(taken.by_others > 0.4 for taken in found)


def test_few_short_intervals_are_averaged_over_all_of_them() -> None:
    found = per_interval([reading(0.0), reading(0.1), reading(0.2, used=0.1)])
    assert [taken.by_others for taken in found] == pytest.approx([0.5, 0.5])
    assert per_interval([]) == per_interval([reading(0.0)]) == []


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc with this process, two threads and one child."""
    me, child = str(os.getpid()), "4194305"
    (tmp_path / "stat").write_text(
        "cpu  1000 10 100 5000 0 50 60 70 0 0\ncpu0 1000 10 100 5000 0 50 60 70 0 0\nintr 1\n"
    )
    for pid, thread, children, schedstat in (
        (me, me, "", "5 2000000000 1"),
        (me, "1000000001", child, "5 1000000000 1"),
        (child, child, "", "5 500000000 1"),
    ):
        folder = tmp_path / pid / "task" / thread
        folder.mkdir(parents=True)
        (folder / "children").write_text(children)
        (folder / "schedstat").write_text(schedstat)
    name = "a (strange) name"
    fields = ["S", *["0"] * 10, "300", "100", "40", "60", *["0"] * 20]
    (tmp_path / child / "stat").write_text(f"{child} ({name}) {' '.join(fields)}\n")
    (tmp_path / "self").symlink_to(me)
    return tmp_path


def test_all_our_threads_and_children_count(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    contention = Contention(proc, cgroup=proc)
    assert contention.available
    first = contention.read()
    assert (first.used, first.stolen) == (11.10, 0.70)  # user, nice and system; 10 ms a tick
    # The child's clock cannot be read, so its ticks are used, with its children's.
    assert first.ours == pytest.approx(4.0 + 1.0)
    delays = proc / "4194305" / "task" / "4194305" / "schedstat"
    delays.write_text("5 700000000 1")
    (proc / "cpu.stat").write_text("nr_throttled 3\nthrottled_usec 250000\n")
    second = contention.read()
    assert between(first, second).waited * (second.time - first.time) == pytest.approx(0.2)
    assert second.throttled == 0.25
    (proc / "cpu.stat").write_text("nr_throttled 3\nthrottled_time 250000000\n")  # version 1
    assert contention.read().throttled == 0.25


def test_only_our_cpus_and_their_siblings_count(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = {0: 100, 2: 1000, 9: 400}
    for cpu in used:
        (proc / f"cpu{cpu}").mkdir()
    lines = [f"cpu{cpu} {ticks} 0 0 0 0 0 0 10\n" for cpu, ticks in used.items()]
    (proc / "stat").write_text("".join(["cpu 1500 0 0 0 0 0 0 30\n", *lines]))
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    monkeypatch.setattr(f"{Contention.__module__}.CPUS", proc)
    monkeypatch.setattr(f"{Contention.__module__}.physical_core", lambda cpu, _: str(cpu % 9))
    found = Contention(proc, cgroup=proc, cpus=frozenset({0})).read()
    assert (found.used, found.beside, found.stolen) == (1.0, 4.0, 0.1)


def test_threads_and_processes_may_vanish(proc: Path) -> None:
    contention = Contention(proc, cgroup=proc)
    first = contention.read()
    for name in ("children", "schedstat"):
        (proc / "4194305" / "task" / "4194305" / name).unlink()
    (proc / "4194305" / "stat").unlink()
    last = contention.read()
    assert last.waited == first.waited
    assert between(first, last).lost == 0.0  # the time of the vanished child is not negative


def test_a_system_without_the_counters_is_recorded_as_such(tmp_path: Path) -> None:
    assert not Contention(tmp_path).available


linux = pytest.mark.skipif(
    not Contention().available, reason="this system does not count how long threads wait"
)


@linux
def test_a_neighbour_on_our_cpu_is_seen_and_our_child_is_ours() -> None:
    before = os.sched_getaffinity(0)
    cpu = {min(before)}
    neighbour = int(subprocess.check_output([sys.executable, "-c", ORPHAN]))
    try:
        os.sched_setaffinity(0, cpu)
        os.sched_setaffinity(neighbour, cpu)
        with subprocess.Popen([sys.executable, "-c", BURN]) as child:
            contention = Contention()
            first = contention.read()
            while between(first, contention.read()).lost == 0:
                pass
            child.kill()
        last = contention.readings[-1]
    finally:
        os.kill(neighbour, signal.SIGKILL)
        os.sched_setaffinity(0, before)
    assert last.waited > first.waited and last.ours > first.ours


@linux
def test_a_clock_that_a_test_stops_does_not_stop_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    contention = Contention()
    assert contention.read().time < contention.read().time
    assert len(contention.readings) == 2 and contention.seconds > 0
