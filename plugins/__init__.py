"""How a run is chosen, measured, stored, judged and shown.

Pytest takes this package for a plugin (conftest.py names it). It adds the options and fixtures.
plugins/session.py has the hooks of a run. It is imported and registered as soon as there is
something to measure: other tests of a project do not pay for it.
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
from ipubench.plugins.command_line.options import sections
from ipubench.plugins.command_line.words import MEASURING_OPTIONS, PART, given_arguments

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

    For each name in ``pytest_plugins`` pytest would read the entry points of all that is installed.
    """
    config: Any = pluginmanager.get_plugin("pytestconfig")
    registration.add_options(parser, config)
    for module in FIXTURES:
        _register(pluginmanager, module)
    pluginmanager.register(Waiting(parser), "ipubench-waiting")


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: List[str]
) -> Generator[None, None, None]:
    """Add the short spellings of options once these files have declared theirs."""
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

    # Before pytest's terminal, its JUnit XML and pytest-xdist are configured.
    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> Optional[int]:
        """With ``--help-ipubench`` show our options."""
        return registration.show_help(config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Begin at once in the suite itself, and where the command line asks for anything of ours.

        What settings say about measuring waits for something to measure.
        """
        manager = config.pluginmanager
        registration.withdraw_short(self._parser)
        words = getattr(config, "args", ())  # pytest 7 with --help has none
        for marker in MARKERS:
            config.addinivalue_line("markers", marker)
        # After pytest-benchmark's, in whose place it stands.
        _register(manager, "plugins.measure.benchmark_fixture")
        if (
            not manager.has_plugin("ipubench")  # -p ipubench
            or devices.borrows()
            or PART in getattr(config, "workerinput", {})
            or config.getoption("dist", "no") != "no"
            or any(word.split("::")[0].endswith((".yml", ".yaml")) for word in words)
            or given_arguments(config)
            or any(self._is_given(config, dest) for dest in self._defaults)
        ):
            _begin(config)

    def pytest_report_header(self, config: pytest.Config) -> Optional[str]:
        """Name the spellings that others have."""
        return registration.header(config)

    def _is_given(self, config: pytest.Config, dest: str) -> bool:
        """Return whether an option has another value than its default.

        Before pytest 9 the parser has no default of a flag: it is False then.
        """
        value = getattr(config.option, dest)
        return value is not False and value != self._defaults[dest]

    # Before pytest-xdist's own.
    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_xdist_auto_num_workers(self, config: pytest.Config) -> Optional[int]:
        """Return how many workers ``-n auto`` starts: one for each device."""
        from ipubench.plugins.fleet.controller import automatic_workers

        return automatic_workers(config)

    def pytest_make_parametrize_id(self, val: object, argname: str) -> Optional[str]:
        """Name a test by the mask of a parameter that is a secret; pytest numbers several."""
        return parameter_name(val, argname)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Begin with the first bench function."""
        if metafunc.definition.get_closest_marker("cases") is not None:
            begun = _begin(metafunc.config, metafunc.definition.session)
            if begun is not None:
                begun.pytest_generate_tests(metafunc)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Begin with the first test that may measure.

        With --benchmark-disable these ask for ``meter``, or have settings that are ours alone.
        """
        names = set(getattr(item, "fixturenames", ()))
        disabled = item.config.getoption("benchmark_disable", False)
        measures = not names.isdisjoint({"meter"} if disabled else {*MEASURING, *REACHING})
        if "benchmark" not in names:
            measures = measures or item.get_closest_marker("benchmark") is not None
        if measures:
            begun = _begin(item.config, item.session)
            if begun is not None:
                begun.pytest_itemcollected(item)


def _begin(config: pytest.Config, session: Optional[pytest.Session] = None) -> Optional[Any]:
    """Register the hooks of a run; return them, or None if they were registered before.

    ``session``: one that has started, so that pytest calls ``pytest_sessionstart`` no more.
    """
    if not _register(config.pluginmanager, SESSION):
        return None
    begun: Any = config.pluginmanager.get_plugin(f"ipubench.{SESSION}")
    begun.begin(config)
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
            f"{sys.executable} has no {error.name}, which ipubench needs; run pytest in the "
            "environment that has it (after `make setup`: .venv/bin/python -m pytest)"
        ) from error
    pluginmanager.register(imported, name)
    return True
