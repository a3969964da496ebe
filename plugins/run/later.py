"""Imports of modules that only some runs use."""

from __future__ import annotations

import importlib
from typing import Any


class Later:
    """A module of the plugin that is imported when one of its public names is used.

    pytest looks in whatever a plugin holds for marks of fixtures, whose names are private.
    """

    def __init__(self, module: str) -> None:
        self._module = f"ipubench.plugins.{module}"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self._module), name)
