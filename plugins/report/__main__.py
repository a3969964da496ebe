"""Makes one report from stored results, of one run or of all its shards.

python -m ipubench.plugins.report RUN... --out=DIR [--baseline=NAME] [--gate=2%]

Exit codes: 0; 1, a case regressed, failed, is missing or was not run, or a run ended early; 4, the
command line or a file cannot be used; 6, a gate was asked for and no case was decided.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import List, Optional

from ipubench.fixtures.machine.files import user_path
from ipubench.plugins.baseline import store
from ipubench.plugins.baseline.commands import suite_root
from ipubench.plugins.baseline.format import BaselineError
from ipubench.plugins.record.text import (
    EXIT_USAGE,
    Parser,
    complain,
    given,
    percentage,
    say,
)
from ipubench.plugins.report.files import ReportError, check, write
from ipubench.plugins.report.stored import stored_report
from ipubench.plugins.results.rows import conclusion, exit_code

DEFAULT_GATE = 0.02


def main(words: Optional[List[str]] = None) -> int:
    """Write a report on stored results; return the exit code."""
    parser = Parser(
        prog="python -m ipubench.plugins.report", description="Make a report of stored results."
    )
    parser.add_argument(
        "runs",
        type=_path,
        nargs="+",
        metavar="RUN",
        help="a run's results/run-*.jsonl, a report's baseline.json, or a folder with one of them; "
        "several become one report",
    )
    parser.add_argument("--out", type=_path, required=True, metavar="DIR", help="where to write")
    parser.add_argument(
        "--baseline",
        type=_baseline,
        metavar="NAME",
        help="compare with this baseline, baselines/NAME.json or a path; only for runs that were "
        "compared with nothing",
    )
    parser.add_argument(
        "--gate",
        type=percentage,
        metavar="PERCENT",
        help="slow-down that counts, with --baseline (2%%)",
    )
    args = parser.parse_args(words)
    if args.gate is not None and args.baseline is None:
        parser.error("--gate needs something to compare with: add --baseline=NAME")
    gate = DEFAULT_GATE if args.gate is None else args.gate
    try:
        check(args.out)
        report = stored_report(args.runs, args.baseline, gate)
        names = write(report, args.out)
    except (ReportError, BaselineError) as error:
        complain(str(error))
        return EXIT_USAGE
    rows = report.rows()
    say(f"{args.out}: {', '.join(names)}")
    say(conclusion(report, rows))
    for problem in report.problems:
        complain(problem)
    return exit_code(report, rows)


def _baseline(text: str) -> Path:
    """Return the file of a baseline, named as for pytest's options."""
    try:
        return store.baseline_path(given(text), suite_root())
    except BaselineError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _path(text: str) -> Path:
    try:
        return user_path(given(text))
    except OSError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
