"""The pytest plugin: chooses, measures, stores, judges and shows the cases of a run.

This module adds the options and fixtures. plugins/session.py has the hooks of a run. It is imported
and registered as soon as there is something to measure, so a project's other tests stay fast.

pytest reads the word PYTEST_DONT_REWRITE here: ipubench.PlainImports has imported this module.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Generator, List, Optional

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.case.cases import MEASURING, REACHING
from ipubench.fixtures.case.masking import parameter_name
from ipubench.fixtures.command_line import PREFIX
from ipubench.plugins.command_line import registration
from ipubench.plugins.command_line.arguments import (
    MEASURING_OPTIONS,
    XDIST_KEY,
    is_disabled,
    names_yaml,
    typed_measuring_arguments,
)
from ipubench.plugins.command_line.options import sections
from ipubench.plugins.run import loading

SESSION = "plugins.session"
#: Modules with fixtures; each imports what a fixture needs when it is asked for.
FIXTURES = ("plugins.measure.fixture", "plugins.benchmarks_yml.fixture", "fixtures.pytest_fixtures")

MARKERS = (
    "cases: the configurations of a bench function (see ipubench.cases)",
    "inference: cases that run a model forward",
    "evaluation: cases that run a model forward and compute its loss",
    "training: cases that update weights",
    "tensorflow: cases on TensorFlow",
    "popart: cases on PopART, or on a host its ONNX graphs",
    "torch: cases on PyTorch",
    "triton: cases behind a Triton Inference Server",
    "spec: entries of a benchmarks.yml file",
    "ipus(n): cases whose configuration needs n IPUs",
    "sweep: cases that a usual run leaves out, run with --sweep",
    "quick: a few minutes across the whole suite (-m quick)",
    'gate(throughput="3%", latency_p99="10%"): what the gate allows a case',
)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the options and the fixtures.

    A list in ``pytest_plugins`` would be slower: for each name in it, pytest reads the entry points
    of all installed packages.
    """
    config: Any = pluginmanager.get_plugin("pytestconfig")
    loading.begin()
    config.add_cleanup(loading.end)
    registration.add_options(parser, config)
    for module in FIXTURES:
        _register(pluginmanager, module)
    pluginmanager.register(Waiting(parser), "ipubench-waiting")


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: List[str]
) -> Generator[None, None, None]:
    """Add the short spellings of options after the first conftest.py files have declared theirs."""
    registration.find_paths(early_config, parser, args)
    yield
    registration.add_short(parser, early_config)


class Waiting:
    """Registers plugins/session.py as soon as the command line or a test asks for it."""

    def __init__(self, parser: pytest.Parser) -> None:
        self._parser = parser
        options = [option for section in sections() for option in section.options]
        defaults = {option.dest: option.settings.get("default") for option in options}
        measuring = [PREFIX + name for name in MEASURING_OPTIONS]
        self._defaults = {k: v for k, v in defaults.items() if k not in measuring}

    # Runs before pytest's terminal, JUnit XML and pytest-xdist are configured.
    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> Optional[int]:
        """Check the kind of device. With ``--help-ipubench`` show our options."""
        registration.check_device(config)
        return registration.show_help(config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Begin at once in the suite itself, or if the command line has an option of ours.

        Options about measuring that come from settings wait until there is something to measure.
        """
        manager = config.pluginmanager
        registration.withdraw_short(self._parser)
        for marker in MARKERS:
            config.addinivalue_line("markers", marker)
        # Registered after pytest-benchmark's fixture, to replace it.
        _register(manager, "plugins.measure.benchmark_fixture")
        if (
            not manager.has_plugin("ipubench")  # -p ipubench
            or devices.borrows()
            or XDIST_KEY in getattr(config, "workerinput", {})
            or config.getoption("dist", "no") != "no"
            or config.getoption("tx", None)
            or names_yaml(config)
            or typed_measuring_arguments(config)
            or any(self._is_given(config, dest) for dest in self._defaults)
        ):
            _begin(config)
        else:
            loading.end()

    def pytest_keyboard_interrupt(self, excinfo: Any) -> None:
        """Leave pytest with the signal's exit code: there is no session to complete."""
        if isinstance(excinfo.value, loading.Loading):
            raise excinfo.value

    def pytest_report_header(self, config: pytest.Config) -> Optional[str]:
        """Return a line about our short spellings that other plugins have taken."""
        return registration.header(config)

    def _is_given(self, config: pytest.Config, dest: str) -> bool:
        """Return whether an option differs from its default.

        A flag without a default is False before pytest 9.
        """
        value = getattr(config.option, dest)
        return value is not False and value != self._defaults[dest]

    # Runs before pytest-xdist's implementation.
    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_xdist_auto_num_workers(self, config: pytest.Config) -> Optional[int]:
        """Return how many workers ``-n auto`` starts: one for each device."""
        from ipubench.plugins.fleet.controller import automatic_workers

        return automatic_workers(config)

    def pytest_make_parametrize_id(self, val: object, argname: str) -> Optional[str]:
        """Return a mask for a parameter that is a secret; pytest numbers several masks."""
        return parameter_name(val, argname)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Begin the run at the first bench function."""
        if metafunc.definition.get_closest_marker("cases") is not None:
            begun = _begin(metafunc.config, metafunc.definition.session)
            if begun is not None:
                begun.pytest_generate_tests(metafunc)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Begin the run at the first test that may measure.

        With --benchmark-disable only tests with ``meter``, or with the marker, do.
        """
        names = set(getattr(item, "fixturenames", ()))
        only_meter = is_disabled(item.config)
        measures = not names.isdisjoint({"meter"} if only_meter else {*MEASURING, *REACHING})
        if "benchmark" not in names:
            measures = measures or item.get_closest_marker("benchmark") is not None
        if measures:
            begun = _begin(item.config, item.session)
            if begun is not None:
                begun.pytest_itemcollected(item)


def _begin(config: pytest.Config, session: Optional[pytest.Session] = None) -> Optional[Any]:
    """Register the hooks of a run; return them, or None if they were registered before.

    ``session``: set if it has started already, so that pytest no longer calls
    ``pytest_sessionstart``.
    """
    if not _register(config.pluginmanager, SESSION):
        return None
    begun: Any = config.pluginmanager.get_plugin(f"ipubench.{SESSION}")
    try:
        begun.begin(config)
    except BaseException:
        config.pluginmanager.unregister(begun)  # its hooks need what begin() makes
        raise
    if session is not None:
        begun.pytest_sessionstart(session)
    return begun


def _register(pluginmanager: pytest.PytestPluginManager, module: str) -> bool:
    """Import and register a module; return False if that was done before, or is blocked."""
    name = f"ipubench.{module}"
    if pluginmanager.has_plugin(name) or pluginmanager.is_blocked(name):  # by `-p`
        return False
    try:
        imported = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if str(error.name).startswith("ipubench"):
            raise
        raise pytest.UsageError(
            f"{sys.executable} has no {error.name}, which ipubench needs; run pytest in an "
            "environment that has it (after `make setup`: .venv/bin/python -m pytest)"
        ) from error
    pluginmanager.register(imported, name)
    return True
