"""Makes the files of a report from a stored document.

python -m ipubench.plugins.report DOCUMENT.json --out=DIR [--baseline=BEFORE.json] [--gate=2%]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import List, Optional

from ipubench.fixtures.machine.files import user_path
from ipubench.plugins import baseline
from ipubench.plugins.baseline.entries import differences, newest
from ipubench.plugins.baseline.rows import Report
from ipubench.plugins.baseline.store import read_run
from ipubench.plugins.record.text import percent, percentage_argument
from ipubench.plugins.report.files import ReportError, check, write


def main(words: Optional[List[str]] = None) -> int:
    """Make the files of a report from stored results; return the exit code: 0, or 4."""
    parser = argparse.ArgumentParser(
        prog="python -m ipubench.plugins.report", description="Make a report of stored results."
    )
    parser.add_argument(
        "document", type=_path, help="baseline.json, or a run's results/run-*.jsonl"
    )
    parser.add_argument("--out", type=_path, required=True, metavar="DIR", help="where to write")
    parser.add_argument("--baseline", type=_path, metavar="FILE", help="compare with this baseline")
    parser.add_argument(
        "--gate",
        type=percentage_argument,
        default=0.02,
        metavar="PERCENT",
        help="slow-down that counts (2%%)",
    )
    try:
        given = parser.parse_args(words)
    except SystemExit as end:
        return 4 if end.code else 0
    try:
        check(given.out)
        names = write(stored_report(given.document, given.baseline, given.gate), given.out)
    except (ReportError, baseline.BaselineError) as error:
        print(error, file=sys.stderr)
        return 4
    print(f"{given.out}: {', '.join(names)}")
    return 0


def stored_report(path: Path, before: Optional[Path], threshold: float) -> Report:
    """Return a report of stored results, compared with stored ones. Raises BaselineError."""
    document, _ = read_run(path)
    now = newest(document["benchmarks"])
    report = Report({**document, "benchmarks": list(now.values())})
    if before is None:
        return report
    report.baseline, report.gate = str(before), f"gate {percent(threshold)}"
    found = differences(baseline.load_all(before), list(now.values()), threshold)
    report.verdicts = {difference.nodeid: difference.verdict.as_dict() for difference in found}
    return report


def _path(text: str) -> Path:
    try:
        return user_path(text)
    except OSError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
