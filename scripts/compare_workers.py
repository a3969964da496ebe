"""What two workers gain, and whether they change a throughput.

Runs the same cases without workers and with them, in turns, and prints for each repeat the wall
time of both, and for each case the ratio of its throughput with workers to that without: the median
of the repeats, and their range. Twice: of the throughput that is reported, and of the figure that
the gate compares, which leaves out what the machine's speed did meanwhile (log_cost). What
two runs without workers differ by is there to compare with.

Usage: python -m scripts.compare_workers [--repeats 5] [--workers 2] [pytest's words ...]
Example: python -m scripts.compare_workers --repeats 3 bench_kernels -k "dense or lstm"
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List, NamedTuple, Sequence, Tuple

from ipubench.plugins.gate.rule import log_cost
from ipubench.plugins.record.files import read_lines
from ipubench.plugins.record.process_sample import THROUGHPUT, processes_of
from ipubench.plugins.record.record import record_of
from ipubench.plugins.run.results import SessionResults

ROOT = Path(__file__).resolve().parents[1]


class Speed(NamedTuple):
    """How fast a run measured a case, as logarithms: what is reported, what the gate compares."""

    reported: float
    compared: float


def run(words: Sequence[str]) -> Tuple[float, Dict[str, Speed]]:
    """Run the suite; return its wall seconds, and the speeds by node id."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-q", f"--results-dir={folder}", *words]
        start = time.monotonic()
        answer = subprocess.run(command, cwd=str(ROOT), check=False)
        seconds = time.monotonic() - start
        if answer.returncode != 0:
            raise SystemExit(f"{' '.join(command)} ended with exit code {answer.returncode}")
        (journal,) = Path(folder).glob("run-*.jsonl")
        results = SessionResults()
        for line in read_lines(journal):
            results.take(line)
    speeds = {}
    for nodeid, benchmark in results.benchmarks.items():
        (process,) = processes_of(benchmark)
        compared = log_cost(process, THROUGHPUT)
        assert compared is not None  # every case has a throughput
        reported = math.log(record_of(benchmark)["throughput"]["median"])
        speeds[nodeid] = Speed(reported, -compared)
    return seconds, speeds


def _within(logs: Sequence[float], bound: float = 0.03) -> str:
    """Return how many ratios, given by their logarithms, are near 1."""
    return f"{sum(abs(math.expm1(log)) <= bound for log in logs)} of {len(logs)}"


def _report(title: str, found: Dict[str, List[float]], alike: List[float]) -> None:
    """Print the log ratios by node id, and what those of runs without workers are."""
    print(f"\n{title}")
    for nodeid, logs in found.items():
        middle, low, high = map(math.exp, (statistics.median(logs), min(logs), max(logs)))
        print(f"{middle:7.3f}  ({low:.3f} to {high:.3f})  {nodeid.split('::')[-1]}")
    middles = [statistics.median(logs) for logs in found.values()]
    print(f"{math.exp(statistics.median(middles)):7.3f}  median of the cases")
    print(f"{math.exp(statistics.mean(middles)):7.3f}  geometric mean of the cases")
    both = [log for logs in found.values() for log in logs]
    print(f"{_within(middles)} cases are within 3%; {_within(both)} single ratios are")
    print(f"{_within(alike)} of a run without workers to the one before are")


def main() -> None:
    parser = argparse.ArgumentParser(description="What two workers gain.")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    option, words = parser.parse_known_args()
    words = words or ["bench_kernels"]
    seconds: Dict[bool, List[float]] = {False: [], True: []}
    speeds: Dict[bool, List[Dict[str, Speed]]] = {False: [], True: []}
    for repeat in range(option.repeats):
        # Whoever goes first finds other caches: each does every other time.
        for workers in (repeat % 2 == 1, repeat % 2 == 0):
            more = ["-n", str(option.workers)] if workers else []
            taken, measured = run([*words, *more])
            seconds[workers].append(taken)
            speeds[workers].append(measured)
        print(
            f"repeat {repeat + 1}: {seconds[False][-1]:.1f} s without workers, "
            f"{seconds[True][-1]:.1f} s with {option.workers}",
            flush=True,
        )
    without = speeds[False]
    for which, title in enumerate(("reported throughput", "as the gate compares")):
        found = {
            nodeid: [w[nodeid][which] - o[nodeid][which] for w, o in zip(speeds[True], without)]
            for nodeid in without[0]
        }
        alike = [b[n][which] - a[n][which] for a, b in zip(without, without[1:]) for n in b]
        _report(f"{title}, with {option.workers} workers over without", found, alike)
    alone, together = (statistics.median(seconds[workers]) for workers in (False, True))
    print(
        f"\nwall time, median of {option.repeats}: {alone:.1f} s without workers, "
        f"{together:.1f} s with {option.workers}: {alone / together:.2f} times as fast"
    )


if __name__ == "__main__":
    main()
