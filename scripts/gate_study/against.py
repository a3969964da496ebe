"""Run `--against` on suites of ordinary functions: how long it takes, and what it finds.

    python -m scripts.gate_study.against --suite=ordinary --change=slower --repetitions=20

A repository has a suite of tests that use the fixture ``benchmark``. Its working tree has an added
comment, or one case that does 15% more work. The command of a user compares it with the last
commit, while the neighbours of the load run. Prints a table in Markdown.
"""

from __future__ import annotations

import collections
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Counter, Dict, List, NamedTuple, Sequence

from ipubench.plugins.record.text import Parser, percent
from ipubench.plugins.record.verdict import OPEN, REGRESSED
from ipubench.plugins.results.lines import VerdictLine, lines_in
from scripts.gate_study.neighbours import LOADS, neighbours
from scripts.markdown_table import markdown_table

#: A call does its work as often as this; the slower case three times more often, 15% more.
REPEATED, SLOWER = 20, 23
HEAD = f"""\
import collections, csv, hashlib, io, json, re, zlib
import pytest

TEXT = "the quick brown fox jumps over the lazy dog " * 8
WORDS = TEXT.split()
ROWS = [{{"id": n, "name": f"n{{n}}", "tags": ["a", str(n)]}} for n in range(12)]
DUMPED = json.dumps(ROWS)
NUMBERS = [(n * 7919) % 1009 for n in range(300)]
PAIR = re.compile(r"(\\w+)\\s+(fox|dog)")
TIMES = collections.defaultdict(lambda: {REPEATED})


def squares():
    total = 0
    for n in NUMBERS:
        total += n * n % 7
    return total


"""
ORDINARY = {
    "sort": "sorted(NUMBERS)",
    "sort_by_key": "sorted(WORDS, key=lambda word: (len(word), word))",
    "count": "collections.Counter(WORDS)",
    "regex": "PAIR.findall(TEXT)",
    "loads": "json.loads(DUMPED)",
    "dumps": "json.dumps(ROWS)",
    "sha256": "hashlib.sha256(TEXT.encode()).hexdigest()",
    "compress": "zlib.compress(TEXT.encode(), 1)",
    "loop": "squares()",
    "dictionary": "{word: len(word) for word in WORDS}",
    "join": "','.join(word.upper() for word in WORDS)",
    "read_csv": "list(csv.reader(io.StringIO(TEXT.replace(' ', ','))))",
}
TRIVIAL = {f"sum_{n}": f"sum(range({n}))" for n in range(20, 220, 10)}
SUITES = {"ordinary": ORDINARY, "trivial": TRIVIAL}
#: The case that does more work.
SLOW = "regex"
EQUAL = "equal"
CHANGES = (EQUAL, "slower")
WHO = ("-c", "user.name=study", "-c", "user.email=study@localhost", "-c", "commit.gpgsign=false")


class Answer(NamedTuple):
    """The result of one comparison."""

    kinds: Dict[str, str]  # of each case
    changes: Dict[str, float]  # of the rates, relative
    seconds: float
    code: int

    def wrong(self, change: str) -> List[str]:
        """Return the cases with a wrong verdict: slow ones that passed, equal ones that failed."""
        slow = {name for name in self.kinds if change != EQUAL and name.endswith(f"[{SLOW}]")}
        decided = {name: kind for name, kind in self.kinds.items() if kind not in OPEN}
        return [name for name, kind in decided.items() if (kind == REGRESSED) != (name in slow)]


