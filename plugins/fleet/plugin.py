"""`--tx ssh=HOST` and `--hosts=FILE`: whether a run has several hosts, and which."""

from __future__ import annotations

from typing import Sequence

import pytest

from ipubench.plugins.command_line.words import is_worker, only_lists, only_tests
from ipubench.plugins.fleet import hosts
from ipubench.plugins.record import pytest_benchmark_adapter

#: Options of pytest by which it shows something and runs nothing.
SHOWS = ("markers", "showfixtures", "show_fixtures_per_test", "cacheshow", "setupplan", "setuponly")
#: What a run on several hosts cannot do, and why.
REFUSED = {
    "against": "it measures in pairs on one host",
    "within": "it plans one case after the other",
    "profile": "its files would be on the host that profiles",
    "save_graph": "its files would be on the host that measures",
    "launcher_args": "each would start instances on the others",
    "instance": "it is one process of one case",
}


# Before plugins/processes/controller.py and pytest-xdist look at --tx.
@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Start the fleet that was asked for, before a device is chosen here."""
    option = config.option
    tx = list(config.getoption("tx", None) or [])
    remote = any(text.rpartition("*")[2] != hosts.LOCAL for text in tx)
    if is_worker(config) or only_tests(config) or any(config.getoption(o, None) for o in SHOWS):
        return
    if option.hosts is None and not remote:
        if option.each_host:
            raise pytest.UsageError("--each-host needs hosts: add --hosts=FILE, or --tx ssh=HOST")
        return
    _refuse(config, tx)
    try:
        found = hosts.of_tx(tx) if option.hosts is None else hosts.of_file(option.hosts)
        if tx:
            option.dist, option.tx, option.numprocesses = "no", [], None
        if not only_lists(config):
            _start(config, found)
    except hosts.FleetError as error:
        raise pytest.UsageError(str(error)) from None


def _start(config: pytest.Config, found: Sequence[hosts.HostSpec]) -> None:
    """Reach the hosts; from here on the run is theirs. Raises FleetError."""
    try:
        from ipubench.plugins.fleet.controller import Fleet  # not before: it imports execnet
    except ModuleNotFoundError as error:
        raise hosts.FleetError(
            f"several hosts need {error.name}: pip install pytest-xdist installs it"
        ) from error
    fleet = Fleet(config, found)
    config.add_cleanup(fleet.members.close)
    fleet.open()
    pytest_benchmark_adapter.measure_elsewhere(config)
    config.pluginmanager.register(fleet, "ipubench-fleet")


def _refuse(config: pytest.Config, tx: Sequence[str]) -> None:
    """Raise UsageError for what several hosts cannot do."""
    option = config.option
    if option.hosts is not None and tx:
        raise pytest.UsageError("--hosts names the hosts: leave out -n and --tx")
    for name, why in REFUSED.items():
        if getattr(option, name) is not None:
            flag = "--" + name.replace("_", "-")
            raise pytest.UsageError(f"{flag} on several hosts: {why}; leave out one of them")
    for name in ("baseline_save", "resume"):
        if option.each_host and getattr(option, name):
            flag = "--" + name.replace("_", "-")
            raise pytest.UsageError(
                f"{flag} has room for one result of a case: leave out --each-host"
            )
