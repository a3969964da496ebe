"""The run's own side of a fleet: one run, as without other hosts.

The controller starts a process on each host (plugins/fleet/member.py), collects, hands out the
cases (plugins/fleet/schedule.py), keeps the journal and ends as any run does. It holds no device
and measures nothing; a case is judged where it was measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Generator, List, Optional, Sequence, Set

import pytest

from ipubench.fixtures.case.errors import counted
from ipubench.fixtures.case.untrusted import printable, read_bytes
from ipubench.fixtures.machine.files import IMPORT_ROOT
from ipubench.plugins.baseline.format import MOST_BYTES, BaselineError
from ipubench.plugins.baseline.store import baseline_path
from ipubench.plugins.compare.baseline_plugin import comparison_key
from ipubench.plugins.fleet import outliers
from ipubench.plugins.fleet.connection import Project
from ipubench.plugins.fleet.facts import HostFacts, differing_versions
from ipubench.plugins.fleet.hosts import FleetError, HostSpec
from ipubench.plugins.fleet.intake import Intake
from ipubench.plugins.fleet.member import GONE
from ipubench.plugins.fleet.members import COLLECTED, ENDED, LOST, Members
from ipubench.plugins.fleet.placing import Placing
from ipubench.plugins.fleet.schedule import Schedule, Task
from ipubench.plugins.record import host_process
from ipubench.plugins.run.progress import progress_key
from ipubench.plugins.run.results import run_key, selected
from ipubench.plugins.run.resume import machines_key
from ipubench.plugins.run.time_spent import spent_key

USAGE_ERROR = pytest.ExitCode.USAGE_ERROR
#: Of members that have been told to end.
END_SECONDS = 30.0


class Fleet:
    """Hands out the cases of a run, and takes what was measured into it."""

    def __init__(self, config: pytest.Config, found: Sequence[HostSpec]) -> None:
        self.config = config
        self.each_host: bool = config.option.each_host
        count = sum(host.devices for host in found)
        self.members = Members(found, Project.of(config, count, _text_of_baseline(config)))
        self.intake = Intake(config, self.each_host)
        self.schedule = Schedule([])
        self._turns: Dict[str, str] = {}
        self._order: List[str] = []  # the node ids of all that the run is about
        self._nodeids: Dict[str, str] = {}  # what a case is called here -> its node id
        self._handed: Dict[str, str] = {}  # cases that a member has, and that it has not begun
        self._called: Set[str] = set()  # tests whose call is over
        self._away: Dict[str, str] = {}  # members that were lost and have not come back, and why
        self._fruitless: Dict[str, int] = {}  # losses of a member since it has ended a case

    def open(self) -> None:
        """Start the members and see that they can be one fleet. Raises FleetError."""
        self.members.open()
        facts = self.members.facts
        kinds = {one.device for one in facts.values()}
        if len(kinds) > 1:
            said = ", ".join(f"{name} has {one.device}" for name, one in facts.items())
            raise FleetError(f"the hosts have several kinds of device ({said}): add --device=KIND")
        for name, place in self.members.places.items():
            _check(name, facts[name], place.host, self.config.rootpath)
        self.config.option.device = kinds.pop()
        self.config.stash[machines_key] = list(facts.values())

    def pytest_report_header(self) -> List[str]:
        """Say who is there, and in what they differ."""
        facts = self.members.facts
        lines = [f"  {n}: {facts[n].description} ({facts[n].name})" for n in self.members.places]
        return [f"fleet of {counted(len(lines), 'member')}:", *lines, *differing_versions(facts)]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_collection(self, session: pytest.Session) -> Generator[None, Any, None]:
        """Collect here as well, which decides what is measured, while the members do."""
        outcome = yield
        go_on = self.config.option.continue_on_collection_errors
        if outcome.excinfo is None and (go_on or not session.testsfailed):
            try:
                self.members.wait_for_cases()
            except FleetError as error:
                outcome.force_exception(pytest.UsageError(str(error)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Have all selected cases measured."""
        if session.testsfailed and not self.config.option.continue_on_collection_errors:
            raise session.Interrupted(f"{counted(session.testsfailed, 'error')} during collection")
        self._plan(session.items)
        for name in sorted(self.members.there):
            self._join(name)
        self._give_up_stranded("no host of the fleet has what it needs")
        self._hand_out()
        events = self.members.each_event()
        while self.schedule.left:
            self._take(*next(events))
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
            self._hand_out()
        self._finish()
        return True

    def _plan(self, items: Sequence[pytest.Item]) -> None:
        """Decide who may measure what."""
        comparison = self.config.stash.get(comparison_key, None)
        placing = Placing(
            self.members.facts,
            {name: place.host.devices == 1 for name, place in self.members.places.items()},
            self.members.nodeids,
            comparison.entries if comparison is not None else (),
        )
        self._order = selected(self.config)
        tasks: List[Task] = []
        for item in items:
            found = placing.on_each(item) if self.each_host else [placing.task(item)]
            tasks += found
            self._nodeids.update({task.key: item.nodeid for task in found})
        self._turns = placing.turns()
        self.schedule = Schedule(tasks, self._turns)
        if self.each_host:
            self.intake.rename(self._nodeids, {task.key: min(task.members) for task in tasks})

    def _join(self, name: str) -> None:
        """Tell a member what the run is about; from then on it gets cases."""
        run = self.config.stash.get(run_key, None)
        suspects = run.results.suspects if run is not None else []
        shared = name in self._turns
        self.members.send(name, "begin", order=self._order, suspects=suspects, shared=shared)
        self.schedule.join(name)

    def _hand_out(self) -> None:
        for name, task in self.schedule.assign():
            self._handed[name] = task.key
            self.members.send(name, "run", nodeid=self._nodeids[task.key])

    def _take(self, name: str, what: str, values: Dict[str, Any]) -> None:
        """Do what follows from an event."""
        if what == "begun":
            self._handed.pop(name, None)
        elif what == "line":
            self.intake.line(name, values["line"])
        elif what == "report":
            report = self.intake.report(name, values["data"])
            if report.when == "call" or not report.passed:
                self._called.add(report.nodeid)
        elif what == "done":
            self._fruitless[name] = 0
            said = values["closing"]
            self.intake.closing([f"{name}: {line}" for line in said] if self.each_host else said)
            self.schedule.done(name)
        elif what == "spent":
            self.config.stash[spent_key].workers.append(values["seconds"])
        elif what == COLLECTED:
            self._away.pop(name, None)
            self._join(name)
        elif what == LOST:
            self._lost_for_good(name, printable(values["why"]))
        elif what in (ENDED, GONE):
            self._lost(name, values)

    def _lost(self, name: str, values: Dict[str, Any]) -> None:
        """A member has ended before its time: its case goes to another, and it is started again."""
        why = printable(values.get("why") or "its session has ended")
        task, waits = self.schedule.leave(name, begun=name not in self._handed)
        self._handed.pop(name, None)
        progress = self.config.stash[progress_key]
        if task is not None and self._has_ended(task.key):
            if waits:
                self.schedule.give_up(task)
        elif task is not None and waits:
            progress.line(f"  {task.key}: {name} was lost ({why}); it is measured again")
            progress.forget(task.key)
        elif task is not None:
            self.intake.failed(
                task.key, f"two processes were lost while they ran it; {name}: {why}"
            )
        # A case that fails for it is a case that has ended.
        fruitless = task is None or waits
        self._fruitless[name] = self._fruitless.get(name, 0) + 1 if fruitless else 0
        # A session that ended by itself said why, and would say it again.
        said = "code" in values and not values["lost_touch"]
        if said or self._fruitless[name] > 1:
            self._lost_for_good(name, why, values.get("code"))
        else:
            self._away[name] = why
            self.members.open_again(name)

    def _has_ended(self, key: str) -> bool:
        """Tell whether a case's outcome is known, although its process did not live to say so."""
        run = self.config.stash.get(run_key, None)
        return key in self._called or (run is not None and key in run.results.outcomes)

    def _lost_for_good(self, name: str, why: str, code: Optional[int] = None) -> None:
        """Go on without a member; what nobody else can measure fails.

        The last one's reason, with its exit ``code``, is that of the run: none could have ended it.
        """
        self._away[name] = why
        self.members.forget(name)
        self.config.stash[progress_key].line(f"  {name} is lost: {why}")
        if not self.members.there and code in (pytest.ExitCode.INTERRUPTED, USAGE_ERROR):
            pytest.exit(f"{name}: {why}", returncode=code)
        away = ", ".join(sorted(set(self.members.places) - self.members.there))
        self._give_up_stranded(f"no other host can measure it, and these were lost: {away}")

    def _give_up_stranded(self, why: str) -> None:
        """Fail the waiting cases that no member can take which is there or may come back."""
        for task in self.schedule.stranded():
            if task.members & self.members.there:
                continue  # one of them may come back
            if task.able & self.members.there:
                self.schedule.widen(task)
            else:
                self.schedule.give_up(task)
                self.intake.failed(task.key, why)

    def _finish(self) -> None:
        for what, values in self.members.finish(END_SECONDS):
            if what == "spent":
                self.config.stash[spent_key].workers.append(values["seconds"])
        self.intake.closing(
            [f"{name} was lost during the run: {why}" for name, why in self._away.items()]
        )
        run = self.config.stash.get(run_key, None)
        if run is not None and self.each_host:
            self.intake.closing(outliers.lines(list(run.results.benchmarks.values())))


