"""What was called on the stand-in, and what shall go wrong."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Tuple, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass
class Recorder:
    """The calls since the last :meth:`reset`, and the state of the device that they act on."""

    #: (qualified name, arguments by name), in order; ``self`` is left out.
    calls: List[Tuple[str, Dict[str, Any]]] = field(default_factory=list)
    #: Options that differed from their defaults when the device was last configured.
    configured: Dict[str, Any] = field(default_factory=dict)
    #: TF_POPLAR_FLAGS at that time.
    flags: str = ""
    #: Message of the error that running a program raises; empty: it runs.
    run_error: str = ""
    #: IPUs that are attached; 0: none.
    attached: int = 0
    #: Message of the error that attaching to a device raises; empty: a device is there.
    attach_error: str = ""
    #: Group of IPUs -> how many it has; others have one.
    groups: Dict[int, int] = field(default_factory=dict)
    #: Queues made so far.
    queues: List[Any] = field(default_factory=list)

    @property
    def synthetic(self) -> bool:
        """Whether nothing is transferred between host and device."""
        return "--use_synthetic_data" in self.flags.split()

    def reset(self) -> None:
        """Forget everything; nothing goes wrong from now on."""
        self.__init__()  # type: ignore[misc]

    def names(self) -> List[str]:
        """Return the qualified names of all calls, in order."""
        return [name for name, _ in self.calls]

    def arguments(self, name: str) -> Dict[str, Any]:
        """Return the arguments of the only call of that name."""
        (arguments,) = [given for called, given in self.calls if called == name]
        return arguments


recorder = Recorder()


def recorded(function: Function) -> Function:
    """Record each call with its arguments by name; a call that does not fit raises TypeError."""
    signature = inspect.signature(function)
    name = function.__qualname__.rpartition("<locals>.")[2]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        arguments = dict(signature.bind(*args, **kwargs).arguments)
        arguments.pop("self", None)
        recorder.calls.append((name, arguments))
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]
