"""Subtests: one that fails does not end its test, and fails the case all the same.

pytest's fixture ``subtests`` and unittest's ``subTest`` have each part of a test reported while the
test is called. A case has one outcome and one line, once its call has ended.
"""

from __future__ import annotations

from typing import Generator, List, Optional

import pytest

from ipubench.fixtures.case.errors import counted

#: Why subtests of a test have failed, a line each.
failed_key = pytest.StashKey[List[str]]()
_called_key = pytest.StashKey[bool]()


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Note for how long a test is called."""
    item.stash[failed_key] = []
    item.stash[_called_key] = True
    yield
    item.stash[_called_key] = False


def is_called(item: pytest.Item) -> bool:
    """Tell whether a test is being called, so that a report of it is that of a subtest."""
    return item.stash.get(_called_key, False)


def is_of_one(report: pytest.TestReport) -> bool:
    """Tell whether a report is that of a subtest, so that its test goes on."""
    return getattr(report, "ipubench_subtest", False)


def why_failed(item: pytest.Item) -> Optional[str]:
    """Return why subtests of a test have failed, if some did."""
    failed = item.stash.get(failed_key, [])
    if not failed:
        return None
    return f"{counted(len(failed), 'subtest has', 'subtests have')} failed: {failed[0]}"