def _text_of_baseline(config: pytest.Config) -> Optional[str]:
    """Return what the baseline's file says; its reader says what is wrong with it."""
    name = config.option.baseline
    if name is None:
        return None
    try:
        path = baseline_path(name, config.rootpath)
        return read_bytes(path, MOST_BYTES).decode("utf-8")
    except (BaselineError, OSError, ValueError):
        return None


def _check(name: str, facts: HostFacts, host: HostSpec, root: Path) -> None:
    """Raise FleetError where a host would run other code than the others, or lacks devices."""
    if host.devices > len(facts.devices or [0]):
        what = f"{len(facts.devices or [0])} of {facts.device}"
        raise FleetError(f"{name}: {host.devices}* asks for more devices than it has ({what})")
    if not host.folder:
        return
    ours = host_process.git_revision(root)
    if facts.revision != ours:
        raise FleetError(
            f"{name}: {host.folder} is at revision {facts.revision}, and this project at {ours}: "
            "check out the same one there, or leave out chdir= to have this one brought along"
        )
    inside = root.resolve() in (IMPORT_ROOT, *IMPORT_ROOT.parents)
    if inside and Path(facts.root) not in (Path(facts.code), *Path(facts.code).parents):
        raise FleetError(f"{name}: its ipubench comes from {facts.code}, outside {facts.root}")
