"""How a run on several hosts grows: with members on this machine, and simulated beyond it.

    python -m scripts.fleet_growth [--cases=553] [--members=1,2,4,8] [--hosts=1,10,100,300,1000]

First a run of that many cases of the fake device, without a fleet and with 1, 2, 4 and 8 members on
this machine: its wall time, and the CPU time of the controller for each case. Then a simulation of
the suite's own schedule with more hosts than anybody has at hand: cases of 5 to 60 s, and a
controller that needs that CPU time for each. Nothing in it waits.
"""

from __future__ import annotations

import heapq
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from ipubench.fixtures.machine.files import IMPORT_ROOT
from ipubench.plugins.fleet.schedule import Schedule, Task
from ipubench.plugins.record.text import Parser
from scripts.markdown_table import markdown_row, markdown_table

#: Seconds of a case: a kernel, and a network with its budget, compilation and start.
SHORTEST, LONGEST = 5.0, 60.0
CASES_PER_HOST = 50
#: The controller is the bottleneck where it works for more than this share of the time.
BUSY = 0.7

BENCH = """
from dataclasses import dataclass
from ipubench import CaseConfig, cases, option
from ipubench.fixtures.data.feeds import ArrayFeed
from ipubench.fixtures.runtimes.fake import FakeStep

@dataclass(frozen=True)
class Fake(CaseConfig):
    number: int = option(0, "nothing", minimum=0)

@cases(*(Fake(name=f"case{{n}}", number=n) for n in range({cases})))
def bench_fake(config, device, meter):
    meter(FakeStep(device, ArrayFeed(config.data, ()), 0.01), items=1, unit="items")
"""
PROGRAM = """
import json, sys, time, pytest
class Clock:
    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtestloop(self):
        wall, cpu = time.monotonic(), time.process_time()
        yield
        with open(sys.argv[1], "w") as file:
            json.dump([time.monotonic() - wall, time.process_time() - cpu], file)
sys.exit(pytest.main(sys.argv[2:], plugins=[Clock()]))
"""


@dataclass(frozen=True)
class Timed:
    """A run: seconds of its loop, and of the controller's CPU for each case."""

    wall: float
    cpu_per_case: float


def run(cases: int, members: Optional[int]) -> Timed:
    """Measure a run of fake cases; None: without a fleet. Raises RuntimeError where it fails."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name in ("conftest.py", "pytest.ini"):
            (folder / name).write_bytes((IMPORT_ROOT / name).read_bytes())
        (folder / "bench_fake.py").write_text(BENCH.format(cases=cases), encoding="utf-8")
        words = ["bench_fake.py", "--device=fake", "-q"]
        if members is not None:
            words += ["--tx", f"{members}*popen//id=m"]
        environment = {
            **os.environ,
            "PYTHONPATH": str(IMPORT_ROOT),
            "IPUBENCH_LEASE_DIR": str(folder / "leases"),
            "IPUBENCH_FAKE_COUNT": str(members or 1),
        }
        answer = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(folder / "times"), *words],
            cwd=str(folder),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if answer.returncode != 0:
            raise RuntimeError(answer.stdout)
        wall, cpu = json.loads((folder / "times").read_text())
    return Timed(wall, cpu / cases)


@dataclass(frozen=True)
class Simulated:
    """What a simulated run of many hosts came to."""

    hosts: int
    cases: int
    seconds: float
    measuring: float  # share of the hosts' time
    controller: float  # share of the controller's time
    decision: float  # real seconds of the schedule for each case

    @property
    def bottleneck(self) -> str:
        """Return what the run waits for."""
        if self.controller > BUSY:
            return "the controller"
        return "the hosts" if self.measuring > BUSY else "the last cases"


def simulate(hosts: int, cost: float, seed: int = 1) -> Simulated:
    """Play a run: the end of a case takes ``cost`` seconds of the controller, one by one."""
    draw = random.Random(seed)  # noqa: S311  a simulation
    cases = CASES_PER_HOST * hosts
    spread = math.log(LONGEST / SHORTEST)
    seconds = [SHORTEST * math.exp(spread * draw.random()) for _ in range(cases)]
    names = [f"h{number}" for number in range(hosts)]
    everyone = frozenset(names)
    length = {f"c{number}": duration for number, duration in enumerate(seconds)}
    begun = time.process_time()
    schedule = Schedule([Task(key, everyone) for key in length])
    for name in names:
        schedule.join(name)
    ends: List[Tuple[float, str]] = []
    free = worked = 0.0  # when the controller is free again, and how long it has worked
    now = 0.0
    while schedule.left:
        for name, task in schedule.assign():
            heapq.heappush(ends, (max(now, free) + length[task.key], name))
        now, name = heapq.heappop(ends)
        free = max(now, free) + cost
        worked += cost
        schedule.done(name)
    spent = time.process_time() - begun
    whole = max(now, free)
    return Simulated(
        hosts, cases, whole, sum(seconds) / (hosts * whole), worked / whole, spent / cases
    )


def main(words: Optional[Sequence[str]] = None) -> None:
    """Print both tables."""
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=553)
    parser.add_argument("--members", default="1,2,4,8")
    parser.add_argument("--hosts", default="1,10,100,300,1000")
    given = parser.parse_args(words)
    found: Dict[str, Timed] = {"no fleet": run(given.cases, None)}
    for members in map(int, given.members.split(",")):
        found[f"{members} members"] = run(given.cases, members)
    head = [f"{given.cases} fake cases", "seconds", "controller's CPU ms for each case"]
    rows = [
        [name, f"{timed.wall:.1f}", f"{1e3 * timed.cpu_per_case:.1f}"]
        for name, timed in found.items()
    ]
    print(markdown_table(head, rows))
    cost = max(timed.cpu_per_case for name, timed in found.items() if name != "no fleet")
    print(f"\n{CASES_PER_HOST} cases for each host, {SHORTEST:g} to {LONGEST:g} s each:\n")
    head = ["hosts", "hours", "measuring", "controller busy", "schedule's µs for each case"]
    print(markdown_table([*head, "waits for"], []))
    for hosts in map(int, given.hosts.split(",")):
        one = simulate(hosts, cost)
        shares = [f"{one.measuring:.0%}", f"{one.controller:.0%}"]
        cells = [str(hosts), f"{one.seconds / 3600:.2f}", *shares, f"{1e6 * one.decision:.0f}"]
        print(markdown_row([*cells, one.bottleneck]))


if __name__ == "__main__":
    main()
