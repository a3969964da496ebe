"""`--profile=DIR`, `--save-graph=DIR`, `--set=compile_only=yes`: inspect a case.

Each case writes its files into a folder named by its identifier. If selected cases share an
identifier, that folder is in one named by the node id. The meters here record nothing.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import ContextManager, Dict, List, Sequence

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.devices.base import Device
from ipubench.fixtures.poplar.poplar_options import reports_in
from ipubench.fixtures.runtimes.step import Step
from ipubench.plugins.command_line.arguments import folder_above
from ipubench.plugins.measure.base import BatchFacts, StepMeter
from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.record.text import safe_name
from ipubench.plugins.selection.selected import case_of
from ipubench.plugins.state import Run, run_of


def choose_folders(run: Run, items: Sequence[pytest.Item]) -> None:
    """Choose separate folders for selected cases that share an identifier."""
    found: Dict[str, List[str]] = {}
    for item in items:
        case = case_of(item)
        if case is not None:
            found.setdefault(case.id, []).append(item.nodeid)
    shared = [nodeid for nodeids in found.values() if len(nodeids) > 1 for nodeid in nodeids]
    run.selection.folders = {nodeid: safe_name(nodeid) for nodeid in shared}


def folder_of(option: str, root: str, item: pytest.Item) -> Path:
    """Make and return the folder of a case below ``root``, the value of ``option``.

    Raises CaseError if it cannot be made.
    """
    try:
        case = case_of(item)
        assert case is not None
        own = run_of(item.config).selection.folders.get(item.nodeid, "")
        folder = folder_above(item.config, root, own).resolve() / case.id
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise CaseError(f"{option}={root}: the folder cannot be made ({reason})") from None
    return folder


def device_reports(device: Device, folder: Path) -> ContextManager[None]:
    """Have the device write its reports into ``folder`` while a case is built and run."""
    if device.poplar:
        return reports_in(folder)
    return contextlib.nullcontext()


def save_graph(meter: StepMeter, step: Step) -> None:
    """With ``--save-graph``: write the graph of a compiled step into the case's folder."""
    root = options_of(meter.config).save_graph
    if root is not None:
        meter.phase("profile", "saving the graph")
        write_graph(step, folder_of("--save-graph", root, meter.item))


def write_graph(step: Step, folder: Path) -> None:
    """Write a compiled step's graph into an existing folder. Raises CaseError if it has none."""
    if step.save_graph is None:
        raise CaseError(
            f"--save-graph: {type(step).__name__} has no graph to save; only kernels do"
        )
    step.save_graph(folder)


def profile(step: Step, folder: Path) -> None:
    """Run a step once and write a trace into an existing folder, unless the device does."""
    if step.profile is None:
        step()
    else:
        step.profile(folder)


class ProfileMeter(StepMeter):
    """Profiles one call, after one that warms up; times and records nothing."""

    def work_on(self, step: Step, facts: BatchFacts) -> None:
        """Profile the step."""
        root = options_of(self.config).profile
        assert root is not None
        folder = folder_of("--profile", root, self.item)
        with device_reports(self.device, folder):
            self.phase("build", "building")
            step.build()
            step.compile()
            save_graph(self, step)
            if step.rounds.calibrated:
                given = "batches_per_step" in self.case.overrides
                step.batches_per_step = self.case.config.batches_per_step if given else 1
            step()
            self.phase("profile", "profiling")
            profile(step, folder)
            self.close()
        pytest_benchmark_adapter.leave_out(self.benchmark)
        lines = self.case_run.run.closing
        line = f"profiled and not timed; the reports are below {root}"
        if line not in lines:
            lines.append(line)


class CompileMeter(StepMeter):
    """Builds and compiles the step; neither runs nor records it."""

    def work_on(self, step: Step, facts: BatchFacts) -> None:
        """Build, compile, and add a line with the times to the summary."""
        built = self.build(step)
        save_graph(self, step)
        self.close()
        pytest_benchmark_adapter.leave_out(self.benchmark)
        saved = built.saved_seconds
        more = "" if saved is None else f" ({saved:.1f} s less than without its cache)"
        self.case_run.run.closing.append(
            f"{self.case.id}: built in {built.build_seconds:.1f} s, compiled in "
            f"{built.compile_seconds:.1f} s{more}, not run"
        )
