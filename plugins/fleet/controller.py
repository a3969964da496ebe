"""`-n N` and `--tx ssh=HOST`: several workers of pytest-xdist make one run.

The controller collects, keeps the journal, judges the session and shows its progress. The workers
measure (plugins/fleet/worker.py); plugins/fleet/distribution.py chooses the worker of each case.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, Generator, List, Optional, Sequence, Set, Union

import pytest
from msgspec.structs import replace

from ipubench.fixtures import devices
from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.case.errors import counted
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.instances.hosts import launcher_arguments, named_hosts
from ipubench.fixtures.instances.plan import instances_of
from ipubench.plugins.command_line.arguments import XDIST_KEY, only_tests
from ipubench.plugins.command_line.role import Role, names_hosts
from ipubench.plugins.fleet import hosts
from ipubench.plugins.fleet.distribution import Distribution, worker_of
from ipubench.plugins.fleet.local_workers import LocalWorkers
from ipubench.plugins.fleet.remote_hosts import RemoteHosts
from ipubench.plugins.fleet.xdist_adapter import CRASHED, XdistSession, no_answer
from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.record.record import with_record
from ipubench.plugins.record.text import name_of_test
from ipubench.plugins.results.lines import (
    BeginLine,
    CaseLine,
    Damaged,
    ExtraLine,
    FreshLine,
    JournalLine,
    OutcomeLine,
    lines_of,
)
from ipubench.plugins.run.journal import start_late
from ipubench.plugins.selection.selected import case_of
from ipubench.plugins.state import Run, run_of

Crew = Union[LocalWorkers, RemoteHosts]

#: Options that do not work with several workers, and why.
REFUSED = {
    "against": "it measures in pairs that exclude everything else",
    "instance": "it is one process of one case",
    "benchmark_cprofile": "a profile stays in the worker that made it",
}
#: Options that do not work with several hosts either.
REFUSED_ON_HOSTS = {
    "profile": "its files would be on the host that profiles",
    "save_graph": "its files would be on the host that measures",
    "launcher_args": "each would start instances on the others",
}


def automatic_workers(config: pytest.Config) -> Optional[int]:
    """Return the workers of `-n auto` and `-n logical`: one per device; a CPU is one device."""
    if only_tests(config) or "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    if options_of(config).device_id is not None:
        return 1
    return len(devices.of(devices.choose(options_of(config).device)).device_ids() or [0])


def become_controller(config: pytest.Config, role: Role) -> None:
    """Make this process the controller of the command line's workers; a listing starts none."""
    tx, on_hosts = list(config.getoption("tx", None) or []), names_hosts(config)
    _refuse(config, tx, on_hosts)
    try:
        found = hosts.of_tx(tx) if on_hosts else []
    except hosts.FleetError as error:
        raise pytest.UsageError(str(error)) from None
    if role is Role.LISTING:
        config.option.dist, config.option.tx = "no", []
        return
    crew = RemoteHosts(config, found) if on_hosts else LocalWorkers(config, worker_total(tx))
    config.option.dist, config.option.tx = "load", crew.specs
    config.pluginmanager.register(Controller(config, crew), "ipubench-controller")


def _refuse(config: pytest.Config, tx: Sequence[str], on_hosts: bool) -> None:
    """Raise UsageError for options that do not work with several workers."""
    option, dist = options_of(config), config.option.dist
    if not on_hosts and not tx:
        raise pytest.UsageError(
            f"--dist={dist} distributes cases to workers, but there are no workers: add -n N"
        )
    if dist not in ("no", "load", "worksteal"):
        raise pytest.UsageError(
            f"--dist={dist}: each worker takes one case at a time; leave it out"
        )
    refused = {**REFUSED, **(REFUSED_ON_HOSTS if on_hosts else {})}
    for name, why in refused.items():
        given = config.option if name == "benchmark_cprofile" else option
        if getattr(given, name) is not None:
            flag, several = "--" + name.replace("_", "-"), "hosts" if on_hosts else "workers"
            raise pytest.UsageError(f"{flag} with several {several}: {why}; leave out one of them")


def worker_total(tx: Sequence[str]) -> int:
    """Return the number of workers in ``--tx``; ``3*popen`` are three."""
    numbers = (text.partition("*")[0] for text in tx)
    return sum(int(number) if number.isdigit() else 1 for number in numbers)


