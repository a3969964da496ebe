"""``python -m ipubench.plugins.baseline COMMAND``, also installed as ``ipubench-baseline``.

Exit codes as the suite's: 0; 1, a case regressed or is missing (diff), or failed, is missing or was
not run (promote); 4, the command line or a file cannot be used; 6, no case was decided (diff).
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, Callable, Optional, Sequence

from ipubench.plugins.baseline import commands
from ipubench.plugins.baseline.format import BaselineError
from ipubench.plugins.baseline.history import history, import_files
from ipubench.plugins.baseline.promote import Acceptance, promote
from ipubench.plugins.baseline.site import address_of_commits, site
from ipubench.plugins.record.text import (
    EXIT_USAGE,
    Parser,
    complain,
    given,
    percentage,
    whole_number,
)

LAST_RUNS = 100


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="ipubench-baseline",
        description="Look at stored baselines and change them.",
        epilog="NAME means baselines/NAME.json; a value with a slash is a path.",
    )
    added = parser.add_subparsers(dest="name_of_command", metavar="COMMAND", required=True)

    def add(name: str, meaning: str, run: Any) -> argparse.ArgumentParser:
        command = added.add_parser(name, help=meaning, description=meaning)
        command.set_defaults(command=run)
        return command

    _add_reading(add)
    _add_changing(add)
    return parser


def _machine_readable(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print JSON")


def _add_reading(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Declare the commands that change no baseline."""
    _machine_readable(add("list", "the baselines there are", commands.list_all))

    show = add("show", "the cases of a baseline, or all it holds of some", commands.show_one)
    show.add_argument("name", type=given, metavar="NAME")
    show.add_argument("case", metavar="CASE", nargs="?", help="a part of the case's name")
    _machine_readable(show)

    diff = add("diff", "compare two baselines as the gate does", commands.diff)
    diff.add_argument("before", type=given, metavar="BEFORE")
    diff.add_argument("now", type=given, metavar="NOW")
    diff.add_argument(
        "--gate",
        type=percentage,
        metavar="PERCENT",
        help="slow-down that fails, such as 2%%",
    )
    _machine_readable(diff)

    trend = add("history", "the trend of each case over the runs kept", history)
    trend.add_argument("case", metavar="CASE", nargs="?", help="a part of the case's name")
    _of_history(trend)
    _machine_readable(trend)

    pages = add("site", "the trends of all cases as web pages", site)
    pages.add_argument("out", type=given, metavar="OUT", help="the folder to write")
    _of_history(pages)
    pages.add_argument(
        "--commits",
        type=address_of_commits,
        metavar="ADDRESS",
        help="the page of a commit, with {} for its number, which revisions then link to",
    )


def _of_history(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--last",
        type=whole_number(1),
        default=LAST_RUNS,
        metavar="N",
        help=f"runs of each machine at most ({LAST_RUNS})",
    )
    command.add_argument(
        "--folder", type=given, metavar="DIR", help="where runs are kept (baselines/history)"
    )


def _add_changing(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Declare the commands that write baselines."""
    promotion = add("promote", "make a run's results the baseline", promote)
    promotion.add_argument(
        "run",
        type=given,
        metavar="RUN",
        help="results/run-*.jsonl, a baseline.json, or a folder with one",
    )
    promotion.add_argument("name", type=given, metavar="NAME")
    promotion.add_argument(
        "--accept",
        type=Acceptance.parse,
        action="append",
        default=[],
        metavar="PATTERN=REASON",
        help="also cases that regressed, are inconclusive or were disturbed; the reason of the "
        "first two is kept; repeatable",
    )
    promotion.add_argument(
        "--history",
        nargs="?",
        const="",
        metavar="DIR",
        help="also keep all that was measured for trends (baselines/history)",
    )

    imports = add("import", "keep files of pytest-benchmark in the history", import_files)
    imports.add_argument(
        "files",
        type=given,
        nargs="+",
        metavar="FILE",
        help=".benchmarks/*/*.json, or a folder with such files",
    )
    imports.add_argument(
        "--folder", type=given, metavar="DIR", help="where runs are kept (baselines/history)"
    )

    prune = add("prune", "take out the cases that no longer exist", commands.prune)
    prune.add_argument("name", type=given, metavar="NAME")
    prune.add_argument("--dry-run", action="store_true", help="only show them")


def main(words: Optional[Sequence[str]] = None) -> int:
    """Run a command; return the exit code."""
    args = _parser().parse_args(words)
    # A name from a file may hold what the terminal cannot show.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code: int = args.command(args)
        sys.stdout.flush()
    except BaselineError as error:
        complain(f"ipubench-baseline: {error}")
        return EXIT_USAGE
    except OSError as error:
        # What is left of the output would fail once more as Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 0  # the reader, such as head, has seen enough
        what = "the output cannot be written: " if error.filename is None else ""
        complain(f"ipubench-baseline: {what}{error}")
        return EXIT_USAGE
    return code


if __name__ == "__main__":
    sys.exit(main())
