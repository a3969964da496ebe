"""What two workers gain, and whether they change a throughput.

Runs the same cases without workers and with them, in turns, and prints for each repeat the wall
time of both, and for each case the ratio of its throughput with workers to that without: the median
of the repeats, and their range. What two runs without workers differ by is there to compare with.

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
from typing import Dict, List, Sequence, Tuple

from plugins.journal import Results
from plugins.lines import read_lines
from plugins.record import record_of

ROOT = Path(__file__).resolve().parents[1]


def run(words: Sequence[str]) -> Tuple[float, Dict[str, float]]:
    """Run the suite; return its wall seconds, and the median items/s by node id."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-q", f"--results-dir={folder}", *words]
        start = time.monotonic()
        answer = subprocess.run(command, cwd=str(ROOT), check=False)
        seconds = time.monotonic() - start
        if answer.returncode != 0:
            raise SystemExit(f"{' '.join(command)} ended with exit code {answer.returncode}")
        (journal,) = Path(folder).glob("run-*.jsonl")
        results = Results()
        for line in read_lines(journal):
            results.take(line)
    rates = {
        nodeid: float(record_of(benchmark)["throughput"]["median"])
        for nodeid, benchmark in results.benchmarks.items()
    }
    return seconds, rates


def _within(ratios: Sequence[float], bound: float = 0.03) -> str:
    """Return how many ratios are near 1."""
    return f"{sum(abs(ratio - 1) <= bound for ratio in ratios)} of {len(ratios)}"


def main() -> None:
    parser = argparse.ArgumentParser(description="What two workers gain.")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    option, words = parser.parse_known_args()
    words = words or ["bench_kernels"]
    seconds: Dict[bool, List[float]] = {False: [], True: []}
    ratios: Dict[str, List[float]] = {}
    plain: List[Dict[str, float]] = []  # of the runs without workers
    for repeat in range(option.repeats):
        rates: Dict[bool, Dict[str, float]] = {}
        # Whoever goes first finds other caches: each does every other time.
        for workers in (repeat % 2 == 1, repeat % 2 == 0):
            more = ["-n", str(option.workers)] if workers else []
            taken, rates[workers] = run([*words, *more])
            seconds[workers].append(taken)
        for nodeid, rate in rates[False].items():
            ratios.setdefault(nodeid, []).append(rates[True][nodeid] / rate)
        plain.append(rates[False])
        print(
            f"repeat {repeat + 1}: {seconds[False][-1]:.1f} s without workers, "
            f"{seconds[True][-1]:.1f} s with {option.workers}",
            flush=True,
        )
    print(f"\nthroughput with {option.workers} workers over throughput without")
    for nodeid, found in ratios.items():
        name = nodeid.split("::")[-1]
        print(f"{statistics.median(found):7.3f}  ({min(found):.3f} to {max(found):.3f})  {name}")
    logs = [statistics.median(map(math.log, found)) for found in ratios.values()]
    print(f"{math.exp(statistics.median(logs)):7.3f}  median of the cases")
    print(f"{math.exp(statistics.mean(logs)):7.3f}  geometric mean of the cases")
    both = [ratio for found in ratios.values() for ratio in found]
    print(f"\n{_within(both)} of the ratios with workers to without are within 3%")
    alike = [later[n] / earlier[n] for earlier, later in zip(plain, plain[1:]) for n in later]
    print(f"{_within(alike)} of those of a run without workers to the one before")
    alone, together = (statistics.median(seconds[workers]) for workers in (False, True))
    print(
        f"\nwall time, median of {option.repeats}: {alone:.1f} s without workers, "
        f"{together:.1f} s with {option.workers}: {alone / together:.2f} times as fast"
    )


if __name__ == "__main__":
    main()
