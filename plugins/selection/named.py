"""Finds a case by its node id without overrides, as ``-k`` does: ``--set`` changes identifiers.

pytest matches node ids itself, so it collects the whole function, and the other cases are dropped.
"""

from __future__ import annotations

from typing import Dict, List, Sequence

import pytest

from ipubench.fixtures.command_line import options_of
from ipubench.plugins.selection.selected import Selection, case_of


def collect_functions(session: pytest.Session, selection: Selection) -> None:
    """Let pytest collect all cases of a function of which the command line names some."""
    config, option = session.config, options_of(session.config)
    overridden = selection.assignments or option.data or option.precision
    if overridden and not config.option.pyargs and any(map(_names_one, config.args)):
        selection.words = config.args
        functions = [word.partition("[")[0] if _names_one(word) else word for word in config.args]
        config.args = list(dict.fromkeys(functions))


def _names_one(word: str) -> bool:
    return "[" in word.partition("::")[2]


def keep_named(session: pytest.Session, items: List[pytest.Item], selection: Selection) -> None:
    """Keep the items that the command line names, in its order.

    Raises UsageError for a node id that no item has.
    """
    words, selection.words = selection.words, []
    if not words:
        return
    kept: Dict[pytest.Item, None] = {}
    names = {item: _names_of(item, selection) for item in items}
    for word in words:
        found = [item for item in items if _is_meant(word, item, names[item])]
        if _names_one(word) and not found and not session.testsfailed:
            items.clear()
            raise pytest.UsageError(f"not found: {word}: there is no such case")
        kept.update(dict.fromkeys(found))
    items[:], session.config.args = list(kept), words


def _names_of(item: pytest.Item, selection: Selection) -> List[str]:
    """Return the ends of an item's node ids: with overrides, and without."""
    case = case_of(item)
    own = item.nodeid.partition("::")[2]
    before = selection.base_ids.get(item.nodeid, {case.base_id} if case is not None else ())
    return [own, *(f"{own.partition('[')[0]}[{identifier}]" for identifier in before)]


def _is_meant(word: str, item: pytest.Item, names: Sequence[str]) -> bool:
    """Return whether a path or a node id of the command line means an item."""
    path, _, test = word.partition("::")
    place = (item.config.invocation_params.dir / path).resolve()
    file = item.path.resolve()
    if place != file and (test or place not in file.parents):
        return False
    if _names_one(word):
        return test in names
    return not test or f"{names[0].partition('[')[0]}::".startswith(f"{test}::")
