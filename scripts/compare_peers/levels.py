"""The instruction sets that a comparison runs on: the machine's own, and AVX2, which it imitates.

Frameworks read the variables that limit them when they are imported, so a level is an environment
that a process starts with.
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
#: What ``--level`` takes, and the levels that each value stands for.
CHOICES = {NATIVE: (NATIVE,), AVX2: (AVX2,), "both": (NATIVE, AVX2)}
# Where the project keeps the variables, for its tests too.
MAKEFILE = IMPORT_ROOT / "Makefile"


def avx2_variables(makefile: Path = MAKEFILE) -> Dict[str, str]:
    """Return the variables that make frameworks compute as on an AVX2 CPU, and their values."""
    text = makefile.read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.search(r"^AS_AVX2 := (.*)$", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"{makefile} has no line AS_AVX2")
    return dict(word.split("=", 1) for word in shlex.split(found[1]))


def environment_of(level: str, environ: Mapping[str, str] = os.environ) -> Dict[str, str]:
    """Return the environment of a process that computes at a level."""
    return {**environ, **(avx2_variables() if level == AVX2 else {})}


def missing(level: str, topology: Topology) -> str:
    """Return why a machine cannot be measured at a level, or nothing where it can be."""
    if level == NATIVE:
        return ""
    if "avx2" not in topology.flags:
        return f"this machine ({platform.machine()}) has no AVX2"
    if topology.flags[-1] == "avx2":
        return "AVX2 is this machine's own level, which the rows of native show"
    return ""


def describe(topology: Topology) -> str:
    """Return a processor in words: its model, its best instruction set, its threads."""
    best = topology.flags[-1] if topology.flags else f"below {ISA_FLAGS[0]}"
    return f"{topology.model}, {best}, {len(topology.cores)} threads"


def topology_at(level: str) -> Topology:
    """Return this machine as frameworks see it at a level."""
    return read_topology(environ=environment_of(level))
