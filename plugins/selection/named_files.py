"""Files that the command line names as cases."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any, Callable, Dict, List
import pytest
from ipubench.plugins.selection.expand import case_of
from ipubench.plugins.benchmarks_yml.cases import SpecConfig
from ipubench.plugins.benchmarks_yml.entry import Entry

#: Path -> what is in it, of every file of the command line.
files_key = pytest.StashKey[Dict[Path, "SpecSource"]]()


def arguments_of(config: pytest.Config, nodeid: str) -> List[str]:
    """Return the words by which another pytest runs the case with this node id.

    A file outside the project does not lead to the project's conftest.py, which is named as well.
    """
    name, separator, rest = nodeid.partition("::")
    for source in config.stash.get(files_key, {}).values():
        if source.nodeid == name and config.rootpath not in source.path.parents:
            return [str(config.rootpath / "conftest.py"), f"{source.path}{separator}{rest}"]
    return [str(config.rootpath / nodeid)]
