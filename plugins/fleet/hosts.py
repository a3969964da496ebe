"""The workers of `--tx`: pytest-xdist's specifications, with a name for each worker.

``ssh=ADDRESS//python=PATH//chdir=FOLDER`` is a host with a checkout of the project in FOLDER. With
``4*`` before it, four workers use a device of the host each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence

from ipubench.fixtures.case.errors import CaseError
from ipubench.plugins.command_line.role import LOCAL

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class FleetError(CaseError):
    """A host cannot be used; the message has the host, and what to do."""


@dataclass(frozen=True)
class HostWorker:
    """A worker on a host."""

    name: str
    text: str  # pytest-xdist's specification
    address: str  # for ssh; '' is this machine
    folder: Optional[str]  # the checkout there; None: this one
    number: Optional[int] = None  # of its device; None: any


def of_tx(specs: Sequence[str]) -> List[HostWorker]:
    """Return the workers of ``--tx``. Raises FleetError."""
    from execnet import XSpec  # pytest-xdist needs it

    found: Dict[str, HostWorker] = {}
    for given in specs:
        count, _, text = given.rpartition("*")
        try:
            total, spec = int(count or 1), XSpec(text)
        except (ValueError, AttributeError, IndexError) as error:
            raise FleetError(f"--tx={given}: {error}") from error
        address = str(spec.ssh or "")
        if total < 1 or not (spec.popen or (address and spec.chdir)):
            raise FleetError(
                f"--tx={given}: a host is ssh=ADDRESS//chdir=FOLDER, with the checkout of the "
                f"project there, or {LOCAL}, this machine"
            )
        host = spec.id or (address.split()[-1].split("@")[-1] if address else LOCAL)
        for number in range(total):
            name = host if total == 1 else f"{host}.{number}"
            if not NAME.fullmatch(name):
                raise FleetError(f"--tx={given}: {name!r} cannot name a host: add //id=NAME")
            if name in found:
                raise FleetError(
                    f"--tx={given}: {name} is there twice; to use several devices of a host write "
                    "2*, to use it twice give each a name with //id=NAME"
                )
            # pytest-xdist gives a worker that starts again another id.
            own = "//".join(part for part in text.split("//") if not part.startswith("id="))
            found[name] = HostWorker(
                name,
                f"{own}//worker={name}",
                address,
                spec.chdir,
                number if total > 1 else None,
            )
    return list(found.values())
