"""Starts pytest-xdist's worker on a host: execnet sends this text, and runs it there."""

from __future__ import annotations

import importlib.util
import os
import runpy
import signal
import sys
from typing import Any, Dict


def enter(host: Dict[str, Any]) -> None:
    """Go to the project's folder, from which its modules are imported."""
    home = os.path.expanduser("~")
    root = os.path.realpath(os.path.join(home, os.path.expanduser(host["root"])))
    if not os.path.isdir(root):
        raise OSError(f"there is no folder {root}; chdir= names a checkout that is there")
    start = os.path.join(root, host["start"])
    os.makedirs(start, exist_ok=True)
    os.chdir(start)
    sys.path.insert(0, root)
    os.environ.pop("PYTEST_ADDOPTS", None)  # its words are among those handed over
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ssh may have it ignored


if __name__ == "__channelexec__":
    channel: Any = vars()["channel"]
    workerinput, args, options, path = channel.receive()
    given = workerinput["ipubench"]["host"]
    if given is not None:
        enter(given)
        args, options, path = given["words"], {}, sys.path
    channel.receive = lambda: (workerinput, args, options, path)
    # Not imported: pytest would warn that it cannot rewrite the assertions of xdist any more.
    found = importlib.util.find_spec("xdist")
    if found is None or found.origin is None:
        raise OSError("pytest-xdist is not installed there")
    remote = os.path.join(os.path.dirname(found.origin), "remote.py")
    runpy.run_path(remote, {"channel": channel}, run_name=__name__)
