"""The recorder of the PopART stand-in, how a test controls it, and its errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, List

from tests.doubles.record import Calls

if TYPE_CHECKING:
    from tests.doubles.popart.session import DeviceInfo

Array = Any  # np.ndarray


@dataclass
class Recorder(Calls):
    """The calls so far, and the failures to produce."""

    #: Sessions and devices made so far.
    sessions: List[Any] = field(default_factory=list)
    devices: List[DeviceInfo] = field(default_factory=list)
    #: IPUs of the device that has the requested number.
    ipus_of_id: int = 1
    #: Error messages; empty if nothing fails.
    attach_error: str = ""
    compile_error: str = ""

    @property
    def options(self) -> Dict[str, Any]:
        """The options of the last session, by name."""
        found: Dict[str, Any] = self.sessions[-1]._options._values
        return found


recorder = Recorder()
recorded = recorder.recorded


class popart_exception(Exception):
    """Raised by PopART."""


class poplar_exception(Exception):
    """Raised by Poplar."""


class poplibs_exception(Exception):
    """Raised by Poplar's libraries."""
