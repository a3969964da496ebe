"""A worker of `-n N`: measures the cases that the controller selected, on the device it holds.

What the controller hands over travels in xdist's ``workerinput``, and which cases are to run in a
file of the controller's; what a worker finds comes back in its reports, as plain data.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Generator, Iterator, List, Optional, Tuple

import pytest

from ipubench.fixtures.devices.lease import INHERIT_VARIABLE
from ipubench.plugins.command_line.words import worker_count
from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.record.files import JsonLinesFile
from ipubench.plugins.record.host_process import end_with_parent
from ipubench.plugins.run.results import Run, SessionResults, run_key
from ipubench.plugins.run.time_spent import spent_key

#: Our part of xdist's workerinput and workeroutput, and of a report's user_properties.
PART = "ipubench"


@dataclass(frozen=True)
class Handover:
    """What a worker needs to become one, as plain data: it travels between processes."""

    selection: str  # a file: names what the controller selected, which locks it until then
    host: str  # a file: locked by the worker that runs a case, where workers share the host
    lease_holder: int  # the process that holds the devices
    device_id: Optional[int]
    shared: bool  # whether all workers have the same device, and so must run one case at a time


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Become a worker where a controller of ours says so."""
    given = getattr(config, "workerinput", {}).get(PART)
    if given is not None:
        config.pluginmanager.register(Worker(config, Handover(**given)), "ipubench-worker")


def workers_in_turns(config: pytest.Config) -> int:
    """Return how many workers of a run measure one case at a time, this one among them."""
    given = getattr(config, "workerinput", {}).get(PART)
    return worker_count(config) if given is not None and Handover(**given).shared else 1


@contextlib.contextmanager
def of_a_run_that_goes_on() -> Iterator[None]:
    """End this worker in a line where the controller's files are gone: so is the run."""
    try:
        yield
    except FileNotFoundError:
        pytest.exit("the run that this worker belongs to has ended", pytest.ExitCode.INTERRUPTED)


class Relay(JsonLinesFile):
    """Stands in for the journal in a worker: its lines travel to the controller."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.lines: List[Dict[str, Any]] = []

    def append(self, line: Dict[str, Any]) -> None:
        """Keep a line for the next report."""
        self.lines.append(line)


class Worker:
    """Measures what it is given, on the device that the controller holds for it."""

    def __init__(self, config: pytest.Config, given: Handover) -> None:
        self.config = config
        self.selection = Path(given.selection)
        self.output: Dict[str, Any] = {}
        self.nodeids: List[Tuple[pytest.Item, str]] = []
        config.workeroutput[PART] = self.output  # type: ignore[attr-defined]
        # What this worker starts (fresh processes, instances, servers) is no worker.
        for name in [name for name in os.environ if name.startswith("PYTEST_XDIST_")]:
            del os.environ[name]
        os.environ[INHERIT_VARIABLE] = str(given.lease_holder)
        # A worker that measures, or waits for the host, does not notice that the run was killed.
        end_with_parent()
        if given.device_id is not None:
            config.option.device_id = given.device_id
        self.shared = given.shared
        with of_a_run_that_goes_on():
            self.host = Path(given.host).open("rb+")  # noqa: SIM115  open as long as the session
        config.add_cleanup(self.host.close)
        pytest_benchmark_adapter.leave_files_alone(config)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, items: List[pytest.Item]
    ) -> Generator[None, None, None]:
        """Wait until the controller has selected, and keep exactly its cases, in its order."""
        with of_a_run_that_goes_on(), self.selection.open(encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            chosen = json.load(file)
        # Without a journal so far: a test may turn out to measure.
        relay = Relay(Path(chosen["journal"] or self.config.option.results_dir))
        if chosen["journal"] is not None:
            # As in a run without workers: a test may change the working directory.
            self.config.option.results_dir = str(relay.path.parent.absolute())
        results = SessionResults(suspects=chosen["suspects"])
        self.config.stash[run_key] = Run(relay, results, chosen["order"])
        found = {item.nodeid: item for item in items}
        kept = [found[nodeid] for nodeid in chosen["nodeids"] if nodeid in found]
        self.nodeids = [(item, item.nodeid) for item in kept]  # an item's hash is its node id's
        items[:] = kept
        yield
        # A plugin that leaves out some of what is there would do so a second time.
        items[:] = kept

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        """Take back the ``@group`` of ``--dist=loadgroup``, which xdist knows by now.

        Results are kept under the node id, and a case has the same one in every run.
        """
        for item, nodeid in self.nodeids:
            item._nodeid = nodeid  # type: ignore[attr-defined]

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, None]:
        """Run a case while no other worker of this host runs one.

        Whatever a case does takes processors: it imports, makes data, builds, compiles and starts
        fresh processes. The kernel frees the lock of a worker that ends, however it ends.
        """
        if not self.shared:
            yield
            return
        with self.config.stash[spent_key].during("wait"):
            fcntl.flock(self.host, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self.host, fcntl.LOCK_UN)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        """Attach what there is for the journal."""
        run = self.config.stash.get(run_key, None)
        if run is None or not isinstance(run.journal, Relay):
            return
        lines, run.journal.lines = run.journal.lines, []
        closing, run.closing = run.closing, []
        if lines or closing:
            report.user_properties.append((PART, {"lines": lines, "closing": closing}))

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Hand over why this session ends: without a device there is no use in another one."""
        if isinstance(excinfo.value, pytest.exit.Exception):
            code = excinfo.value.returncode
            self.output["exit"] = {
                "message": str(excinfo.value),
                "code": int(pytest.ExitCode.INTERRUPTED if code is None else code),
            }

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Leave all that is done once at the end of a run to the controller; tell of our time."""
        self.output["spent"] = self.config.stash[spent_key].of_run()
        if run_key in self.config.stash:
            del self.config.stash[run_key]
