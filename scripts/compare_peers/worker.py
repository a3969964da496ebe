"""Measures one group at one level in a separate process; its rows are JSON lines.

The compare_peers command starts it with the level's environment and passes the job. If a program
cannot be built or run, its row has the reason, and the worker continues.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import sys
import warnings
from dataclasses import dataclass
from statistics import median
from typing import Callable, Dict, Iterator, List, Sequence, Tuple, Type

from ipubench.fixtures import devices
from ipubench.plugins.record.host_process import end_with_parent
from ipubench.plugins.run.conditions import tune_allocator
from scripts.compare_peers.case import Case, Conditions, Family, Program, Row
from scripts.compare_peers.popart_graphs import PopartGraphs
from scripts.compare_peers.rounds import alternate, paired_ratio
from scripts.compare_peers.serving import Serving
from scripts.compare_peers.tensorflow_cnn import TensorFlowInference, TensorFlowTraining
from scripts.compare_peers.tensorflow_kernels import TensorFlowKernels
from scripts.compare_peers.torch_cnn import TorchCnn

#: The groups of cases by their ``--families`` name, in running order.
FAMILIES: Dict[str, Type[Family]] = {
    "torch": TorchCnn,
    "tensorflow": TensorFlowInference,
    "training": TensorFlowTraining,
    "kernels": TensorFlowKernels,
    "popart": PopartGraphs,
    "serving": Serving,
}
#: Runs only on request: it starts a server and its clients.
USUAL = tuple(name for name in FAMILIES if name != "serving")

OURS = "ours"


@dataclass(frozen=True)
class Job:
    """What one process measures."""

    family: str
    level: str
    precision: str
    seconds: float  # of rounds for each case
    cases: Sequence[str]
    own: bool
    device: str = "cpu"


def measure(job: Job) -> Iterator[Row]:
    """Yield a row for each peer of each case. Only starting the group may raise."""
    device = devices.make(job.device)
    machine = device.attach().name if job.device == "cuda" else ""
    tune_allocator()
    family = FAMILIES[job.family](Conditions(device, job.precision, job.level, job.own))
    try:
        for name in job.cases:
            for row in rows_of(family, name, job):
                yield dataclasses.replace(row, machine=machine)
            gc.collect()
    finally:
        family.close()


def rows_of(family: Family, name: str, job: Job) -> Iterator[Row]:
    """Yield the rows of one case; a program that cannot be measured has a row with the reason."""
    empty = Row(job.family, job.level, name)
    try:
        case = family.open(name)
    except Exception as error:
        yield dataclasses.replace(empty, peer=OURS, reason=reason_of(error))
        return
    try:
        yield from _rows(case, dataclasses.replace(empty, dtype=case.dtype), job.seconds)
    finally:
        case.close()


def _rows(case: Case, empty: Row, seconds: float) -> Iterator[Row]:
    programs, reasons = built({OURS: case.ours, **case.peers})
    times: Dict[str, List[float]] = {}
    if OURS not in reasons:
        try:
            times = alternate(programs, seconds, case.call_seconds)
        except Exception as error:
            reasons[OURS] = reason_of(error)
    if OURS in reasons:
        yield dataclasses.replace(empty, peer=OURS, reason=reasons[OURS])
        return
    for peer in case.peers:
        if peer in reasons:
            yield dataclasses.replace(empty, peer=peer, reason=reasons[peer])
        else:
            yield compared(case, dataclasses.replace(empty, peer=peer), times)


def compared(case: Case, empty: Row, times: Dict[str, List[float]]) -> Row:
    """Return the row of one peer with its results."""
    own, theirs = times[OURS], times[empty.peer]
    ratio = paired_ratio(own, theirs)
    return dataclasses.replace(
        empty,
        ours=case.items / median(own),
        theirs=case.items / median(theirs),
        ratio=ratio.median,
        low=ratio.low,
        high=ratio.high,
        rounds=len(own),
    )


def built(builders: Dict[str, Callable[[], Program]]) -> Tuple[Dict[str, Program], Dict[str, str]]:
    """Return the programs, ours first, each after one run, and why the others cannot run.

    If ours cannot be built, nothing else is.
    """
    programs: Dict[str, Program] = {}
    reasons: Dict[str, str] = {}
    for name, build in builders.items():
        try:
            program = build()
            program(1)
            programs[name] = program
        except Exception as error:
            reasons[name] = reason_of(error)
            if name == OURS:
                break
    return programs, reasons


def reason_of(error: Exception) -> str:
    """Return an error as one line."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def main(arguments: List[str]) -> None:
    """Write the rows to standard output; what frameworks print goes to standard error."""
    end_with_parent()
    rows = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    for row in measure(Job(**json.loads(arguments[0]))):
        rows.write(json.dumps(dataclasses.asdict(row), allow_nan=False) + "\n")
        rows.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
