"""Turns: builders share the host, a timer has it alone. Real processes; their order counts."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

import pytest

from ipubench.fixtures.machine.supervisor import status
from ipubench.plugins.processes import turns as stopping
from ipubench.plugins.processes.turns import Turns, let_all_go_on
from tests.support.harness import ROOT, Project

DEADLINE = 60.0

# Takes a turn, says so, and keeps it until its input ends.
TAKE = """
import sys
from pathlib import Path
from ipubench.plugins.processes.turns import Turns
turns = Turns(Path(sys.argv[1]))
with getattr(turns, sys.argv[2])(*map(bool, sys.argv[3:])):
    print("in", flush=True)
    sys.stdin.read()
"""


# Builds what may be stopped, with a child; says how long it stood still when its input ends.
BUILD = """
import subprocess, sys
from pathlib import Path
from ipubench.plugins.processes.turns import Turns
turns = Turns(Path(sys.argv[1]))
with turns.building():
    with turns.stoppable() as stood_still:
        child = subprocess.Popen(["sleep", "600"])
        print(child.pid, flush=True)
        sys.stdin.read()
        child.kill()
        print(stood_still(), flush=True)
"""


class Taker:
    """A process that takes one turn."""

    def __init__(self, folder: Path, *words: str, program: str = TAKE) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, str(folder), *words],
            cwd=str(ROOT),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def wait_until_in(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"in\n"

    def leave(self) -> None:
        self.process.communicate(timeout=DEADLINE)


def held(path: Path) -> bool:
    """Whether some process has the lock."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def wait_until_held(path: Path) -> None:
    deadline = time.monotonic() + DEADLINE
    while not held(path):
        assert time.monotonic() < deadline
        os.sched_yield()


def test_builders_share(tmp_path: Path) -> None:
    one, two = Taker(tmp_path, "building"), Taker(tmp_path, "building")
    one.wait_until_in()
    two.wait_until_in()
    one.leave()
    two.leave()


def test_a_timer_waits_for_builders_and_later_builders_wait_for_it(tmp_path: Path) -> None:
    builder = Taker(tmp_path, "building")
    builder.wait_until_in()
    timer = Taker(tmp_path, "timing")
    wait_until_held(tmp_path / "turnstile")  # by the timer, which waits for the room
    later = Taker(tmp_path, "building")
    builder.leave()
    timer.wait_until_in()
    # The timer is in, so whoever holds the turnstile now is the later builder, waiting.
    wait_until_held(tmp_path / "turnstile")
    timer.leave()
    later.wait_until_in()
    later.leave()


def test_a_killed_process_gives_its_turn_back(tmp_path: Path) -> None:
    timer = Taker(tmp_path, "timing")
    timer.wait_until_in()
    timer.process.kill()
    timer.leave()
    with Turns(tmp_path).timing():
        pass


def test_timing_within_building_gives_the_shared_turn_back(tmp_path: Path) -> None:
    turns = Turns(tmp_path)
    room = tmp_path / "room"
    with turns.building():
        other = Taker(tmp_path, "building")
        other.wait_until_in()
        other.leave()
        with turns.timing():
            assert held(room)
        assert held(room)
        other = Taker(tmp_path, "building")
        other.wait_until_in()
        other.leave()
    assert not held(room)


def test_an_error_gives_the_turn_back(tmp_path: Path) -> None:
    turns = Turns(tmp_path)
    with pytest.raises(ValueError), turns.building(), turns.timing():
        raise ValueError
    assert not held(tmp_path / "room")


def test_timing_within_timing_keeps_the_turn(tmp_path: Path) -> None:
    turns = Turns(tmp_path)
    with turns.building(), turns.timing():
        with turns.timing():
            pass
        other = Taker(tmp_path, "building")
        wait_until_held(tmp_path / "turnstile")  # by the other, which waits for the room
    other.wait_until_in()
    other.leave()


def test_alone_everything_is_its_turn() -> None:
    turns = Turns()
    with turns.building(), turns.timing():
        pass


