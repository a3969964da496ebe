"""Where IPU programs are stored, so that the other processes of a case need not compile them."""

from __future__ import annotations

import os
import shutil

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.machine import scratch
from ipubench.fixtures.machine.environment import export
from ipubench.fixtures.machine.files import require_private, user_path
from ipubench.fixtures.poplar.executables import storing
from ipubench.plugins.command_line.role import Role
from ipubench.plugins.state import Run

OPTION = "--executable-cache"


def store_executables(run: Run) -> None:
    """Export the folder of --executable-cache, or one for the run's own fresh processes.

    Raises UsageError.
    """
    given, device = options_of(run.config).executable_cache, run.selection.device
    kind = devices.of(device)
    stores = kind.poplar and not kind.emulated
    if given is not None and not stores:
        raise pytest.UsageError(
            f"{OPTION}: only programs for IPUs are stored in it, and this run has "
            f"--device={device}; leave it out, or give --device=ipu"
        )
    if not run.role.measures:
        return
    if given is None:
        if stores and _starts_fresh_processes(run):
            run.executables = scratch.make("executables")
            export(storing(os.environ, run.executables, given=False))
        return
    folder = user_path(given).absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        require_private(folder, f"{OPTION}=DIR")
    except (OSError, CaseError) as error:
        raise pytest.UsageError(f"{OPTION}={given}: {error}") from None
    export(storing(os.environ, folder, given=True))


def forget_executables(run: Run) -> None:
    """Empty the run's own folder after a case, because executables are large."""
    for path in run.executables.iterdir() if run.executables is not None else ():
        shutil.rmtree(str(path)) if path.is_dir() else path.unlink()


def _starts_fresh_processes(run: Run) -> bool:
    """Return whether this process may measure a case again in fresh ones, of the same SDK."""
    option = options_of(run.config)
    # A stored program may lack the counter.
    counts = "report_hw_cycle_count" in run.selection.assignments
    other_sdk = option.against is not None and not option.against.startswith(("git:", "pip:"))
    fresh = (option.baseline_save, option.baseline, option.processes, option.against)
    return any(fresh) and not (
        run.role is Role.CONTROLLER or counts or other_sdk or option.launcher_args
    )
