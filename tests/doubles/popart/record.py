"""What the stand-in of PopART notes, how a test steers it, and the errors that it raises."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, List

from tests.doubles.record import Calls

if TYPE_CHECKING:
    from tests.doubles.popart.session import DeviceInfo

Array = Any  # np.ndarray


@dataclass
class Recorder(Calls):
    """What was called, and what shall go wrong."""

    #: Sessions and devices made so far.
    sessions: List[Any] = field(default_factory=list)
    devices: List[DeviceInfo] = field(default_factory=list)
    #: IPUs of the device that is asked for by number.
    ipus_of_id: int = 1
    #: Messages of errors; empty: nothing goes wrong.
    attach_error: str = ""
    compile_error: str = ""

    @property
    def options(self) -> Dict[str, Any]:
        """The session options that the last session was given, by name."""
        found: Dict[str, Any] = self.sessions[-1]._options._values
        return found


recorder = Recorder()
recorded = recorder.recorded


class popart_exception(Exception):
    """What PopART raises."""


class poplar_exception(Exception):
    """What Poplar raises."""


class poplibs_exception(Exception):
    """What Poplar's libraries raise."""
