"""Sets the conditions for measuring: threads, allocator, options of Poplar's engine."""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from typing import Dict

from ipubench.fixtures import devices
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.machine.code_folders import claim_inductor_folder
from ipubench.fixtures.machine.loopback import ALLOCATOR
from ipubench.fixtures.poplar.poplar_options import ENGINE_OPTIONS
from ipubench.plugins.record.structs import Facts, Json

# Numbers of glibc's mallopt parameters, from malloc.h.
MALLOPT = {"mmap_threshold": -3, "trim_threshold": -1}


def tune_allocator() -> Dict[str, bool]:
    """Make glibc keep large freed buffers instead of unmapping them; return what it accepted.

    By default, depending on the heap's history, each large activation may be mapped, faulted in
    page by page and unmapped in each call, so processes randomly differ in speed. A C library
    without mallopt accepts nothing.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return dict.fromkeys(ALLOCATOR, False)
    return {name: mallopt(MALLOPT[name], value) == 1 for name, value in ALLOCATOR.items()}


def apply_conditions(kind: str, affinity: str, allocator: str) -> Facts:
    """Tune this process for measuring on a kind of device; return the conditions for the record.

    ``affinity`` and ``allocator`` are the options; the device is attached.
    """
    if "torch" in sys.modules:  # a callable may use torch.compile
        try:
            claim_inductor_folder()
        except CaseError as error:
            warnings.warn(str(error), stacklevel=2)
    found: Dict[str, Json] = {"allocator": "system"}
    if devices.of(kind).poplar:
        # Poplar adds these to the case's own options, and they change the program.
        found["poplar_engine_options"] = os.environ.get(ENGINE_OPTIONS)
    if not devices.of(kind).on_cpu:
        return found
    found.update(affinity=affinity, omp_num_threads=os.environ.get("OMP_NUM_THREADS"))
    if allocator == "tuned":
        accepted = tune_allocator()
        found["allocator"] = "tuned" if all(accepted.values()) else f"tuned in part: {accepted}"
    return found
