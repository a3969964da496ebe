"""The role of this process in a run."""

from __future__ import annotations

import enum

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.command_line import options_of
from ipubench.plugins.command_line.arguments import only_tests

#: execnet's kind of worker that is a process of this machine.
LOCAL = "popen"


class Role(enum.Enum):
    """What this process does; it stays the same from the command line to the end."""

    #: It measures its cases and keeps their results.
    MAIN = "main"
    #: As MAIN, but workers of pytest-xdist measure.
    CONTROLLER = "controller"
    #: It measures cases for a controller, which keeps the results.
    WORKER = "worker"
    #: It carries out the commands of the run that measures the case.
    INSTANCE = "instance"
    #: Another run has started it, for one of its cases or to count; it reads the results.
    CHILD = "child"
    #: It lists cases and runs none.
    LISTING = "listing"

    @property
    def measures(self) -> bool:
        """Whether it runs cases by its own rules."""
        return self not in (Role.LISTING, Role.INSTANCE)

    @property
    def keeps_results(self) -> bool:
        """Whether it has a journal file, judges, and ends with lines and files of its own."""
        return self.measures and self is not Role.WORKER

    @property
    def shares_work(self) -> bool:
        """Whether several workers measure its run."""
        return self in (Role.CONTROLLER, Role.WORKER)


def role_of(config: pytest.Config) -> Role:
    """Return the role that the command line and the environment give to this process."""
    option = options_of(config)
    if config.option.collectonly or option.describe or option.dry_run:
        return Role.LISTING
    if hasattr(config, "workerinput"):
        return Role.WORKER
    if distributes(config):
        return Role.CONTROLLER
    if option.instance is not None:
        return Role.INSTANCE
    return Role.CHILD if devices.borrows() else Role.MAIN


def distributes(config: pytest.Config) -> bool:
    """Return whether the command line has workers; pytest-xdist alone distributes our tests."""
    given = names_hosts(config) or config.getoption("dist", "no") != "no"
    return given and not only_tests(config)


def names_hosts(config: pytest.Config) -> bool:
    """Return whether the command line has workers that are not processes of this machine."""
    tx = config.getoption("tx", None) or []
    return any(text.rpartition("*")[2] != LOCAL for text in tx)
