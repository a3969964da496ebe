"""Run `--against` on commits that slow a case and on others, while neighbours run.

    python -m scripts.gate_study.live --load=two --repetitions=5

In a clone of this checkout one commit changes nothing, and another lets each round of a TensorFlow
case run more batches. Both are compared with the commit before, alternating, by the command that a
user would type, while the neighbours of the load run. Prints a table in Markdown.
"""

from __future__ import annotations

import collections
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Counter, Dict, List, NamedTuple, Optional

from ipubench.plugins.record.text import Parser
from ipubench.plugins.run.lines import VerdictLine, lines_in
from scripts.gate_study.collect import ROOT
from scripts.gate_study.neighbours import LOADS, neighbours
from scripts.markdown_table import markdown_table

#: The line that runs a round, and its replacement with a share more batches.
STEP = "fixtures/runtimes/tensorflow/host/step.py"
ROUND = "        self.run(self.batches_per_step)\n"
SLOWED = "        self.run(max(1, round({factor} * self.batches_per_step)))\n"
EQUAL, SLOWER = "nothing", "slower"
#: The author of the commits, whatever the user has configured.
WHO = ("-c", "user.name=study", "-c", "user.email=study@localhost", "-c", "commit.gpgsign=false")


class LiveError(Exception):
    """Raised if a comparison did not judge anything; the message has the reason."""


class Answer(NamedTuple):
    """The result of one comparison; ``change`` is of the throughput, or None."""

    kind: str
    change: Optional[float]
    pairs: int
    seconds: float


def git(folder: Path, *words: str) -> None:
    """Run git in a folder with a neutral author. Raises CalledProcessError."""
    command = ["git", *WHO, *words]
    subprocess.run(command, cwd=str(folder), check=True)


def make_clone(folder: Path, slower: float) -> None:
    """Clone what is committed here, with one branch and one commit per change."""
    git(ROOT, "clone", "--quiet", str(ROOT), str(folder))
    git(folder, "branch", "base")
    git(folder, "checkout", "--quiet", "-b", EQUAL, "base")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "changes nothing")
    git(folder, "checkout", "--quiet", "-b", SLOWER, "base")
    step = folder / STEP
    text = step.read_text(encoding="utf-8")
    if text.count(ROUND) != 1:
        raise LiveError(f"{STEP} has no single line that runs a round: {ROUND.strip()}")
    step.write_text(text.replace(ROUND, SLOWED.format(factor=1 + slower)), encoding="utf-8")
    git(folder, "commit", "--quiet", "--all", "--message", "runs more batches")


def compare(folder: Path, branch: str, case: str, options: List[str]) -> Answer:
    """Compare a branch with the commit before. Raises LiveError if nothing was judged."""
    git(folder, "checkout", "--quiet", branch)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ipubench-live-") as results:
        words = ["-q", "-k", case, "--against=git:HEAD~1", f"--results-dir={results}", *options]
        answer = subprocess.run(
            [sys.executable, "-m", "pytest", *words],
            cwd=str(folder),
            env={name: text for name, text in os.environ.items() if name != "PYTEST_ADDOPTS"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        seconds = time.monotonic() - begun
        lines = lines_in(Path(results))
    found = [line.verdict for line in lines if isinstance(line, VerdictLine)]
    if len(found) != 1:
        output = answer.stdout.decode(errors="replace")[-3000:]
        raise LiveError(f"-k {case} had {len(found)} verdicts; expected one:\n{output}")
    return Answer(found[0].kind, found[0].change, found[0].processes, seconds)


def row(branch: str, slower: float, answers: List[Answer]) -> List[str]:
    """Return the cells of a commit."""
    kinds: Counter[str] = collections.Counter(answer.kind for answer in answers)
    changes = [answer.change for answer in answers if answer.change is not None]
    took = [answer.seconds for answer in answers]
    return [
        "nothing" if branch == EQUAL else f"{slower:.0%} more batches a round",
        ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()),
        f"{min(changes):+.1%} to {max(changes):+.1%}" if changes else "-",
        ", ".join(str(answer.pairs) for answer in answers),
        f"{min(took):.0f} to {max(took):.0f} s",
    ]


def main() -> None:
    """Run the comparisons and print the table."""
    parser = Parser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--load", choices=LOADS, default="quiet", help="neighbours (quiet)")
    parser.add_argument("--repetitions", type=int, default=5, help="of each commit (5)")
    parser.add_argument("--slower", type=float, default=0.1, help="share of batches more (0.1)")
    parser.add_argument("--case", default="dense-inference-synthetic", help="-k of one case")
    parser.add_argument("--gate", default="2%", help="of pytest (2%%)")
    parser.add_argument("--gate-time", default="3min", help="of pytest (3min)")
    given = parser.parse_args()
    options = [f"--gate={given.gate}", f"--gate-time={given.gate_time}"]
    answers: Dict[str, List[Answer]] = {EQUAL: [], SLOWER: []}
    try:
        with tempfile.TemporaryDirectory(prefix="ipubench-live-") as own:
            folder = Path(own) / ROOT.name
            make_clone(folder, given.slower)
            with neighbours(LOADS[given.load]):
                for number in range(given.repetitions):
                    for branch, found in answers.items():
                        found.append(compare(folder, branch, given.case, options))
                        print(f"{number + 1} {branch}: {found[-1]}", flush=True)
    except (subprocess.CalledProcessError, LiveError) as error:
        raise SystemExit(str(error)) from None
    head = ["what the commit does", f"verdicts under {given.load}", "change", "pairs", "time"]
    rows = [row(branch, given.slower, found) for branch, found in answers.items()]
    print(markdown_table(head, rows))


if __name__ == "__main__":
    main()
