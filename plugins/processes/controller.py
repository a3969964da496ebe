"""`-n N`: cases in several worker processes of pytest-xdist, and one run as without.

The controller holds the devices, collects, keeps the journal, judges the session and shows what
happens; the workers measure (plugins/processes/worker.py).

On cuda and ipu each worker has a device of its own. On a CPU all of them have the whole host, and
only one worker runs a case at a time: see docs/how-to/workers.md.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import asdict
from typing import Any, Dict, List, Optional, Sequence, Set

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.case.errors import counted
from ipubench.fixtures.devices.base import DeviceError
from ipubench.fixtures.devices.lease import hold
from ipubench.fixtures.instances.plan import instances_of, refuse_undirected
from ipubench.fixtures.machine import scratch
from ipubench.fixtures.machine.scratch import ScratchError
from ipubench.plugins.command_line.words import is_worker, only_lists, only_tests
from ipubench.plugins.processes.worker import PART, Handover
from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.record.text import name_of_test
from ipubench.plugins.run.journal import run_of
from ipubench.plugins.run.progress import progress_key
from ipubench.plugins.run.results import run_key, selected
from ipubench.plugins.run.time_spent import spent_key
from ipubench.plugins.selection.selected import case_of, leave_out

# After a crash these hand the same test out again, and may wait for ever (pytest-xdist up to 3.8,
# its issues 1327 and 1378).
GROUPING = ("loadscope", "loadfile", "loadgroup")
# What pytest and pytest-xdist say where as many tests failed as may.
ENOUGH = "stopping after "


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> Optional[int]:
    """Make `-n auto` and `-n logical` one worker per device; a CPU is one device."""
    if only_tests(config) or "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    if config.option.device_id is not None:
        return 1
    return len(devices.device_ids(devices.choose(config.option.device)) or [0])


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Become the controller of workers, where there are any."""
    if is_worker(config) or config.getoption("dist", "no") == "no":
        return
    if config.option.collectonly or only_tests(config):
        return
    _refuse(config)
    if only_lists(config):
        config.option.dist, config.option.tx = "no", []
        return
    config.pluginmanager.register(Controller(config), "ipubench-controller")


def _refuse(config: pytest.Config) -> None:
    """Raise UsageError for what several workers cannot do, or would do wrong."""
    option = config.option
    if not option.tx:
        raise pytest.UsageError(
            f"--dist={option.dist} distributes cases to workers, and there are none: add -n N"
        )
    if option.dist == "each":
        raise pytest.UsageError(
            "--dist=each would measure every case once in each worker, and one result has room in "
            "a table or a baseline: leave it out"
        )
    if option.against is not None:
        raise pytest.UsageError(
            "--against measures in pairs that exclude everything else, so workers would only wait: "
            "leave out -n"
        )
    if option.benchmark_cprofile is not None:
        raise pytest.UsageError(
            "--benchmark-cprofile: a profile stays in the worker that made it: leave out -n"
        )
    if option.instance is not None:
        raise pytest.UsageError("--instance is one process of one case: leave out -n")


def worker_total(tx: Sequence[str]) -> int:
    """Return how many workers pytest-xdist makes of ``--tx``, where ``3*popen`` are three."""
    numbers = (text.partition("*")[0] for text in tx)
    return sum(int(number) if number.isdigit() else 1 for number in numbers)


