"""Shared by all stand-ins for the SDK: they record calls and offer only the names they list."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass
class Calls:
    """The calls since the last :meth:`reset`; a stand-in adds the failures to produce."""

    #: (qualified name, arguments by name), in order; ``self`` is left out.
    calls: List[Tuple[str, Dict[str, Any]]] = field(default_factory=list)

    def reset(self) -> None:
        """Forget all calls and failures."""
        self.__init__()  # type: ignore[misc]

    def names(self) -> List[str]:
        """Return the qualified names of all calls, in order."""
        return [name for name, _ in self.calls]

    def arguments(self, name: str) -> Dict[str, Any]:
        """Return the arguments of the only call with that name."""
        (arguments,) = [given for called, given in self.calls if called == name]
        return arguments

    def recorded(self, function: Function) -> Function:
        """Record each call with its arguments by name; raise TypeError if they do not fit."""
        signature = inspect.signature(function)
        name = function.__qualname__.rpartition("<locals>.")[2]

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            arguments = dict(signature.bind(*args, **kwargs).arguments)
            arguments.pop("self", None)
            self.calls.append((name, arguments))
            return function(*args, **kwargs)

        return call  # type: ignore[return-value]


def module_of(name: str, offered: Sequence[str], things: Mapping[str, Any]) -> ModuleType:
    """Return a module with the offered names only."""
    module = ModuleType(name)
    for thing in offered:
        setattr(module, thing, things[thing])
    return module
