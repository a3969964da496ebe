"""How a run is chosen, measured, stored, judged and shown.

Pytest takes this package for a plugin (conftest.py names it), and the package registers the others.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from ipubench.fixtures.machine.garbage import end_without_collecting

if TYPE_CHECKING:
    import pytest

MODULES = (
    "plugins.command_line.options",
    "plugins.command_line.refusals",
    "plugins.run.time_spent",
    "plugins.run.bounds",
    "plugins.benchmarks_yml.plugin",
    "plugins.benchmarks_yml.meter",
    "plugins.selection.expand",
    "plugins.selection.deselect",
    "plugins.selection.functions",
    "plugins.selection.order",
    "plugins.listing.describe",
    "plugins.listing.dry_run",
    "plugins.selection.datasets",
    "plugins.fleet.worker",
    "plugins.fleet.controller",
    "plugins.run.journal",
    "plugins.compare.policy",
    "plugins.compare.baseline_plugin",
    "plugins.compare.against_plugin",
    "plugins.compare.fresh_processes",
    "plugins.compare.explain",
    "plugins.compare.judge_plugin",
    "plugins.baseline.history",
    "plugins.report.plugin",
    "plugins.run.interruption",
    "plugins.processes.fresh",
    "plugins.run.progress",
    "plugins.report.terminal",
    "plugins.measure.fixture",
    "plugins.measure.marked",
    "plugins.measure.memory",
    "plugins.measure.instance",
    "plugins.measure.apart",
    "plugins.measure.looking_inside",
    "plugins.run.within",
    "fixtures.pytest_fixtures",
)


MARKERS = (
    "cases: the configurations of a bench function (see ipubench.cases)",
    "inference: cases that run a model forward",
    "evaluation: cases that run a model forward and compute its loss",
    "training: cases that update weights",
    "tensorflow: cases on TensorFlow",
    "popart: cases on PopART, or on a host its ONNX graphs",
    "torch: cases on PyTorch",
    "triton: cases behind a Triton Inference Server",
    "spec: entries of a benchmarks.yml file (docs/how-to/benchmarks-yml.md)",
    "ipus(n): cases whose configuration needs n IPUs",
    "sweep: cases that a usual run leaves out, run with --sweep",
    "quick: a few minutes across the whole suite (-m quick)",
    'gate(throughput="3%", latency_p99="10%"): what the gate allows a case',
)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the plugins, each of which then adds its own options.

    For each name in ``pytest_plugins`` pytest would read the entry points of all that is installed.
    """
    for module in MODULES:
        _register(pluginmanager, module)
    spelling = importlib.import_module("ipubench.plugins.command_line.spelling")
    spelling.name_unknown_options(parser, pluginmanager)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers; register what stands before pytest-benchmark's, which is loaded."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    _register(config.pluginmanager, "plugins.measure.benchmark_fixture")
    end_without_collecting()


def _register(pluginmanager: pytest.PytestPluginManager, module: str) -> None:
    name = f"ipubench.{module}"
    if pluginmanager.has_plugin(name) or pluginmanager.is_blocked(name):  # by `-p`
        return
    try:
        imported = importlib.import_module(name)
    except ModuleNotFoundError as error:
        import pytest

        if str(error.name).startswith("ipubench"):
            raise
        raise pytest.UsageError(
            f"{sys.executable} has no {error.name}, which ipubench needs; run pytest in the "
            "environment that has it (after `make setup`: .venv/bin/python -m pytest)"
        ) from error
    pluginmanager.register(imported, name)