class Controller:
    """Gives the workers their cases, and collects the run's results."""

    def __init__(self, config: pytest.Config, crew: Crew) -> None:
        self.config, self.crew = config, crew
        self.hosts: Optional[RemoteHosts] = None if isinstance(crew, LocalWorkers) else crew
        self.channels: Dict[str, Any] = {}  # to each worker
        self.known: Set[str] = set()  # names of the cases to run
        self.called: Set[str] = set()  # tests whose call is over
        self.selection: Dict[str, Any] = {}
        self.distribution = Distribution(config, crew, self)
        self._xdist: Optional[XdistSession] = None  # until the session starts
        pytest_benchmark_adapter.measure_elsewhere(config)

    @property
    def run(self) -> Run:
        """The run of this session."""
        return run_of(self.config)

    @property
    def xdist(self) -> XdistSession:
        """The session of pytest-xdist, which has started."""
        assert self._xdist is not None
        return self._xdist

    @pytest.hookimpl(hookwrapper=True)
    def pytest_sessionstart(self, session: pytest.Session) -> Generator[None, Any, None]:
        """Hold the devices before xdist starts the workers; check that the hosts match."""
        if isinstance(self.crew, LocalWorkers):
            self.crew.lease()
        self._xdist = XdistSession(self.config, self._send_selection, self.distribution)
        outcome = yield
        try:
            outcome.get_result()
            if self.hosts is not None:
                facts = self.xdist.wait_for(len(self.crew.names))
                lines = self.hosts.check({worker_of(node): one for node, one in facts.items()})
                self.hosts.pulse(self.channels)
                for line in lines:
                    self.run.progress.line(line)
        except no_answer():
            if self.hosts is None or len(self.channels) == len(self.crew.names):
                raise
            # pytest-xdist starts one worker after the other.
            error = self.hosts.unreachable(self.crew.names[len(self.channels)])
            outcome.force_exception(pytest.UsageError(str(error)))
        except hosts.FleetError as error:
            outcome.force_exception(pytest.UsageError(str(error)))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, specs: Sequence[Any]) -> None:
        """Send our options to the hosts, and copy nothing there."""
        if self.hosts is not None:
            self.xdist.copy_nothing()
            for spec in specs:
                self.hosts.describe(spec)

    def pytest_configure_node(self, node: Any) -> None:
        """Give a worker its settings, also a worker that replaces a lost one."""
        name = worker_of(node)
        self.channels[name] = self.xdist.listen(node)
        node.workerinput[XDIST_KEY] = {**self.crew.handover(name), "channel": self.channels[name]}

    def _send_selection(self, node: Any, facts: Any) -> None:
        """Send the selected cases to a worker that has started."""
        name = worker_of(node)
        alone = self.hosts is None or name not in self.hosts.turns
        with contextlib.suppress(OSError):  # pytest-xdist reports a lost worker separately
            self.channels[name].send({**self.selection, "alone": alone})

    # Runs before pytest-xdist's hook, registered later.
    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """Collect in the controller as well; the workers wait for its selection.

        So the journal, the header and usage errors are the same as without workers.
        """
        session.perform_collect()
        if session.testsfailed and not self.config.option.continue_on_collection_errors:
            errors = counted(session.testsfailed, "error")
            raise session.Interrupted(f"{errors} during collection")
        self.known = {item.nodeid for item in session.items if case_of(item)}
        run = self.run
        self.selection = {
            "nodeids": [item.nodeid for item in session.items],
            "journal": str(run.path) if run.journal.stores else None,
            "order": run.order,
            "suspects": run.results.suspects,
        }
        self.distribution.items = session.items
        return True

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self) -> Any:
        """Return the scheduler, which chooses the worker of each case."""
        return self.distribution

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, None, None]:
        """Keep the number of tests collected here: a host may have fewer."""
        collected = session.testscollected
        yield
        session.testscollected = collected

    def pytest_testnodedown(self, node: Any) -> None:
        """Add the times that a worker spent on its parts of the work."""
        found = getattr(node, "workeroutput", {}).get(XDIST_KEY, {})
        if "spent" in found:
            self.run.spent.workers.append(found["spent"])

    def begun(self, key: str) -> None:
        """Record and show that a case has begun in a worker."""
        if key in self.known:
            start_late(self.run)
            self.run.add(BeginLine(key))
            self.run.progress.begin(key)

    def has_ended(self, key: str) -> bool:
        """Return whether a lost worker had reported the outcome of its case."""
        return key in self.called or key in self.run.results.outcomes

    def failed(self, key: str, why: str) -> None:
        """Fail a case that no worker could finish."""
        place = (key.split("::")[0], None, name_of_test(key))
        report = pytest.TestReport(key, place, {}, "failed", why, CRASHED)
        self.config.hook.pytest_runtest_logreport(report=report)

    # Runs before pytest's terminal, registered later.
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        """Add a worker's lines to the journal, and show how its case ended."""
        worker = worker_of(report.node) if hasattr(report, "node") else ""
        if report.when == "call" or not report.passed:
            self.called.add(report.nodeid)
        ours = [value for name, value in report.user_properties if name == XDIST_KEY]
        run, progress = self.run, self.run.progress
        if ours and report.nodeid not in self.known:  # it turned out to measure
            start_late(run)
            self.known.add(report.nodeid)
            progress.add(report.nodeid, name_of_test(report.nodeid))
        if report.nodeid not in self.known:
            return
        # The rest is the user's, and goes into JUnit XML.
        report.user_properties = [pair for pair in report.user_properties if pair[0] != XDIST_KEY]
        for part in ours:
            for line in lines_of(part["lines"]):
                self._add(self._with_host(line, worker))
            run.closing += [line for line in part["closing"] if line not in run.closing]
        if report.when == CRASHED:
            run.results.forget([report.nodeid])
            run.add(OutcomeLine(report.nodeid, "failed", str(report.longrepr)))
        progress.reported(report, run.results, f" on {worker}" if self.hosts and worker else "")

    def _add(self, line: Union[JournalLine, Damaged]) -> None:
        """Add a worker's line to the journal."""
        run = self.run
        if isinstance(line, Damaged):
            run.closing.append(f"{line.case}: a worker's line cannot be read: {line.why}")
            return
        run.add(line)
        if isinstance(line, (CaseLine, ExtraLine)) and not isinstance(line, FreshLine):
            pytest_benchmark_adapter.adopt(self.config, run.results.benchmarks[line.case])

    def _with_host(
        self, line: Union[JournalLine, Damaged], worker: str
    ) -> Union[JournalLine, Damaged]:
        """Return a worker's line with the host that measured it."""
        if self.hosts is None:
            return line
        if isinstance(line, CaseLine):
            record = replace(line.benchmark.record, host=worker)
            return replace(line, benchmark=with_record(line.benchmark, record))
        return line

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Note whether -x or --maxfail ends the run: pytest-xdist raises KeyboardInterrupt too."""
        started = self._xdist
        self.run.enough = started is not None and started.enough_failed(excinfo.value)

    def pytest_sessionfinish(self) -> None:
        """Add lines about lost workers."""
        run = self.run
        lost = self.distribution.lost_workers.items()
        run.closing += [f"{name} was lost during the run: {why}" for name, why in lost]


def leave_out_larger(run: Run, items: List[pytest.Item]) -> None:
    """Leave out the cases that need more IPUs than a worker or this machine has."""
    config, selection = run.config, run.selection
    controller = config.pluginmanager.getplugin("ipubench-controller")
    crew = getattr(controller, "crew", None)
    if isinstance(crew, LocalWorkers) and devices.of(crew.device).poplar and len(crew.names) > 1:
        reason = "need more than the one IPU that a worker has: run them without -n"

        def why(item: pytest.Item, case: Case) -> str:
            return reason if case.config.ipus > 1 or instances_of(case.config) > 1 else ""

        selection.leave_out(items, why)
    elsewhere = crew is not None and not isinstance(crew, LocalWorkers)
    elsewhere = elsewhere or bool(named_hosts(launcher_arguments(options_of(config).launcher_args)))
    if _attaches_ipus(selection.device) and run.role.measures and not elsewhere:
        count, place = devices.available_ipus()
        selection.leave_out(items, lambda item, case: _too_large(case, count, place))
    selection.empty = selection.empty or not items


def _attaches_ipus(device: str) -> bool:
    kind = devices.of(device)
    return kind.poplar and not kind.emulated


def _too_large(case: Case, count: int, place: str) -> str:
    """Return why a case does not fit ``count`` IPUs, or ''; 0: unknown."""
    ipus = case.config.ipus
    if ipus <= count or not count or getattr(case.config, "compile_only", False):
        return ""
    return f"need {ipus} IPUs, and {place} has {count}"
