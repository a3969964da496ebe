"""`-n N`, `--tx ssh=HOST` and `--hosts=FILE`: several workers of pytest-xdist make one run.

The controller collects, keeps the journal, judges the session and shows what happens; the workers
measure (plugins/fleet/worker.py), each case where plugins/fleet/distribution.py has it measured.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Dict, Generator, List, Optional, Sequence, Set, Union

import pytest
from msgspec.structs import replace

from ipubench.fixtures import devices
from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.case.errors import counted
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.instances.plan import instances_of
from ipubench.plugins.command_line.words import PART, is_worker, only_lists, only_tests
from ipubench.plugins.fleet import hosts, outliers
from ipubench.plugins.fleet.distribution import Distribution, member_of
from ipubench.plugins.fleet.local_workers import LocalWorkers
from ipubench.plugins.fleet.schedule import Task
from ipubench.plugins.fleet.xdist_adapter import CRASHED, XdistSession
from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.record.record import named, with_record
from ipubench.plugins.record.text import name_of_test
from ipubench.plugins.run.journal import start_late
from ipubench.plugins.run.lines import (
    BeginLine,
    CaseLine,
    Damaged,
    ExtraLine,
    FreshLine,
    JournalLine,
    OutcomeLine,
    PairLine,
    ProfileLine,
    SelectedLine,
    VerdictLine,
    lines_of,
)
from ipubench.plugins.selection.selected import Selection, case_of
from ipubench.plugins.state import Run, run_of

if TYPE_CHECKING:
    from ipubench.plugins.fleet.remote_hosts import RemoteHosts

    Crew = Union[LocalWorkers, RemoteHosts]

#: What several workers cannot do, and why.
REFUSED = {
    "against": "it measures in pairs that exclude everything else",
    "instance": "it is one process of one case",
    "benchmark_cprofile": "a profile stays in the worker that made it",
}
#: What several hosts cannot do either.
REFUSED_ON_HOSTS = {
    "within": "it plans one case after the other",
    "profile": "its files would be on the host that profiles",
    "save_graph": "its files would be on the host that measures",
    "launcher_args": "each would start instances on the others",
}


def automatic_workers(config: pytest.Config) -> Optional[int]:
    """Make `-n auto` and `-n logical` one worker per device; a CPU is one device."""
    if only_tests(config) or "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    if options_of(config).device_id is not None:
        return 1
    return len(devices.device_ids(devices.choose(options_of(config).device)) or [0])


def become_controller(config: pytest.Config) -> None:
    """Become the controller of workers, where there are any."""
    option = options_of(config)
    tx = list(config.getoption("tx", None) or [])
    on_hosts = bool(option.hosts) or any(text.rpartition("*")[2] != hosts.LOCAL for text in tx)
    if is_worker(config) or only_tests(config):
        return
    if not on_hosts and config.getoption("dist", "no") == "no":
        if option.each_host:
            raise pytest.UsageError("--each-host needs hosts: add --hosts=FILE, or --tx ssh=HOST")
        return
    _refuse(config, tx, on_hosts)
    try:
        found = hosts.of_file(option.hosts) if option.hosts else hosts.of_tx(tx) if on_hosts else []
    except hosts.FleetError as error:
        raise pytest.UsageError(str(error)) from None
    if only_lists(config):
        config.option.dist, config.option.tx = "no", []
        return
    crew: Crew
    if on_hosts:
        from ipubench.plugins.fleet.remote_hosts import RemoteHosts  # it imports execnet

        crew = RemoteHosts(config, found)
    else:
        crew = LocalWorkers(config, worker_total(tx))
    # All that a host is, is set in pytest_xdist_setupnodes: of others than these pytest-xdist
    # would copy parts of itself there.
    config.option.dist, config.option.tx = "load", [f"popen//member={name}" for name in crew.names]
    config.pluginmanager.register(Controller(config, crew), "ipubench-controller")


def _refuse(config: pytest.Config, tx: Sequence[str], on_hosts: bool) -> None:
    """Raise UsageError for what several workers cannot do, or would do wrong."""
    option, dist = options_of(config), config.option.dist
    if option.hosts is not None and tx:
        raise pytest.UsageError("--hosts names the hosts: leave out -n and --tx")
    if not config.pluginmanager.hasplugin("xdist"):
        raise pytest.UsageError("--hosts needs pytest-xdist: pip install pytest-xdist")
    if not on_hosts and not tx:
        raise pytest.UsageError(
            f"--dist={dist} distributes cases to workers, and there are none: add -n N"
        )
    if dist not in ("no", "load", "worksteal"):
        raise pytest.UsageError(
            f"--dist={dist}: each worker takes one case at a time; leave it out"
        )
    refused = {**REFUSED, **(REFUSED_ON_HOSTS if on_hosts else {})}
    given = {**vars(option), "benchmark_cprofile": config.option.benchmark_cprofile}
    for name, why in refused.items():
        if given[name] is not None:
            flag, several = "--" + name.replace("_", "-"), "hosts" if on_hosts else "workers"
            raise pytest.UsageError(f"{flag} with several {several}: {why}; leave out one of them")
    for name in ("baseline_save", "resume"):
        if option.each_host and getattr(option, name):
            flag = "--" + name.replace("_", "-")
            raise pytest.UsageError(
                f"{flag} has room for one result of a case: leave out --each-host"
            )


def worker_total(tx: Sequence[str]) -> int:
    """Return how many workers pytest-xdist makes of ``--tx``, where ``3*popen`` are three."""
    numbers = (text.partition("*")[0] for text in tx)
    return sum(int(number) if number.isdigit() else 1 for number in numbers)


#: Lines of a worker that name their case themselves.
OF_A_CASE = (ExtraLine, OutcomeLine, PairLine, ProfileLine, VerdictLine)


class Controller:
    """Keeps the run's results, and tells the workers what to do."""

    def __init__(self, config: pytest.Config, crew: Crew) -> None:
        self.config, self.crew = config, crew
        self.each_host: bool = options_of(config).each_host
        self.hosts: Optional[RemoteHosts] = None if isinstance(crew, LocalWorkers) else crew
        self.channels: Dict[str, Any] = {}  # to each worker
        self.opening = 0  # how many workers have been opened
        self.known: Set[str] = set()  # what the cases that are to run are called
        self.called: Set[str] = set()  # tests whose call is over
        self.selection: Dict[str, Any] = {}
        self.distribution = Distribution(config, crew, self)
        pytest_benchmark_adapter.measure_elsewhere(config)

    @property
    def run(self) -> Run:
        """The run that the workers measure."""
        return run_of(self.config)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_sessionstart(self, session: pytest.Session) -> Generator[None, Any, None]:
        """Take the devices before xdist starts the workers, and see that they can be one run."""
        if isinstance(self.crew, LocalWorkers):
            self.crew.lease()
        self.xdist = XdistSession(self.config, self._hello, self.distribution)
        outcome = yield
        try:
            outcome.get_result()
            if self.hosts is not None:
                facts = self.xdist.wait_for(len(self.crew.names))
                said = self.hosts.meet({member_of(node): one for node, one in facts.items()})
                self.hosts.pulse(self.channels)
                for line in said:
                    self.run.progress.line(line)
        except (OSError, EOFError, AssertionError):  # of execnet, before pytest_xdist_newgateway
            if self.hosts is None:
                raise
            error = self.hosts.unreachable(self.crew.names[self.opening])
            outcome.force_exception(pytest.UsageError(str(error)))
        except hosts.FleetError as error:
            outcome.force_exception(pytest.UsageError(str(error)))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, specs: Sequence[Any]) -> None:
        """Have pytest-xdist start the Python of each host."""
        if self.hosts is not None:
            for spec in specs:
                self.hosts.describe(spec.member, spec)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_newgateway(self, gateway: Any) -> None:
        """Bring the project to a host."""
        if self.hosts is not None:
            self.hosts.opened(gateway.spec.member, gateway)
        self.opening += 1

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_getremotemodule(self) -> Any:
        """Return what runs first on a host; None: pytest-xdist's own module."""
        from ipubench.plugins.fleet import start

        return start if self.hosts is not None else None

    def pytest_configure_node(self, node: Any) -> None:
        """Hand over what a worker needs to become one; also to one that replaces another."""
        name = member_of(node)
        self.channels[name] = self.xdist.listen(node)
        node.workerinput[PART] = {**self.crew.handover(name), "channel": self.channels[name]}

    def _hello(self, node: Any, facts: Any) -> None:
        """Tell a worker what was selected."""
        name = member_of(node)
        alone = self.hosts is None or name not in self.hosts.turns
        with contextlib.suppress(OSError):  # its loss is an event of its own
            self.channels[name].send({**self.selection, "alone": alone})

    # Before pytest-xdist's, registered later.
    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """Collect here as well, as without workers, which wait for what was selected.

        So the journal, the header and a usage error are those of a run without workers.
        """
        session.perform_collect()
        if session.testsfailed and not self.config.option.continue_on_collection_errors:
            errors = counted(session.testsfailed, "error")
            raise session.Interrupted(f"{errors} during collection")
        self.known = {item.nodeid for item in session.items if case_of(item)}
        run = self.run
        self.selection = {
            "nodeids": [item.nodeid for item in session.items],
            "journal": str(run.path) if run.journal is not None else None,
            "order": run.order,
            "suspects": run.results.suspects,
        }
        self.distribution.items = session.items
        return True

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self) -> Any:
        """Return what decides who measures what."""
        return self.distribution

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, None, None]:
        """Count what was collected here: a host may have less."""
        collected = session.testscollected
        yield
        session.testscollected = collected

    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a worker's time went into."""
        found = getattr(node, "workeroutput", {}).get(PART, {})
        if "spent" in found:
            self.run.spent.workers.append(found["spent"])

    def planned(self, tasks: Sequence[Task]) -> None:
        """With --each-host have the run be about each case of each host."""
        if not self.each_host:
            return
        run, progress = self.run, self.run.progress
        cases = [task for task in tasks if task.nodeid in self.known]
        shown = {task.key: named(progress.names[task.nodeid], *task.members) for task in cases}
        progress.expect(shown)
        self.known = set(shown)
        if run.journal is not None:
            run.order = list(shown)
            run.nodeids = {task.key: task.nodeid for task in cases}
            run.add(SelectedLine(run.order))

    def begun(self, key: str) -> None:
        """Note and show that a case has begun in a worker."""
        if key in self.known:
            start_late(self.run)
            self.run.add(BeginLine(key))
            self.run.progress.begin(key)

    def has_ended(self, key: str) -> bool:
        """Tell whether a case's outcome is known, although its worker did not live to say so."""
        return key in self.called or key in self.run.results.outcomes

    def failed(self, key: str, why: str) -> None:
        """Have a case fail that no worker could end."""
        place = (key.split("::")[0], None, name_of_test(key))
        report = pytest.TestReport(key, place, {}, "failed", why, CRASHED)
        self.config.hook.pytest_runtest_logreport(report=report)

    # Before pytest's terminal, registered later.
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        """Take what a worker measured, and show how its case ended."""
        member = member_of(report.node) if hasattr(report, "node") else ""
        if self.each_host and member:
            report.nodeid = named(report.nodeid, member)
        if report.when == "call" or not report.passed:
            self.called.add(report.nodeid)
        ours = [value for name, value in report.user_properties if name == PART]
        run, progress = self.run, self.run.progress
        if ours and report.nodeid not in self.known:  # it turned out to measure
            start_late(run)
            self.known.add(report.nodeid)
            progress.add(report.nodeid, name_of_test(report.nodeid))
        if run.journal is None or report.nodeid not in self.known:
            return
        # The rest is the user's, and goes into JUnit XML.
        report.user_properties = [pair for pair in report.user_properties if pair[0] != PART]
        for part in ours:
            for line in lines_of(part["lines"]):
                self._take(self._of_host(line, member))
            said = [f"{member}: {line}" if self.each_host else line for line in part["closing"]]
            run.closing += [line for line in said if line not in run.closing]
        if report.when == CRASHED:
            run.results.forget([report.nodeid])
            run.add(OutcomeLine(report.nodeid, "failed", str(report.longrepr)))
        progress.reported(report, run.results, f" on {member}" if self.hosts and member else "")

    def _take(self, line: Union[JournalLine, Damaged]) -> None:
        """Put a line of a worker into the journal."""
        run = self.run
        if isinstance(line, Damaged):
            run.closing.append(f"{line.case}: a worker's line cannot be read: {line.why}")
            return
        run.add(line)
        if isinstance(line, (CaseLine, ExtraLine)) and not isinstance(line, FreshLine):
            pytest_benchmark_adapter.adopt(self.config, run.results.benchmarks[line.case])

    def _of_host(
        self, line: Union[JournalLine, Damaged], member: str
    ) -> Union[JournalLine, Damaged]:
        """Return a line of a worker as the run has it: it says on which host it was measured."""
        if self.hosts is None:
            return line
        if isinstance(line, CaseLine):
            benchmark = line.benchmark
            record = replace(benchmark.record, host=member)
            if self.each_host:
                record = replace(record, name=named(record.name, member))
                names = {
                    "name": named(benchmark.name, member),
                    "fullname": named(line.case, member),
                }
                benchmark = replace(benchmark, **names)
            return replace(line, benchmark=with_record(benchmark, record))
        if self.each_host and isinstance(line, OF_A_CASE):
            return replace(line, case=named(line.case, member))
        return line

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Note if -x or --maxfail ends the run, which pytest-xdist does as Ctrl-C does."""
        self.run.enough = self.xdist.enough_failed(excinfo.value)

    def pytest_sessionfinish(self) -> None:
        """Name lost workers."""
        run = self.run
        if run.journal is None:
            return
        away = self.distribution.away.items()
        run.closing += [f"{name} was lost during the run: {why}" for name, why in away]
        if self.each_host:
            run.closing += outliers.lines(list(run.results.benchmarks.values()))


def leave_out_larger(config: pytest.Config, items: List[pytest.Item], selection: Selection) -> None:
    """Leave out what a worker with one IPU of its own cannot run."""
    controller = config.pluginmanager.getplugin("ipubench-controller")
    crew = getattr(controller, "crew", None)
    if not isinstance(crew, LocalWorkers) or crew.device != "ipu" or len(crew.names) == 1:
        return
    reason = "need more than the one IPU that a worker has: run them without -n"

    def why(item: pytest.Item, case: Case) -> str:
        return reason if case.config.ipus > 1 or instances_of(case.config) > 1 else ""

    selection.leave_out(items, why)
