"""Fill the gate study's pool: one fresh process per case and pass, until there are enough.

    python -m scripts.gate_study.collect --pool=FILE --passes=40 [--load=one-on-off]

Each pass measures every case once, in random order, so the processes of a case are spread over the
whole time. The neighbours of a load (neighbours.py) run meanwhile. The pool is a file of JSON
lines, one per process; an existing pool is continued.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence

from ipubench.plugins.record.files import json_lines
from ipubench.plugins.record.text import Parser, duration
from scripts.gate_study.neighbours import LOADS, neighbours

ROOT = Path(__file__).resolve().parents[2]

#: The four cases with the shortest processes come first: QUICK=1 of the Makefile uses them.
CASES = (
    "bench_popart_conv[popart-conv-inference-synthetic]",
    "bench_popart_lstm[popart-lstm-inference-synthetic]",
    "bench_dense[dense-inference-synthetic]",
    "bench_cnn_torch[mobilenet-v3-large-bs16-synthetic]",
    "bench_grouped_conv[grouped_conv-inference-synthetic]",
    "bench_gru[gru-inference-synthetic]",
    "bench_lstm[lstm-inference-synthetic]",
    "bench_rnn[rnn-training-synthetic]",
    "bench_cnn_torch[resnet50-bs1-synthetic]",
    "bench_cnn_tensorflow[resnet50-bs1-synthetic]",
)


def plain_lines_in(folder: Path) -> List[Dict[str, Any]]:
    """Return the lines of all journals in a folder as JSON values."""
    found: List[Any] = [line for path in folder.glob("run-*.jsonl") for line in json_lines(path)]
    return found


def measure(case: str) -> Dict[str, Any]:
    """Measure a case in one fresh process. Raises RuntimeError if it fails."""
    with tempfile.TemporaryDirectory(prefix="ipubench-pool-") as folder:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [f"--results-dir={folder}", f"scripts/gate_study/bench_pool.py::{case}"]
        answer = subprocess.run(
            command, cwd=str(ROOT), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        for line in plain_lines_in(Path(folder)):
            if line["type"] == "pool":
                return line
    output = answer.stdout.decode(errors="replace")[-2000:]
    raise RuntimeError(f"{case} measured nothing:\n{output}")


def write_line(path: Path, line: Dict[str, Any]) -> None:
    """Append the measurements of a process or a pair to a pool."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def counts(path: Path, load: str) -> Dict[str, int]:
    """Return how many lines of each case a pool has under a load."""
    lines: List[Any] = json_lines(path) if path.exists() else []
    return collections.Counter(line["case"] for line in lines if line["load"] == load)


def passes_within(passes: int, seconds: float) -> Iterator[int]:
    """Yield the number of each pass until there is no time for another."""
    started = time.monotonic()
    for number in range(passes):
        begun = time.monotonic()
        yield number
        spent = time.monotonic() - started
        print(f"pass {number + 1} of {passes}, {spent:.0f} s", flush=True)
        if spent + (time.monotonic() - begun) > seconds:
            print(f"no further pass fits into {seconds:.0f} s", flush=True)
            return


def collect(path: Path, cases: Sequence[str], passes: int, seconds: float, load: str) -> None:
    """Measure until every case has ``passes`` processes or there is no time for another pass."""
    done = counts(path, load)
    for number in passes_within(passes, seconds):
        for case in random.sample(cases, len(cases)):
            if done.get(case, 0) > number:
                continue
            with neighbours(LOADS[load]):
                line = measure(case)
            write_line(path, {**line, "load": load})


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that all collectors share."""
    parser.add_argument("--pool", type=Path, required=True, help="file of JSON lines")
    parser.add_argument("--passes", type=int, default=40, help="processes per case (40)")
    parser.add_argument("--cases", type=int, default=len(CASES), help="only the first N (all)")
    parser.add_argument("--seconds", type=duration, default=5400.0, help="longest time (1.5h)")
    parser.add_argument("--load", choices=LOADS, default="quiet", help="neighbours (quiet)")


def main() -> None:
    """Collect, as the command line asks."""
    parser = Parser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    options = parser.parse_args()
    cases = CASES[: options.cases]
    collect(options.pool, cases, options.passes, options.seconds, options.load)


if __name__ == "__main__":
    main()
