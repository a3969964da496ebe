"""Reads the files of both collectors: measurements by load and case."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Dict, List

from ipubench.plugins.record.files import json_lines
from scripts.gate_study.neighbours import LOADS

SLOWDOWNS = ("0.0", "0.01", "0.02", "0.05", "0.1")
EQUAL, MUCH_SLOWER = SLOWDOWNS[0], SLOWDOWNS[-1]
#: Case -> its measurements.
Pool = Dict[str, List[Dict[str, Any]]]
SHOWN = [f"{100 * float(level):g}%" for level in SLOWDOWNS]


def short_name(case: str) -> str:
    """Return the identifier of a case, with its framework if two cases share one."""
    framework = " (tensorflow)" if "cnn_tensorflow" in case else ""
    return case.split("[")[1].rstrip("]").replace("-synthetic", "") + framework


def add_trial_options(parser: argparse.ArgumentParser, collector: str, capped: str) -> None:
    """Add the options of trials over a collector's pool; ``capped`` is what --cap counts."""
    parser.add_argument("--pool", type=Path, required=True, help=f"file that {collector} wrote")
    parser.add_argument("--trials", type=int, default=400, help="per case and slow-down (400)")
    parser.add_argument("--gate", type=float, default=2.0, help="percent (2)")
    parser.add_argument("--cap", type=int, default=16, help=f"{capped} at most (16)")
    parser.add_argument("--cases", type=int, default=25, help="compared in a run (25)")


def pools_of(path: Path) -> Dict[str, Pool]:
    """Return load -> its measurements. Raises OSError."""
    pools: Dict[str, Pool] = {load: {} for load in LOADS}
    for line in json_lines(path):
        if line.get("load") in LOADS:  # not a journal's line
            pools[line["load"]].setdefault(line["case"], []).append(line)
    return {load: pool for load, pool in pools.items() if pool}


def pools_given(
    parser: argparse.ArgumentParser, path: Path, load: str, least: int
) -> Dict[str, Pool]:
    """Return the pools of a file that must have ``least`` lines of each case under a load."""
    try:
        pools = pools_of(path)
    except OSError as error:
        parser.error(f"--pool={path} cannot be read: {error.strerror}")
    if load not in pools:
        others = f"; it has the loads {', '.join(pools)}" if pools else ""
        parser.error(f"--pool={path} has no measurements under the load {load}{others}")
    short = [short_name(case) for case, lines in pools[load].items() if len(lines) < least]
    if short:
        parser.error(
            f"--pool={path} needs {least} measurements of each case under the load {load}; "
            f"it has fewer of {', '.join(short)}"
        )
    return pools
