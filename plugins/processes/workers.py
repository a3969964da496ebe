"""`-n N`: cases in several worker processes of pytest-xdist, and one run as without.

The controller holds the devices, collects, keeps the journal, judges the session and shows what
happens; the workers measure. What it hands to a worker travels in xdist's ``workerinput``, and
which cases are to run in a file of the run's own folder; what a worker finds comes back in its
reports, as plain data.

On cuda and ipu each worker has a device of its own. On a CPU all of them have the whole host, and
only one worker runs a case at a time: see docs/how-to/workers.md.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Dict, Generator, List, Optional, Sequence, Set, Tuple

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.devices.base import DeviceError
from ipubench.fixtures.devices.fixture import hold
from ipubench.fixtures.devices.lease import INHERIT_VARIABLE
from ipubench.fixtures.instances.plan import instances_of
from ipubench.plugins.command_line.words import only_tests
from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.record.files import JsonLinesFile, write_json
from ipubench.plugins.record.host_process import end_with_parent
from ipubench.plugins.run.progress import progress_key
from ipubench.plugins.run.results import Run, SessionResults, run_key, selected
from ipubench.plugins.run.state import workers_key
from ipubench.plugins.selection.expand import case_of, selection_key

#: Our part of xdist's workerinput and workeroutput, and of a report's user_properties.
PART = "ipubench"
# Names what the controller selected; locked until it has.
SELECTED = "selected.json"
# Locked by the worker that runs a case, where workers share the host.
HOST = "host"
# These list cases and run none.
LISTING = ("describe", "dry_run")
# After a crash these hand the same test out again, and may wait for ever (pytest-xdist up to 3.8,
# its issues 1327 and 1378).
GROUPING = ("loadscope", "loadfile", "loadgroup")


#: How many workers measure.


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> Optional[int]:
    """Make `-n auto` and `-n logical` one worker per device; a CPU is one device."""
    if only_tests(config) or "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    if config.option.device_id is not None:
        return 1
    return len(devices.device_ids(devices.choose(config.option.device)) or [0])


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Become the controller or one of its workers, where there are any."""
    given = getattr(config, "workerinput", {}).get(PART)
    if given is not None:
        config.pluginmanager.register(Worker(config, given), "ipubench-worker")
        return
    if hasattr(config, "workerinput") or config.getoption("dist", "no") == "no":
        return
    if config.option.collectonly or only_tests(config):
        return
    _refuse(config)
    if any(config.getoption(name) for name in LISTING):
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
    if set(option.tx) != {"popen"}:
        raise pytest.UsageError(
            f"--tx={option.tx[0]}: workers share this host's devices and Python: use -n N"
        )
    if option.against is not None:
        raise pytest.UsageError(
            "--against measures in pairs that exclude everything else, so workers would only wait: "
            "leave out -n"
        )
    if option.instance is not None:
        raise pytest.UsageError("--instance is one process of one case: leave out -n")


