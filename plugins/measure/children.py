"""The loop of a process that counts: each test runs in children of its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Sequence

import pytest

from ipubench.plugins.count.callgrind import delete_dumps
from ipubench.plugins.count.children import ChildError, counts_in_child
from ipubench.plugins.count.process import CHILDREN_VARIABLE, FOLDER_VARIABLE
from ipubench.plugins.record.structs import CountedCase
from ipubench.plugins.results.lines import CountLine
from ipubench.plugins.state import Run


def count_in_children(run: Run, items: Sequence[pytest.Item]) -> bool:
    """Run the tests in children, in place of pytest's loop."""
    first, end = map(int, os.environ[CHILDREN_VARIABLE].split("-"))
    for item in items:
        for number in range(first, end):
            if not _counts(run, item, number):
                break  # another child would do no better
    return True


def _counts(run: Run, item: pytest.Item, number: int) -> bool:
    """Count a test in a child, which writes into the journal; return whether it has a count."""

    def count() -> bool:
        run.child = number
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        counted = [one for found in run.results.counts.values() for one in found]
        return any(one.per_call is not None for one in counted)

    try:
        return counts_in_child(item.config, count)
    except ChildError as error:
        run.add(CountLine(item.nodeid, CountedCase(uncountable=str(error))))
        return False
    finally:
        delete_dumps(Path(os.environ[FOLDER_VARIABLE]))
