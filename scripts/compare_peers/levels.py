"""The instruction sets to compare on: the machine's own, and AVX2, which frameworks imitate.

Frameworks read the variables that limit them at import, so a level is the environment of a new
process.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
from pathlib import Path
from typing import Dict, Mapping

from ipubench.fixtures.machine.files import IMPORT_ROOT
from ipubench.fixtures.machine.processor import ISA_FLAGS, Topology, read_topology

NATIVE, AVX2 = "native", "avx2"
#: The levels that each value of ``--level`` stands for.
CHOICES = {NATIVE: (NATIVE,), AVX2: (AVX2,), "both": (NATIVE, AVX2)}
# The project's tests use the same variables.
MAKEFILE = IMPORT_ROOT / "Makefile"


def avx2_variables(makefile: Path = MAKEFILE) -> Dict[str, str]:
    """Return the variables that limit frameworks to AVX2, with their values."""
    text = makefile.read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.search(r"^AS_AVX2 := (.*)$", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"{makefile} has no line AS_AVX2")
    return dict(word.split("=", 1) for word in shlex.split(found[1]))


def environment_of(level: str, environ: Mapping[str, str] = os.environ) -> Dict[str, str]:
    """Return the environment of a process at a level."""
    return {**environ, **(avx2_variables() if level == AVX2 else {})}


def missing(level: str, topology: Topology) -> str:
    """Return why a machine cannot run at a level; "" if it can."""
    if level == NATIVE:
        return ""
    if "avx2" not in topology.flags:
        return f"this machine ({platform.machine()}) has no AVX2"
    if topology.flags[-1] == "avx2":
        return "AVX2 is this machine's own level, which the rows of native show"
    return ""


def describe(topology: Topology) -> str:
    """Describe a processor: its model, best instruction set and number of threads."""
    best = topology.flags[-1] if topology.flags else f"below {ISA_FLAGS[0]}"
    return f"{topology.model}, {best}, {len(topology.cores)} threads"


def topology_at(level: str) -> Topology:
    """Return this machine as frameworks see it at a level."""
    return read_topology(environ=environment_of(level))
