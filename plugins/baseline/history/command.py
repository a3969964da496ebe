"""The command ``history``: trends over the runs kept below baselines/history."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import List, Sequence, Tuple

from ipubench.plugins.baseline.commands import print_json, print_lines, suite_root
from ipubench.plugins.baseline.format import BaselineError
from ipubench.plugins.baseline.history import store
from ipubench.plugins.baseline.history.change_points import ChangesUnavailable
from ipubench.plugins.baseline.history.show import trend_details, trend_overview
from ipubench.plugins.baseline.history.store import Trend


def history(args: Namespace) -> int:
    """Show the trend of each case, or one run by run, with change points."""
    root = suite_root()
    part = args.case or ""
    benchmarks, notes = store.read(root, lambda nodeid: part in nodeid, args.last)
    for note in notes:
        print(note, file=sys.stderr)
    found = store.trends_of(benchmarks)
    if not found:
        what = f"no case with {part!r} in its name" if part else "nothing"
        raise BaselineError(
            f"{root / store.FOLDER} holds {what}; runs with --history are kept there"
        )
    marked = with_changes(found)
    if args.json:
        print_json([store.as_dict(trend, changes) for trend, changes in marked])
    elif args.case is None:
        print_lines(trend_overview(marked))
    else:
        print_lines(line for one in marked for line in trend_details(*one))
    return 0


def with_changes(found: Sequence[Trend]) -> List[Tuple[Trend, List[int]]]:
    """Return each trend with its change points; none, and one message, without the library."""
    try:
        return [(trend, trend.changes()) for trend in found]
    except ChangesUnavailable as error:
        print(f"no change points are marked: {error}", file=sys.stderr)
        return [(trend, []) for trend in found]
