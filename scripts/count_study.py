"""Gates equal code and code with 1% more work by instructions, many times.

    python -m scripts.count_study [--runs=20] [--at-once=2] [--busy=0] [-k EXPRESSION]

Each run is a checkout in a folder whose name has another length. Its tests are those of the
baseline, either with more lines of comments or with 1% more work. The table is in
docs/explanation/instructions.md. It needs valgrind.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List, Tuple

from ipubench.plugins.record.text import percent
from ipubench.plugins.record.verdict import INCONCLUSIVE, PASS, REGRESSED
from scripts.busy_programs import busy_programs

ROOT = Path(__file__).resolve().parent.parent
THRESHOLD = "0.5%"
MORE_WORK = 1.01
TESTS = """\
import re

import pytest

WORK = 1.0


@pytest.mark.parametrize("n", [300, 3000, 30000])
def test_sum(benchmark, n):
    benchmark(lambda: sum(range(int(n * WORK))))


@pytest.mark.parametrize("n", [500, 5000])
def test_generator(benchmark, n):
    benchmark(lambda: sum(x * x for x in range(int(n * WORK))))


@pytest.mark.parametrize("n", [1000, 7000])
def test_list(benchmark, n):
    items = list(range(int(n * WORK)))

    def work():
        total = 0
        for item in items:
            total += item * 1000
        return total

    benchmark(work)


@pytest.mark.parametrize("n", [300, 3000])
def test_dictionary_of_strings(benchmark, n):
    benchmark(lambda: {str(i): i for i in range(int(n * WORK))})


def test_list_of_strings(benchmark):
    benchmark(lambda: [f"value {i}" for i in range(int(1500 * WORK))])


def test_regular_expression(benchmark):
    lines = [f"name{line:03}=value {line:03}; other words" for line in range(int(200 * WORK))]
    text, expression = "".join(lines), re.compile(r"(\\w+)=value (\\d+);")
    benchmark(lambda: [(found[1], int(found[2])) for found in expression.finditer(text)])


def test_sort(benchmark):
    benchmark(lambda: sorted(range(int(3000 * WORK)), key=lambda x: -x))
"""

#: Case -> the kind of its verdict and the change of its count.
Found = Dict[str, Tuple[str, float]]


def checkout(folder: Path, work: float, comments: int) -> Path:
    """Write a project; return its folder."""
    (folder / "tests").mkdir(parents=True)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p ipubench --device=cpu\n")
    comment = "# A line that changes nothing.\n" * comments
    text = comment + TESTS.replace("WORK = 1.0", f"WORK = {work}")
    (folder / "tests" / "test_work.py").write_text(text)
    return folder


def run(folder: Path, *words: str) -> List[Dict[str, Any]]:
    """Run pytest in a checkout; return the lines of its journal."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "tests", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode not in (0, 1):
        sys.exit(done.stdout.decode(errors="replace"))
    (journal,) = (folder / "results").glob("run-*.jsonl")
    return [json.loads(line) for line in journal.read_text().splitlines()]


def judged(folder: Path, baseline: Path, words: List[str]) -> Found:
    """Gate a checkout; return the verdicts on its cases."""
    shutil.copytree(baseline / "baselines", folder / "baselines")
    lines = run(folder, "--baseline=main", f"--gate=instructions:{THRESHOLD}", *words)
    found = {}
    for line in lines:
        if line["type"] == "verdict":
            also = line["verdict"]["also"]
            change = also[0]["change"] if also else 0.0
            found[line["case"].partition("::")[2]] = line["verdict"]["kind"], change
    kinds = Counter(kind for kind, _ in found.values())
    print(f"{folder.name.rstrip('x-')}: {dict(kinds)}", file=sys.stderr, flush=True)
    return found


def study(root: Path, runs: int, at_once: int, words: List[str]) -> List[str]:
    """Return the lines of the table."""
    baseline = checkout(root / "b", 1.0, 0)
    run(
        baseline,
        "--count=instructions",
        "--baseline-save=main",
        "--processes=1",
        "--keep-disturbed",
        "--budget=0.1s",
        *words,
    )
    folders = []
    for number in range(runs):
        end = "x" * (7 * number)
        folders.append(checkout(root / f"equal-{number:02}-{end}", 1.0, 1 + number))
        folders.append(checkout(root / f"more-{number:02}-{end}", MORE_WORK, 1 + number))
    with ThreadPoolExecutor(at_once) as pool:
        found = list(pool.map(lambda folder: judged(folder, baseline, words), folders))
    return table(found[::2], found[1::2])


def table(equal: List[Found], more: List[Found]) -> List[str]:
    """Return the lines of the table."""
    lines = [
        "| case | equal code: change | passed | 1% more work: change | regressed | open |",
        "|---|---|---|---|---|---|",
    ]
    for case in equal[0]:
        kinds = [[one[case][0] for one in side] for side in (equal, more)]
        open_ = sum(side.count(INCONCLUSIVE) for side in kinds)
        changes = [
            f"{percent(min(values), 2, sign=True)} to {percent(max(values), 2, sign=True)}"
            for values in ([one[case][1] for one in side] for side in (equal, more))
        ]
        lines.append(
            f"| {case} | {changes[0]} | {kinds[0].count(PASS)} of {len(equal)} | {changes[1]} | "
            f"{kinds[1].count(REGRESSED)} of {len(more)} | {open_} |"
        )
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("-k", default="")
    options = parser.parse_args()
    words = ["-k", options.k] if options.k else []
    with tempfile.TemporaryDirectory() as folder, busy_programs(options.busy):
        print("\n".join(study(Path(folder), options.runs, options.at_once, words)))


if __name__ == "__main__":
    main()
