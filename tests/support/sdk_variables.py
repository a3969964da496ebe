"""Variables of tests/support/sdk_plugin.py, which changes the process that imports it."""

from __future__ import annotations

#: Names the file to which each process appends a line: what it ran and called, and with
#: which flags.
LOG = "IPUBENCH_TEST_LOG"
#: The error of attaching to an IPU; empty if it works.
ATTACH_ERROR = "IPUBENCH_TEST_ATTACH_ERROR"
#: Part of a case's identifier: its process dies in the middle of that case.
CRASH = "IPUBENCH_TEST_CRASH"
