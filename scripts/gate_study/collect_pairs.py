"""Fill the gate study's pool of pairs: two fresh processes of equal code that alternate.

    python -m scripts.gate_study.collect_pairs --pool=FILE --passes=40 [--load=one-on-off]

The suite's own classes imitate the two processes of `--against`: orders in blocks, disturbances per
round, the stopping rule. In each pass one pair of processes measures all cases one after another,
because starting takes longer than measuring. Within a case the levels of extra work, all in this
process, run in random order. An existing pool is continued.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence

from msgspec import to_builtins

from ipubench.fixtures.devices.lease import lease
from ipubench.fixtures.instances.controller import Instances
from ipubench.fixtures.instances.failures import InstanceError
from ipubench.fixtures.instances.plan import single_process
from ipubench.plugins.gate.rounds import AdjacentRounds
from ipubench.plugins.processes.pair import HERE, THERE, TwoProcesses
from ipubench.plugins.processes.remote_case import child_environment
from ipubench.plugins.record.text import Parser, duration
from scripts.gate_study.collect import (
    CASES,
    ROOT,
    add_options,
    counts,
    passes_within,
    write_line,
)
from scripts.gate_study.extra_work import LEVELS
from scripts.gate_study.neighbours import LOADS, neighbours

#: For one order; building a network under load takes longest.
MOST_SECONDS = 600.0
#: --target-precision of the suite: it may end the rounds of a level before the budget does.
PRECISION = 0.01
#: Longer than a run of the suite waits for the host.
LEASE_SECONDS = 3600.0


@dataclass
class PoolPair(TwoProcesses):
    """Two processes that measure the same cases, one after another."""

    def next_case(self) -> str:
        """Return the name of the next case, which is the same in both processes."""
        here, there = (str(self.order(name, "case")) for name in (HERE, THERE))
        if here != there:
            raise RuntimeError(f"one side is about to measure {here} and the other one {there}")
        return here

    def build(self) -> None:
        """Let both processes build and compile at the same time; this is not timed."""
        with ThreadPoolExecutor(2) as both:
            for built in [both.submit(self.order, name, "build") for name in (HERE, THERE)]:
                built.result()

    def measure_level(self, share: float, budget: float) -> AdjacentRounds:
        """Return rounds with this share of extra work in this process."""
        self.order(THERE, "level", 0.0)
        self.order(HERE, "level", share)
        return self.measure(budget, PRECISION, None)

    def level_facts(self) -> Dict[str, Any]:
        """Return the items of a round, and their unit."""
        facts: Dict[str, Any] = self.order(HERE, "level", 0.0)
        return facts

    def close_case(self) -> None:
        """Let both processes close their step."""
        for name in (HERE, THERE):
            self.order(name, "close")


def _command(cases: Sequence[str], results: str, address: str) -> List[str]:
    return [
        *(sys.executable, "-m", "pytest", "-q", "-s", "-o", "addopts="),
        *("-p", "no:cacheprovider", "-p", "no:unraisableexception"),
        f"--results-dir={results}",
        f"--ipubench-instance={address}",
        *(f"scripts/gate_study/bench_pool.py::{case}" for case in cases),
    ]


def measure_pair(
    cases: Sequence[str], here_first: bool, budget: float, folder: Path
) -> Iterator[Dict[str, Any]]:
    """Yield a line of the pool for each case. Raises InstanceError if a process fails."""
    program = partial(_command, cases, str(folder / "results"))
    sides = {
        name: Instances(
            single_process(name, ROOT, child_environment()), program, folder / name.split()[-1]
        )
        for name in (HERE, THERE)
    }
    with PoolPair("cpu", lambda text: None, sides, MOST_SECONDS) as pair:
        pair.launch(here_first)
        for _ in cases:
            case = pair.next_case()
            pair.build()
            pair.prepare(here_first)
            facts = pair.level_facts()
            levels = {
                str(share): to_builtins(pair.measure_level(share, budget))
                for share in random.sample(LEVELS, len(LEVELS))
            }
            pair.close_case()
            line: Dict[str, Any] = {"type": "pair", "case": case, **facts, "time": time.time()}
            yield {**line, "here_first": here_first, "levels": levels}


def in_some_order(cases: Sequence[str]) -> List[str]:
    """Return the cases in random order, PyTorch's first.

    After XLA has compiled many kernels, OpenVINO takes minutes to convert a network. A run of the
    suite uses this order, too.
    """
    return sorted(random.sample(cases, len(cases)), key=lambda case: "cnn_torch" not in case)


def collect(
    path: Path, cases: Sequence[str], passes: int, seconds: float, load: str, budget: float
) -> None:
    """Measure until every case has ``passes`` pairs or there is no time for another pass."""
    done = counts(path, load)
    for number in passes_within(passes, seconds):
        wanted = [case for case in in_some_order(cases) if done.get(case, 0) <= number]
        if not wanted:
            continue
        with neighbours(LOADS[load]), tempfile.TemporaryDirectory(prefix="ipubench-pair-") as own:
            for line in measure_pair(wanted, number % 2 == 0, budget, Path(own)):
                write_line(path, {**line, "load": load})


def main() -> None:
    """Collect, as the command line asks."""
    parser = Parser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    parser.add_argument(
        "--budget", type=duration, default=1.0, help="seconds of both sides' rounds at a level (1)"
    )
    options = parser.parse_args()
    cases = CASES[: options.cases]
    given = (options.pool, cases, options.passes, options.seconds, options.load, options.budget)
    try:
        with lease(("cpu",), LEASE_SECONDS, print):
            collect(*given)
    except InstanceError as error:
        raise SystemExit(
            f"{error}\nthe pool has what was measured before; run this again"
        ) from None


if __name__ == "__main__":
    main()
