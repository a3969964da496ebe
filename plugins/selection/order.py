"""Sorts the cases of a run: those that start fastest come first.

So the first result comes within seconds, and a run that is stopped early has measured the most.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import pytest

from ipubench.fixtures.instances.plan import instances_of
from ipubench.plugins.selection.selected import case_of

#: Fixtures that give a first result soon, and fixtures that start a server.
SOON = ("pytorch",)
SERVERS = ("triton", "tensorflow_serving")


def sort_cases(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Sort the cases of each folder; if the command line names files, keep its order."""
    if any(".py" in word for word in config.option.file_or_dir):
        return
    folders: Dict[Any, int] = {}
    files: Dict[Any, int] = {}
    for item in items:
        folders.setdefault(item.path.parent, len(folders))
        files.setdefault(item.path, len(files))

    def position(item: pytest.Item) -> Tuple[int, int, int, bool]:
        case = case_of(item)
        several = case is not None and instances_of(case.config) > 1
        return folders[item.path.parent], _rank(item), files[item.path], several

    items.sort(key=position)


def _rank(item: pytest.Item) -> int:
    names = getattr(item, "fixturenames", ())
    if any(name in names for name in SERVERS):
        return 2
    return 0 if any(name in names for name in SOON) else 1