class Controller:
    """Holds the devices, keeps the run's results, and tells the workers what to do."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.count = len(config.option.tx)
        self.device = devices.choose(config.option.device)
        found = devices.device_ids(self.device)
        #: Whether all workers have the same device, and so must run one case at a time.
        self.shared = found is None
        self.free = self._own_devices(found or [])
        self.taken: Dict[str, int] = {}  # worker -> device
        self.started: Set[str] = set()
        self.lost = False  # a worker has ended before its time
        self.known: Set[str] = set()  # node ids of the cases that are to run
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
        if self.shared or given is not None:
            return []
        if self.count > max(1, len(found)):
            raise pytest.UsageError(
                f"-n {self.count}: each worker needs a device of its own, and this host has "
                f"{len(found)} of --device={self.device}; -n auto takes as many as there are"
            )
        return list(found[: self.count])

    def pytest_sessionstart(self) -> None:
        """Take the devices before xdist starts the workers, and make the folder of the run."""
        pin = self.config.option.affinity == "cores"
        numbers = self.free or [self.config.option.device_id]
        made = [devices.make(self.device, number, pin) for number in numbers]
        names = sorted({name for device in made for name in device.leases()})
        try:
            self.held.enter_context(hold(self.config, names))
        except DeviceError as error:
            raise pytest.UsageError(str(error)) from None
        self.folder = Path(tempfile.mkdtemp(prefix="ipubench-run-"))
        self.held.callback(shutil.rmtree, str(self.folder), ignore_errors=True)
        self.selecting = self.held.enter_context((self.folder / "selecting").open("w"))
        fcntl.flock(self.selecting, fcntl.LOCK_EX)

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
        node.workerinput[PART] = {
            "folder": str(self.folder),
            "lease_holder": os.getpid(),
            "device_id": device,
            "shared": self.shared,
        }

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """Collect here as well, as without workers, which wait for what was selected.

        So the journal, the header and a usage error are those of a run without workers, and all
        workers have the same cases.
        """
        try:
            session.perform_collect()
            if session.testsfailed and not self.config.option.continue_on_collection_errors:
                raise session.Interrupted(f"{session.testsfailed} errors during collection")
            self.known = {item.nodeid for item in session.items if case_of(item)}
            run = self.config.stash.get(run_key, None)
            chosen = {
                "nodeids": [item.nodeid for item in session.items],
                "journal": str(run.journal.path) if run is not None else None,
                "order": selected(self.config),
            }
            write_json(self.folder / SELECTED, chosen)
        finally:
            fcntl.flock(self.selecting, fcntl.LOCK_UN)
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
        if "exit" in found:
            pytest.exit(found["exit"]["message"], returncode=found["exit"]["code"])
        if error and name not in self.started:
            words = str(error).strip().splitlines()[-1:]
            raise pytest.UsageError(f"the worker {name} could not start: {' '.join(words)}")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Show that a case has begun in a worker."""
        if nodeid in self.known:
            self.config.stash[progress_key].begin(nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        """Take what a worker measured, and show how its case ended."""
        run = self.config.stash.get(run_key, None)
        if report.nodeid not in self.known:
            report.nodeid = _without_group(report.nodeid)
        if run is None or report.nodeid not in self.known:
            return
        ours = [value for name, value in report.user_properties if name == PART]
        # The rest is the user's, and goes into JUnit XML.
        report.user_properties = [pair for pair in report.user_properties if pair[0] != PART]
        for part in ours:
            for line in part["lines"]:
                run.add(line)
                if line["type"] == "case":
                    pytest_benchmark_adapter.adopt(self.config, line["benchmark"])
            run.closing += [line for line in part["closing"] if line not in run.closing]
        if report.when not in ("setup", "call", "teardown"):  # xdist's word on a worker's crash
            report.ipubench_case = True
            run.results.forget([report.nodeid])
            run.add({"type": "outcome", "case": report.nodeid, "outcome": "failed"})
        self.config.stash[progress_key].reported(report)


def _without_group(nodeid: str) -> str:
    """Return a node id without the ``@group`` that ``--dist=loadgroup`` appends."""
    return nodeid.rpartition("@")[0] or nodeid


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

    def __init__(self, config: pytest.Config, given: Dict[str, Any]) -> None:
        self.config = config
        self.folder = Path(given["folder"])
        self.output: Dict[str, Any] = {}
        self.nodeids: List[Tuple[pytest.Item, str]] = []
        config.workeroutput[PART] = self.output  # type: ignore[attr-defined]
        # What this worker starts (fresh processes, instances, servers) is no worker.
        for name in [name for name in os.environ if name.startswith("PYTEST_XDIST_")]:
            del os.environ[name]
        os.environ[INHERIT_VARIABLE] = str(given["lease_holder"])
        # A worker that measures, or waits for the host, does not notice that the run was killed.
        end_with_parent()
        if given["device_id"] is not None:
            config.option.device_id = given["device_id"]
        config.stash[workers_key] = config.workerinput["workercount"]  # type: ignore[attr-defined]
        self.shared = bool(given["shared"])
        self.host = (self.folder / HOST).open("a")
        config.add_cleanup(self.host.close)
        pytest_benchmark_adapter.leave_files_alone(config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: List[pytest.Item]) -> None:
        """Wait until the controller has selected, and keep exactly its cases, in its order."""
        with (self.folder / "selecting").open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
        chosen = json.loads((self.folder / SELECTED).read_text(encoding="utf-8"))
        if chosen["journal"] is not None:
            relay = Relay(Path(chosen["journal"]))
            self.config.stash[run_key] = Run(relay, SessionResults(), chosen["order"])
        found = {item.nodeid: item for item in items}
        items[:] = [found[nodeid] for nodeid in chosen["nodeids"] if nodeid in found]
        self.nodeids = [(item, item.nodeid) for item in items]  # an item's hash is its node id's

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
        """Leave all that is done once at the end of a run to the controller."""
        if run_key in self.config.stash:
            del self.config.stash[run_key]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Leave out what a worker with one IPU of its own cannot run."""
    controller = config.pluginmanager.getplugin("ipubench-controller")
    if controller is None or controller.device != "ipu" or controller.count == 1:
        return
    kept: List[pytest.Item] = []
    dropped: List[pytest.Item] = []
    for item in items:
        case = case_of(item)
        large = case is not None and (case.config.ipus > 1 or instances_of(case.config) > 1)
        (dropped if large else kept).append(item)
    if dropped:
        reason = "need more than the one IPU that a worker has: run them without -n"
        config.stash[selection_key].left_out[reason] += len(dropped)
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept
