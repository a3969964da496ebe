"""Files that the command line names as cases."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Protocol

import pytest


class NamedFile(Protocol):
    """A file of cases: where it is, and what the identifiers of its cases begin with."""

    path: Path
    nodeid: str


#: Path -> what is in it, of every file of the command line.
files_key = pytest.StashKey[Dict[Path, NamedFile]]()


def arguments_of(config: pytest.Config, nodeid: str) -> List[str]:
    """Return the words by which another pytest runs the case with this node id.

    A file outside the project does not lead to the project's conftest.py, which is named as well.
    """
    name, separator, rest = nodeid.partition("::")
    for source in config.stash.get(files_key, {}).values():
        if source.nodeid == name and config.rootpath not in source.path.parents:
            return [str(config.rootpath / "conftest.py"), f"{source.path}{separator}{rest}"]
    return [str(config.rootpath / nodeid)]
