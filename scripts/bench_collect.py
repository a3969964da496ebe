"""Measure what the plugin costs a project whose tests measure nothing.

    python -m scripts.bench_collect [--tests=550] [--turns=7]

Collects the tests of an empty project three times: with pytest alone, with pytest-benchmark, and
with the plugin too. Then runs the same number of benchmarks with --benchmark-disable. The variants
alternate. Prints the least CPU time of each and its ratio to pytest-benchmark's.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, List

ROOT = Path(__file__).resolve().parents[1]
BENCHMARK = ("-p", "pytest_benchmark.plugin")
SIDES: Dict[str, List[str]] = {
    "pytest": ["-p", "no:benchmark"],
    "pytest-benchmark": [*BENCHMARK],
    "ipubench": [*BENCHMARK, "-p", "ipubench"],
}
ORDINARY = "def test_{}():\n    pass\n"
MEASURING = "def test_{}(benchmark):\n    benchmark(len, ())\n"


def cpu_seconds(folder: Path, *words: str) -> float:
    """Return the CPU time of a run of pytest in a folder."""
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=str(folder),
        env=environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare(text: str, count: int, turns: int, words: List[str], sides: List[str]) -> None:
    """Print the CPU time of each variant; the variants alternate."""
    with tempfile.TemporaryDirectory() as name:
        for number in range(0, count, 50):
            tests = "\n".join(text.format(one) for one in range(min(50, count - number)))
            (Path(name) / f"test_{number}.py").write_text(tests, encoding="utf-8")
        found: Dict[str, List[float]] = {side: [] for side in sides}
        for _ in range(turns):
            for side, seconds in found.items():
                seconds.append(cpu_seconds(Path(name), *SIDES[side], *words))
    base = min(found["pytest-benchmark"])
    for side, seconds in found.items():
        print(f"  {side:<17} {min(seconds):6.3f} s  {min(seconds) / base:.2f}")


def main() -> None:
    """Run both comparisons."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--tests", type=int, default=550)
    parser.add_argument("--turns", type=int, default=7)
    given = parser.parse_args()
    print(f"collecting {given.tests} tests")
    compare(ORDINARY, given.tests, given.turns, ["--collect-only"], list(SIDES))
    print(f"running {given.tests} benchmarks with --benchmark-disable")
    disabled = ["--benchmark-disable"]
    compare(MEASURING, given.tests, given.turns, disabled, ["pytest-benchmark", "ipubench"])


if __name__ == "__main__":
    main()
