"""`--profile=DIR`, `--save-graph=DIR`: what a case leaves for people who look inside it.

Each case has a folder of its own, named by its identifier.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import ContextManager

from fixtures.config import Case
from fixtures.devices import IPU_KINDS
from fixtures.devices.base import Device
from fixtures.errors import CaseError
from fixtures.paths import user_path
from fixtures.poplar import reports_in


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