def make_repository(folder: Path, suite: str, change: str) -> None:
    """Make a repository with a suite, and change its working tree."""
    cases = SUITES[suite]
    works = "".join(f'    "{name}": lambda: {code},\n' for name, code in cases.items())
    tests = (
        f"WORKS = {{\n{works}}}\n\n\n"
        "def repeated(name):\n"
        "    work = WORKS[name]\n"
        "    for _ in range(TIMES[name]):\n"
        "        work()\n\n\n"
        '@pytest.mark.parametrize("name", list(WORKS))\n'
        "def test_work(benchmark, name):\n"
        "    benchmark(repeated, name)\n"
    )
    path = folder / "test_works.py"
    path.write_text(HEAD + tests, encoding="utf-8")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "--message", "suite"]):
        subprocess.run(["git", *WHO, *words], cwd=str(folder), check=True)  # noqa: S607
    more = f"TIMES[{SLOW!r}] = {SLOWER}\n" if change != EQUAL else "# a comment\n"
    path.write_text(HEAD + more + "\n\n" + tests, encoding="utf-8")


def compare(folder: Path, options: List[str]) -> Answer:
    """Run the command in a repository."""
    with tempfile.TemporaryDirectory(prefix="ipubench-study-") as results:
        words = ["-p", "ipubench", "--device=cpu", "--against=git:HEAD", *options]
        started = time.monotonic()
        answer = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", f"--results-dir={results}", *words],
            cwd=str(folder),
            env={name: text for name, text in os.environ.items() if name != "PYTEST_ADDOPTS"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            check=False,
        )
        seconds = time.monotonic() - started
        lines = lines_in(Path(results))
    verdicts = {line.case: line.verdict for line in lines if isinstance(line, VerdictLine)}
    kinds = {name: verdict.kind for name, verdict in verdicts.items()}
    changes = {
        name: verdict.change for name, verdict in verdicts.items() if verdict.change is not None
    }
    return Answer(kinds, changes, seconds, answer.returncode)


def mean_text(found: Sequence[Answer]) -> str:
    """Return the mean change of all cases but the slower one, and its 95% confidence interval."""
    changes = [
        change
        for one in found
        for name, change in one.changes.items()
        if not name.endswith(f"[{SLOW}]")
    ]
    mean = statistics.fmean(changes)
    half = 1.96 * statistics.stdev(changes) / math.sqrt(len(changes))
    return f"{percent(mean, 2, sign=True)} (±{percent(half, 2)})"


def main() -> None:
    """Run the comparisons and print the table."""
    parser = Parser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--suite", choices=SUITES, default="ordinary", help="of tests (ordinary)")
    parser.add_argument("--change", choices=CHANGES, default=EQUAL, help="of the code (equal)")
    parser.add_argument("--load", choices=LOADS, default="quiet", help="neighbours (quiet)")
    parser.add_argument("--repetitions", type=int, default=5, help="of the comparison (5)")
    parser.add_argument("--gate", default="5%", help="of pytest (5%%)")
    given = parser.parse_args()
    found: List[Answer] = []
    with tempfile.TemporaryDirectory(prefix="ipubench-study-") as folder:
        make_repository(Path(folder), given.suite, given.change)
        with neighbours(LOADS[given.load]):
            for number in range(given.repetitions):
                found.append(compare(Path(folder), [f"--gate={given.gate}"]))
                wrong, code = found[-1].wrong(given.change), found[-1].code
                print(
                    f"{number + 1}: {found[-1].seconds:.0f} s, exit code {code}, {wrong=}",
                    flush=True,
                )
    kinds: Counter[str] = collections.Counter(kind for one in found for kind in one.kinds.values())
    seconds = [one.seconds for one in found]
    codes = collections.Counter(one.code for one in found)
    head = [
        "suite",
        "change",
        "load",
        "runs",
        "seconds (least, median, most)",
        "verdicts",
        "wrong",
        "mean change of equal cases",
        "exit codes",
    ]
    row = [
        f"{given.suite}, {len(SUITES[given.suite])} cases",
        given.change,
        given.load,
        str(len(found)),
        f"{min(seconds):.0f}, {statistics.median(seconds):.0f}, {max(seconds):.0f}",
        ", ".join(f"{number} {kind}" for kind, number in kinds.most_common()),
        str(sum(len(one.wrong(given.change)) for one in found)),
        mean_text(found),
        ", ".join(f"{number} times {code}" for code, number in codes.most_common()),
    ]
    print(markdown_table(head, [row]))


if __name__ == "__main__":
    main()
