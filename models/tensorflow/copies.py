"""Copies a TensorFlow network with some parts replaced."""

from __future__ import annotations

import copy
from typing import Any, Callable


def copy_with(tf: Any, part: Any, replaced: Callable[[Any], Any]) -> Any:
    """Return a copy of a layer in which ``replaced(part)`` replaces each part that it changes.

    Searches modules, lists and tuples. The layer itself is unchanged.
    """
    found = replaced(part)
    if found is not part:
        return found
    if isinstance(part, (list, tuple)):
        return [copy_with(tf, item, replaced) for item in part]
    if not isinstance(part, tf.Module):
        return part
    twin = copy.copy(part)
    for name, value in vars(part).items():
        if not name.startswith("_self_"):  # TensorFlow's own records of checkpoints
            # Bypasses tf.Module's __setattr__, which would track the replacement.
            vars(twin)[name] = copy_with(tf, value, replaced)
    return twin
