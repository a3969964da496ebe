"""The description of the SDK's API, made from its published sources, to check the stand-ins."""

from __future__ import annotations

import enum
import inspect
import json
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Tuple

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "sdk-api"
Parameter = Tuple[str, str, Any]  # name, kind, default as source text


def description(name: str) -> Dict[str, Any]:
    """Return the description in a file; skip the test without it."""
    path = FOLDER / name
    if not path.is_file():
        pytest.skip(
            f"the description of the SDK's API is missing: put {name} into "
            f"{Path('..', *FOLDER.parts[-2:])} next to the repository to check the stand-in"
        )
    described: Dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return described


def parameters(function: Any) -> List[Parameter]:
    """Return a function's parameters without ``self``, in the description's form."""
    return [
        (p.name, p.kind.name.lower(), source(p.default))
        for p in inspect.signature(function).parameters.values()
        if p.name != "self"
    ]


def described_parameters(described: List[Dict[str, Any]]) -> List[Parameter]:
    """Return the described parameters, comparable with :func:`parameters`."""
    return [(p["name"], p["kind"], p["default"] if p["has_default"] else None) for p in described]


def source(default: Any) -> Any:
    """Return a default as in the description, or None without one."""
    if default is inspect.Parameter.empty:
        return None
    return str(default) if isinstance(default, enum.Enum) else repr(default)


def members(cls: type) -> Dict[str, Any]:
    """Return the members of a class and of its bases in the same module."""
    found: Dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__ == cls.__module__:  # not what Python's own classes add
            found.update(vars(base))
    return found


def public(names: Mapping[str, Any], keep: Tuple[str, ...] = ()) -> Iterator[Tuple[str, Any]]:
    """Yield the public names and the ones to keep, sorted."""
    for name, thing in sorted(names.items()):
        if name in keep or not name.startswith("_"):
            yield name, thing
