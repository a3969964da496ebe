"""`--profile=DIR`, `--save-graph=DIR`: what a case leaves for people who look inside it.

Each case has a folder of its own, named by its identifier.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import ContextManager

from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.devices import IPU_KINDS
from ipubench.fixtures.devices.base import Device
from ipubench.fixtures.machine.paths import user_path
from ipubench.fixtures.poplar.options import reports_in


def folder_of(option: str, root: str, case: Case) -> Path:
    """Return the folder of a case below the one that ``option`` names; CaseError if it fails."""
    try:
        folder = user_path(root).resolve() / case.id
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise CaseError(f"{option}={root}: the folder cannot be made ({reason})") from None
    return folder


def device_reports(device: Device, folder: Path) -> ContextManager[None]:
    """Return what makes the device itself report into ``folder`` while a case is built and run."""
    if device.kind in IPU_KINDS:
        return reports_in(folder)
    return contextlib.nullcontext()
