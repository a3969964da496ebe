"""Differences of a stand-in for PopART or PopTorch from the SDK."""

from __future__ import annotations

import enum
import inspect
from types import ModuleType
from typing import Any, Dict, List, get_type_hints

from tests.support.sdk_api import members, parameters, public, source

Modules = Dict[str, Any]


def differences(sdk: str, offered: ModuleType, modules: Modules) -> List[str]:
    """Return how ``offered`` differs from the described module ``sdk``, as 'NAME: reason'."""
    functions, classes = modules[sdk]["functions"], modules[sdk]["classes"]
    found: List[str] = []
    for name, thing in public(vars(offered)):
        if inspect.isclass(thing) and name in classes:
            found += _Class(sdk, modules).differences(name, thing, classes[name])
        elif inspect.isfunction(thing) and name in functions:
            found += _signature(sdk, name, thing, functions[name])
        else:
            found.append(f"{name}: {sdk} has no such {type(thing).__name__}")
    return found


class _Class:
    def __init__(self, sdk: str, modules: Modules) -> None:
        self.sdk = sdk
        self.modules = modules

    def differences(self, path: str, cls: type, described: Dict[str, Any]) -> List[str]:
        if issubclass(cls, enum.Enum):
            numbers = described.get("enum_numbers", {})
            unknown = [
                one.name
                for one in cls
                if one.name not in described["enum_values"]
                or numbers.get(one.name, repr(one.value)) != repr(one.value)
            ]
            return [f"{path}.{name}: {self.sdk} has no such member" for name in unknown]
        if issubclass(cls, Exception):
            return []
        found: List[str] = []
        if "__init__" in vars(cls) and described["init"] is not None:
            init = {"params": described["init"], "overloads": described.get("init_overloads")}
            found += _signature(self.sdk, path, cls.__init__, init)
        methods = self._methods(described)
        parts = described.get("sub_objects", {})
        for name, thing in public(members(cls), keep=("__call__", *parts)):
            where = f"{path}.{name}"
            if isinstance(thing, property):
                found += self._property(where, cls, thing, described)
            elif name in methods:
                found += _signature(self.sdk, where, thing, methods[name])
            else:
                found.append(f"{where}: {self.sdk} has no such method")
        return found

    def _methods(self, described: Dict[str, Any]) -> Dict[str, Any]:
        """Return the methods of a class and of its described bases."""
        methods: Dict[str, Any] = {}
        for base in described["bases"]:
            name = base.rpartition(".")[2]
            classes = [m["classes"][name] for m in self.modules.values() if name in m["classes"]]
            methods.update(self._methods(classes[0]) if classes else {})
        methods.update(described["methods"])
        return methods

    def _property(
        self, where: str, cls: type, thing: property, described: Dict[str, Any]
    ) -> List[str]:
        name = where.rpartition(".")[2]
        known, part = described["properties"].get(name), described.get("sub_objects", {}).get(name)
        # PopART's operator set AiOnnxOpset11 is a builder's property aiOnnxOpset11.
        opset = name[0].upper() + name[1:]
        if part is None and opset in self.modules[self.sdk]["classes"]:
            part = f"{self.sdk}.{opset}"
        if part is not None and thing.fset is None:
            module, _, target = part.rpartition(".")
            kind = get_type_hints(thing.fget)["return"]
            return self.differences(where, kind, self.modules[module]["classes"][target])
        if known is None:
            return [f"{where}: {self.sdk} has no such property"]
        if thing.fset is None:
            return []
        real = known.get("default")  # not every default is described
        if known["settable"] and (
            real is None or _same(self.sdk, source(getattr(cls(), name)), real)
        ):
            return []
        return [f"{where}: {self.sdk}'s cannot be set, or is {real} at first"]


def _signature(sdk: str, where: str, function: Any, described: Dict[str, Any]) -> List[str]:
    """Compare names, order, kinds and defaults with each overload.

    The stand-in may lack parameters with defaults at the end. None: the SDK's binding names no
    parameter.
    """
    ours = parameters(function)
    overloads = described.get("overloads") or [described["params"]]
    for params in (one["params"] if isinstance(one, dict) else one or [] for one in overloads):
        same = len(ours) <= len(params) and all(
            (name, kind) == (p["name"], p["kind"])
            and _same(sdk, default, p["default"] if p["has_default"] else None)
            for (name, kind, default), p in zip(ours, params)
        )
        if same and all(p["has_default"] for p in params[len(ours) :]):
            return []
    return [f"{where}: {ours} is none of {sdk}'s {overloads}"]


def _same(sdk: str, ours: Any, real: Any) -> bool:
    """Return whether a default agrees with the SDK's source text, where members are qualified.

    The stand-in uses text for members that it does not offer.
    """
    if ours is None or real is None:
        return ours is real
    text = str(real).replace('"', "'")
    return text in (ours, f"{sdk}.{ours}", ours.strip("'"))
