"""Counts equal code and code with 1% more work many times, and says how often each looks worse.

    python -m scripts.count_study [--runs=20] [--busy=2] [--cases=NumPy]

Each run is a process that counts three cases: pure Python, NumPy and regular expressions. Two are
the baseline; the others are judged by the rule of plugins/count/judge.py, beside busy processes.
The table is in docs/explanation/instructions.md. It needs valgrind and NumPy.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

from ipubench.plugins.count import judge
from ipubench.plugins.count.callgrind import Callgrind
from ipubench.plugins.count.calls import count_calls
from ipubench.plugins.count.counter import CALLGRIND
from ipubench.plugins.count.process import fixed, start
from ipubench.plugins.elsewhere.busy_programs import busy_programs
from ipubench.plugins.record.counts import Counts
from ipubench.plugins.record.text import percent
from ipubench.plugins.record.verdict import REGRESSED

#: Parts of the work in a call; one more is 1%.
PARTS = 100


def python_case(parts: int) -> Callable[[], Any]:
    """Return a loop over a dictionary."""
    numbers = {number: number for number in range(1000)}

    def work() -> int:
        total = 0
        for number in range(10 * parts):
            total += numbers[number % 1000]
        return total

    return work


def numpy_case(parts: int) -> Callable[[], Any]:
    """Return products of matrices, of which each is sorted."""
    import numpy as np

    matrix = np.random.default_rng(0).standard_normal((12, 12))

    def work() -> Any:
        return [np.sort(matrix @ matrix, axis=None)[0] for _ in range(parts)]

    return work


def expression_case(parts: int) -> Callable[[], Any]:
    """Return a search for all words with a number in a text of so many lines."""
    lines = [f"name{line:03}=value {line:03}; other words {line:03}\n" for line in range(parts)]
    text = "".join(lines)
    expression = re.compile(r"(\w+)=value (\d+);")

    def work() -> List[Any]:
        return [(found.group(1), int(found.group(2))) for found in expression.finditer(text)]

    return work


CASES = {"pure Python": python_case, "NumPy": numpy_case, "regular expression": expression_case}


def count_here(parts: int, cases: Sequence[str], folder: str) -> Dict[str, float]:
    """Count the cases in this process, which callgrind runs."""
    counter = Callgrind(folder)
    found = {}
    for name in cases:
        work = CASES[name](parts)

        def run(calls: int, work: Callable[[], Any] = work) -> None:
            for _ in range(calls):
                work()

        found[name] = count_calls(counter, run).per_call
    return found


def count(cases: Sequence[str], parts: int) -> Dict[str, float]:
    """Count the cases in a process of their own."""
    with tempfile.TemporaryDirectory() as folder:
        options = [f"--parts={parts}", f"--cases={','.join(cases)}"]
        words = [sys.executable, "-m", "scripts.count_study", *options, folder]
        output = subprocess.run(
            [*start(CALLGRIND, Path(folder)), *words],
            env={**os.environ, **fixed()},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
    found: Dict[str, float] = json.loads(output.splitlines()[-1])
    return found


def study(cases: Sequence[str], runs: int, busy: int, at_once: int) -> List[str]:
    """Return the lines of the table."""
    parts = [*(2 + runs) * [PARTS], *runs * [PARTS + 1]]
    with busy_programs(busy), ThreadPoolExecutor(at_once) as pool:
        counts_of = list(pool.map(partial(count, cases), parts))
    before, equal, more = counts_of[:2], counts_of[2 : 2 + runs], counts_of[2 + runs :]
    lines = [
        "| case | instructions a call | equal runs differ by | equal code: regressions | 1% more "
        "work: change | regressions |",
        "|---|---|---|---|---|---|",
    ]
    for name in cases:
        counts = Counts(tuple(one[name] for one in before))
        # A case that looks worse is counted once more: here in the run that follows.
        found = {
            side: [
                judge.judge(counts, Counts((one[name], again[name])), judge.DEFAULT_THRESHOLD)
                for one, again in zip(side_runs, [*side_runs[1:], side_runs[0]])
            ]
            for side, side_runs in (("equal", equal), ("more", more))
        }
        values = [one[name] for one in (*before, *equal)]
        changes = [one.change for one in found["more"] if one.kind]
        regressed = {
            side: f"{sum(one.kind == REGRESSED for one in some)} of {len(some)}"
            for side, some in found.items()
        }
        lines.append(
            f"| {name} | {counts.value:,.0f} | {percent(max(values) / min(values) - 1, 3)} | "
            f"{regressed['equal']} | {percent(min(changes, default=0.0), 2, sign=True)} to "
            f"{percent(max(changes, default=0.0), 2, sign=True)} | {regressed['more']} |"
        )
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--busy", type=int, default=2)
    parser.add_argument("--cases", type=lambda text: text.split(","), default=list(CASES))
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--parts", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("folder", nargs="?", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.parts:
        print(json.dumps(count_here(options.parts, options.cases, options.folder)))
        return
    print("\n".join(study(options.cases, options.runs, options.busy, options.at_once)))


if __name__ == "__main__":
    main()
