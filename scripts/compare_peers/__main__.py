"""Compare the host cases with the programs that people would otherwise run.

    python -m scripts.compare_peers
    python -m scripts.compare_peers --families=torch,training --cases=resnet50 --level=native
    python -m scripts.compare_peers --families=torch --cases=all --seconds=20s > peers.md
    python -m scripts.compare_peers --device=cuda

Each group of cases runs in a separate process at each level: on this machine as it is, and as on a
CPU that has only AVX2; or on a GPU. If a program cannot run, its row has the reason. A case takes
--seconds, or six rounds of its slowest program if that is longer, plus compile time, which
torch.compile and XLA dominate.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import subprocess
import sys
import tempfile
import time
from typing import Dict, Iterator, List, Optional, Sequence

from ipubench.fixtures.machine.files import IMPORT_ROOT
from ipubench.plugins.record.text import Parser, duration
from scripts.compare_peers import tables
from scripts.compare_peers.case import (
    LEVELS,
    NATIVE,
    PRECISIONS,
    Row,
    describe,
    environment_of,
    missing,
    named,
    topology_at,
)
from scripts.compare_peers.worker import FAMILIES, USUAL, Job

WORKER = [sys.executable, "-m", "scripts.compare_peers.worker"]


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Measure, and print the tables in Markdown."""
    parser = _parser()
    options = parser.parse_args(arguments)
    families = _families(parser, options.families, options.device)
    cases = _cases(parser, families, options.cases, options.device)
    if options.list:
        print("\n".join(f"{family}: {name}" for family in cases for name in cases[family]))
        return 0
    sections = []
    chosen = options.level if options.device == "cpu" else NATIVE
    for level in LEVELS[chosen]:
        for family, names in cases.items():
            job = Job(
                family,
                level,
                options.precision,
                options.seconds,
                names,
                options.own,
                options.device,
            )
            sections.append(section(job))
    day = time.strftime("%Y-%m-%d", time.gmtime())
    print(tables.markdown(sections, tables.versions(), day))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="compare_peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--families",
        type=_words,
        help=f"of {', '.join(FAMILIES)}, separated by commas; by default all but serving, on a GPU "
        "those that run there",
    )
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="cpu by default; cuda: the first GPU",
    )
    parser.add_argument(
        "--cases",
        type=_words,
        default=[],
        help="parts of names, separated by commas, or all; a usual selection by default",
    )
    parser.add_argument("--list", action="store_true", help="show the chosen cases and end")
    parser.add_argument(
        "--level", choices=LEVELS, default="both", help="instruction sets; both by default"
    )
    parser.add_argument("--seconds", type=duration, default=4.0, help="of rounds for each case: 4s")
    parser.add_argument("--precision", choices=PRECISIONS, default="16.16")
    parser.add_argument(
        "--own", action="store_true", help="the suite's other engines and forms, too"
    )
    return parser


def _words(text: str) -> List[str]:
    return [word for word in text.split(",") if word]


def _families(
    parser: argparse.ArgumentParser, given: Optional[List[str]], device: str
) -> List[str]:
    """Return the groups to measure. Exits if one is unknown or runs on another device."""
    if given is None:
        return [name for name in USUAL if device in FAMILIES[name].devices]
    for family in given:
        if family not in FAMILIES:
            parser.error(f"--families={family}: expected some of {', '.join(FAMILIES)}")
        if device not in FAMILIES[family].devices:
            parser.error(f"--families={family}: its programs do not run with --device={device}")
    return given


def _cases(
    parser: argparse.ArgumentParser, families: List[str], parts: List[str], device: str
) -> Dict[str, List[str]]:
    """Return the cases to measure by group. Exits if a name matches no case."""
    names = {family: FAMILIES[family].names_on(device) for family in families}
    for part in parts:
        if part != "all" and not any(part in name for found in names.values() for name in found):
            parser.error(
                f"--cases={part}: no case of {', '.join(families)} has this in its name; "
                "--cases=all --list shows the names"
            )
    found = {f: named(names[f], parts, FAMILIES[f].usual) for f in families}
    return {family: chosen for family, chosen in found.items() if chosen}


def section(job: Job) -> tables.Section:
    """Measure one group at one level; progress goes to standard error."""
    family, topology = FAMILIES[job.family], topology_at(job.level)
    reason = missing(job.level, topology_at(NATIVE))
    if reason:
        rows = [Row(job.family, job.level, reason=reason)]
    else:
        rows = []
        for row in measured(job):
            rows.append(row)
            result = row.reason or tables.ratio_text(row.ratio or 0)
            print(f"{job.family}, {job.level}: {row.case} {row.peer} {result}", file=sys.stderr)
    gpu = next((row.machine for row in rows if row.machine), "")
    machine = gpu or f"{job.level}, {describe(topology)}"
    return tables.Section(family.title, machine, family.unit, rows)


def measured(job: Job, command: Sequence[str] = WORKER) -> Iterator[Row]:
    """Yield the rows of a worker, and a last row with the error if the worker failed."""
    with tempfile.TemporaryFile() as errors:
        worker = subprocess.Popen(
            [*command, json.dumps(dataclasses.asdict(job))],
            cwd=str(IMPORT_ROOT),
            env=environment_of(job.level),
            stdout=subprocess.PIPE,
            stderr=errors,
            universal_newlines=True,
        )
        assert worker.stdout is not None
        with worker.stdout as lines:
            last = ""
            for line in lines:
                row = Row(**json.loads(line))
                last = row.case
                yield row
        code = worker.wait()
        if code:
            errors.seek(0)
            text = errors.read().decode("utf-8", "replace")
            yield Row(job.family, job.level, reason=_ended(code, last, text))


def _ended(code: int, last: str, text: str) -> str:
    """Return how a worker ended, with its last line of output if there is one."""
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    after = f" after {last}" if last else ""
    lines = text.strip().splitlines()[-1:]
    return f"the process ended with {how}{after}" + (f": {lines[0]}" if lines else "")


if __name__ == "__main__":
    sys.exit(main())