class Builder(Taker):
    """A process that may be stopped, and a child of it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, program=BUILD)
        assert self.process.stdout is not None
        self.pids = [self.process.pid, int(self.process.stdout.readline())]

    def states(self) -> List[str]:
        """Return the states of both: T where it is stopped."""
        return ["T" if status(pid)[0] == "T" else "alive" for pid in self.pids]

    def wait_for(self, states: List[str]) -> None:
        deadline = time.monotonic() + DEADLINE
        while self.states() != states:
            assert time.monotonic() < deadline
            os.sched_yield()

    def finish(self) -> float:
        """End it; return how long it says it stood still."""
        return float(self.process.communicate(timeout=DEADLINE)[0])


linux = pytest.mark.skipif(
    not stopping.possible(), reason="needs Linux's /proc: run it there; elsewhere a timer waits"
)


@linux
def test_a_timer_stops_what_may_be_stopped_and_lets_it_go_on(tmp_path: Path) -> None:
    builder = Builder(tmp_path)
    least = most = 0.0
    for _ in range(2):
        start = time.monotonic()
        timer = Taker(tmp_path, "timing", "stop")
        timer.wait_until_in()
        inside = time.monotonic()
        assert builder.states() == ["T", "T"]
        least += time.monotonic() - inside
        timer.leave()
        most += time.monotonic() - start
        builder.wait_for(["alive", "alive"])
    assert least < builder.finish() < most


@linux
def test_another_timer_waits_for_what_may_be_stopped(tmp_path: Path) -> None:
    """It may want what a stopped process holds, so it stops nobody."""
    builder = Builder(tmp_path)
    timer = Taker(tmp_path, "timing")
    wait_until_held(tmp_path / "room")
    assert builder.states() == ["alive", "alive"]
    assert builder.process.stdin is not None
    builder.process.stdin.close()
    timer.wait_until_in()  # the builder has compiled, and now waits for the timer
    timer.leave()
    assert builder.process.stdout is not None
    assert float(builder.process.stdout.read()) == 0
    assert builder.process.wait(DEADLINE) == 0


@linux
def test_who_was_stopped_goes_on_when_its_timer_was_killed(tmp_path: Path) -> None:
    builder = Builder(tmp_path)
    timer = Taker(tmp_path, "timing", "stop")
    timer.wait_until_in()
    timer.process.kill()
    timer.leave()
    assert builder.states() == ["T", "T"]
    let_all_go_on(tmp_path)
    builder.wait_for(["alive", "alive"])
    builder.finish()
    with Turns(tmp_path).timing(stop=True):
        pass


def test_what_is_not_allowed_or_not_building_is_waited_for(tmp_path: Path) -> None:
    turns = Turns(tmp_path)
    with turns.stoppable() as outside:
        assert not held(tmp_path / "room")
    with turns.building(), turns.stoppable(allowed=False) as inside:
        assert held(tmp_path / "room")
    assert (outside(), inside()) == (0, 0)


# Every part of the fake work writes down when it began and ended, on a clock that all processes
# share, and takes real time. The first cases of both workers begin to build at the same time.
LOGGED = '''
import functools
import time


def logged(kind, method):
    @functools.wraps(method)
    def noted(*args, **kwargs):
        start = time.monotonic_ns()
        for _ in range(2000):
            pass
        result = method(*args, **kwargs)
        with open(f"intervals-{os.getpid()}", "a") as file:
            file.write(f'["{kind}", {start}, {time.monotonic_ns()}]\\n')
        return result

    return noted


def meet(method):
    """Go on when a case has started in the other worker as well."""

    @functools.wraps(method)
    def together(*args, **kwargs):
        global met
        if not met:
            met = True
            try:
                os.mkdir("first")
                ways = "wr"
            except FileExistsError:
                ways = "rw"
            for name, way in zip(("one", "two"), ways):
                open(name, way).close()
        return method(*args, **kwargs)

    return together


met = False
FakeStep.__init__ = logged("build", meet(FakeStep.__init__))
FakeStep.build = logged("build", FakeStep.build)
FakeStep.compile = logged("build", FakeStep.compile)
FakeStep.__call__ = logged("time", FakeStep.__call__)
canary = FakeStep.canary
FakeStep.canary = lambda step: logged("time", canary(step))

'''


def test_timed_parts_never_overlap_each_other_or_building(project: Project) -> None:
    pytest.importorskip("xdist", reason="pytest-xdist is not installed: pip install pytest-xdist")
    bench = project.folder / "bench_fake.py"
    bench.write_text(bench.read_text().replace("\n@dataclass", LOGGED + "\n@dataclass", 1))
    for name in ("one", "two"):
        os.mkfifo(str(project.folder / name))
    project.run("-n", "2", "--steps=20").assert_code(0)

    intervals: Dict[str, List[Any]] = {}
    for path in project.folder.glob("intervals-*"):
        intervals[path.name] = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(intervals) == 2  # both workers measured
    for one, two in itertools.combinations(intervals.values(), 2):
        for kind, start, end in one:
            for other, begin, finish in two:
                apart = end <= begin or finish <= start
                assert apart or kind == other == "build"
    builds = [[i for i in found if i[0] == "build"] for found in intervals.values()]
    # The check above could fail: building did overlap.
    assert any(a[1] < b[2] and b[1] < a[2] for a in builds[0] for b in builds[1])


# The worker that comes second compiles until the first one times, and writes down when it runs.
STAMPED = """
def stamped(step):
    try:
        os.mkdir("compiled")
    except FileExistsError:
        with open(f"stamps-{os.getpid()}", "a") as file:
            while not any(name.startswith("intervals-") for name in os.listdir(".")):
                file.write(f"{time.monotonic_ns()}\\n")
    return compiling(step)


compiling = FakeStep.compile
FakeStep.compile = stamped
FakeStep.compiles_alone = True
FakeStep.__init__ = meet(FakeStep.__init__)
FakeStep.__call__ = logged("time", FakeStep.__call__)

"""


@linux
def test_a_compilation_stands_still_while_the_other_worker_times(project: Project) -> None:
    pytest.importorskip("xdist", reason="pytest-xdist is not installed: pip install pytest-xdist")
    helpers = LOGGED[: LOGGED.index("FakeStep.__init__ =")]
    bench = project.folder / "bench_fake.py"
    source = bench.read_text()
    bench.write_text(source.replace("\n@dataclass", helpers + STAMPED + "\n@dataclass", 1))
    for name in ("one", "two"):
        os.mkfifo(str(project.folder / name))
    project.run("-n", "2", "--steps=20").assert_code(0)
    (path,) = [path for path in project.folder.glob("stamps-*") if path.stat().st_size]
    stamps = [int(line) for line in path.read_text().split()]
    other = next(p for p in project.folder.glob("intervals-*") if p.name[10:] != path.name[7:])
    timed = [json.loads(line)[1:] for line in other.read_text().splitlines()]
    assert stamps and timed
    # It began before the first timed call, and saw it only when the other's turn was over.
    assert stamps[0] < timed[0][0]
    assert not [stamp for stamp in stamps for start, end in timed if start <= stamp <= end]