class Controller:
    """Holds the devices, keeps the run's results, and tells the workers what to do."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.count = worker_total(config.option.tx)
        self.device = devices.choose(config.option.device)
        found = devices.device_ids(self.device)
        #: Whether all workers have the same device, and so must run one case at a time.
        self.shared = found is None
        self.free = self._own_devices(found or [])
        self.taken: Dict[str, int] = {}  # worker -> device
        self.started: Set[str] = set()
        self.lost = False  # a worker has ended before its time
        self.enough = False  # as many cases failed as -x or --maxfail allows
        self.known: Set[str] = set()  # node ids of the cases that are to run
        self.nodeids: Set[str] = set()  # and of all tests
        self.held = contextlib.ExitStack()
        config.add_cleanup(self.held.close)
        pytest_benchmark_adapter.measure_elsewhere(config)

    def _own_devices(self, found: Sequence[int]) -> List[int]:
        """Return the device of each worker; UsageError where there are too few."""
        given = self.config.option.device_id
        if given is not None and self.count > 1:
            raise pytest.UsageError(
                f"--device-id={given} with -n {self.count}: each worker takes a device of its own; "
                "leave out one of them"
            )
        if not found or given is not None:  # why there are none is for the device to say
            return []
        if self.count > len(found):
            raise pytest.UsageError(
                f"-n {self.count}: each worker needs a device of its own, and this host has "
                f"{len(found)} of --device={self.device}; -n auto takes as many as there are"
            )
        return list(found[: self.count])

    def pytest_sessionstart(self) -> None:
        """Take the devices before xdist starts the workers, and make the files that all share."""
        pin = self.config.option.affinity == "cores"
        numbers = self.free or [self.config.option.device_id]
        made = [devices.make(self.device, number, pin) for number in numbers]
        names = sorted({name for device in made for name in device.leases()})
        try:
            refuse_undirected()
            self.held.enter_context(hold(self.config, names))
            self.selection = self.held.enter_context(scratch.nameless_file())
            self.host = self.held.enter_context(scratch.nameless_file())
        except (DeviceError, ScratchError) as error:
            raise pytest.UsageError(str(error)) from None
        fcntl.flock(self.selection, fcntl.LOCK_EX)

    def pytest_configure_node(self, node: Any) -> None:
        """Hand over what a worker needs to become one; also to one that replaces another."""
        dist = self.config.option.dist
        if self.lost and dist in GROUPING:
            pytest.exit(
                f"a worker crashed, and --dist={dist} cannot go on without it; --resume measures "
                "the rest, and without --dist a crash costs one case",
                returncode=pytest.ExitCode.INTERRUPTED,  # so that nobody takes it for a whole run
            )
        device = self.config.option.device_id
        if self.free:
            device = self.taken[node.workerinput["workerid"]] = self.free.pop(0)
        selection, host = scratch.path_of(self.selection), scratch.path_of(self.host)
        given = Handover(selection, host, os.getpid(), device, self.shared)
        node.workerinput[PART] = asdict(given)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """Collect here as well, as without workers, which wait for what was selected.

        So the journal, the header and a usage error are those of a run without workers, and all
        workers have the same cases.
        """
        try:
            session.perform_collect()
            if session.testsfailed and not self.config.option.continue_on_collection_errors:
                errors = counted(session.testsfailed, "error")
                raise session.Interrupted(f"{errors} during collection")
            self.known = {item.nodeid for item in session.items if case_of(item)}
            self.nodeids = {item.nodeid for item in session.items}
            run = self.config.stash.get(run_key, None)
            chosen = {
                "nodeids": [item.nodeid for item in session.items],
                "journal": str(run.journal.path) if run is not None else None,
                "order": selected(self.config),
                "suspects": run.results.suspects if run is not None else [],
            }
            self.selection.write(json.dumps(chosen).encode())
            self.selection.flush()
        finally:
            fcntl.flock(self.selection, fcntl.LOCK_UN)
        return True

    def pytest_testnodeready(self, node: Any) -> None:
        """Note that a worker came to life."""
        self.started.add(node.workerinput["workerid"])

    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        """Take a worker's device back; end the run where no other worker could do better."""
        name = node.workerinput["workerid"]
        self.lost = self.lost or bool(error)
        if name in self.taken:
            self.free.append(self.taken.pop(name))
        found = getattr(node, "workeroutput", {}).get(PART, {})
        if "spent" in found:
            self.config.stash[spent_key].workers.append(found["spent"])
        if "exit" in found:
            pytest.exit(found["exit"]["message"], returncode=found["exit"]["code"])
        if error and name not in self.started:
            words = str(error).strip().splitlines()[-1:]
            raise pytest.UsageError(f"the worker {name} could not start: {' '.join(words)}")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note and show that a case has begun in a worker."""
        run = self.config.stash.get(run_key, None)
        if nodeid in self.known:
            if run is not None:
                run.add({"type": "begin", "case": nodeid})
            self.config.stash[progress_key].begin(nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        """Take what a worker measured, and show how its case ended."""
        run = self.config.stash.get(run_key, None)
        if report.nodeid not in self.nodeids:
            # Without the @group that --dist=loadgroup appends.
            whole = (one for one in self.nodeids if report.nodeid.startswith(f"{one}@"))
            report.nodeid = next(whole, report.nodeid)
        ours = [value for name, value in report.user_properties if name == PART]
        if ours and report.nodeid not in self.known:  # it turned out to measure
            run = run_of(self.config)
            self.known.add(report.nodeid)
            name = name_of_test(report.nodeid)
            self.config.stash[progress_key].add(report.nodeid, name)
        if run is None or report.nodeid not in self.known:
            return
        # The rest is the user's, and goes into JUnit XML.
        report.user_properties = [pair for pair in report.user_properties if pair[0] != PART]
        for part in ours:
            for line in part["lines"]:
                run.add(line)
                if line["type"] in ("case", "extra"):
                    nodeid = line["case"] if "case" in line else line["benchmark"]["fullname"]
                    measured = run.results.benchmarks[nodeid]
                    pytest_benchmark_adapter.adopt(self.config, measured)
            run.closing += [line for line in part["closing"] if line not in run.closing]
        if report.when not in ("setup", "call", "teardown"):  # xdist's word on a worker's crash
            report.ipubench_case = True
            run.results.forget([report.nodeid])
            outcome = {"type": "outcome", "case": report.nodeid, "outcome": "failed"}
            run.add({**outcome, "why": str(report.longrepr)})
        self.config.stash[progress_key].reported(report)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Note where -x or --maxfail ends the run, which pytest-xdist does as Ctrl-C does."""
        self.enough = str(excinfo.value).startswith(ENOUGH)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Have such a run end as one without workers: cases failed, and nobody interrupted it."""
        if self.enough:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Leave out what a worker with one IPU of its own cannot run."""
    controller = config.pluginmanager.getplugin("ipubench-controller")
    if controller is None or controller.device != "ipu" or controller.count == 1:
        return
    reason = "need more than the one IPU that a worker has: run them without -n"

    def why(item: pytest.Item, case: Case) -> str:
        return reason if case.config.ipus > 1 or instances_of(case.config) > 1 else ""

    leave_out(config, items, why)
