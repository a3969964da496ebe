"""Starts pytest-xdist's worker on a host: execnet sends this source, and runs it there."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Dict


def enter(host: Dict[str, Any]) -> None:
    """Change to the project's folder, and import modules from it."""
    home = os.path.expanduser("~")
    root = os.path.realpath(os.path.join(home, os.path.expanduser(host["root"])))
    if not os.path.isdir(root):
        raise OSError(f"there is no folder {root}; chdir= names a checkout that is there")
    start = os.path.join(root, host["start"])
    os.makedirs(start, exist_ok=True)
    os.chdir(start)
    sys.path.insert(0, root)
    os.environ.pop("PYTEST_ADDOPTS", None)  # the command line contains the controller's
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ssh may have it ignored


if __name__ == "__channelexec__":
    channel: Any = vars()["channel"]
    workerinput, *_ = channel.receive()
    given = workerinput["ipubench"]["host"]
    enter(given)
    channel.receive = lambda: (workerinput, given["arguments"], {}, sys.path)
    # The controller's version of pytest-xdist's worker, not the host's.
    exec(given.pop("program"), {"__name__": __name__, "channel": channel})  # noqa: S102
