"""A process of a host that measures for a fleet: a run of its own that takes its cases in turn.

It collects as any run does and keeps a journal on its host; each line of that also travels to the
controller (plugins/fleet/controller.py) at once. What passes between the two are JSON texts,
``[name, values]``.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import queue
import signal
import threading
import time
from dataclasses import asdict, dataclass
from typing import Any, Dict, Iterator, List, Optional

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.machine import scratch
from ipubench.plugins.fleet.facts import HostFacts
from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.record.files import JsonLinesFile
from ipubench.plugins.run.journal import run_of
from ipubench.plugins.run.results import Run, run_key
from ipubench.plugins.run.time_spent import TimeSpent, spent_key
from ipubench.plugins.selection.expand import WITHOUT_NUMBER
from ipubench.plugins.selection.selected import case_of

#: A controller that says nothing for so long is gone: it says that it is there every few seconds.
MOST_SILENCE = 90.0
WATCH_SECONDS = 5.0
#: What a member says last; a controller that is gone says it to the member.
GONE = "gone"
MOST_SAID = 2000
TRACEBACK = "Traceback (most recent call last)"
ERROR = "ERROR: "  # what pytest begins a usage error with


@dataclass(frozen=True)
class Handover:
    """What a member needs to become one."""

    name: str
    start: str  # the folder that its words are relative to
    words: List[str]  # of the command line
    members: int
    run: str  # a name of the whole run
    device_id: Optional[int]
    baseline: Optional[str]  # the text of the file that cases are compared with
    results: Optional[str]  # the folder of its journal, where the words do not say it


class Relay(JsonLinesFile):
    """The journal of a member: its lines are on disk there, and travel to the controller."""

    def __init__(self, run: Run, member: Member) -> None:
        super().__init__(run.journal.path)
        self.own = run.journal
        self._run = run
        self._member = member

    def append(self, line: Dict[str, Any]) -> None:
        """Send a line, then keep it; a disk that fails is reported once."""
        self._member.send("line", line=line)
        try:
            self.own.append(line)
        except OSError as error:
            if not self._run.broken:
                self._run.broken = True
                self._run.closing.append(
                    f"the journal on {self._member.given.name} can no longer be written: {error}; "
                    "this run's own has all results"
                )


class Member:
    """Measures what the controller asks for, one case at a time."""

    def __init__(self, channel: Any, given: Handover) -> None:
        self.given = given
        self._channel = channel
        self._orders: queue.Queue[List[Any]] = queue.Queue()
        self._measuring = False
        self._heard = time.monotonic()
        self.problem = ""  # the last error of the collection, or of pytest itself
        self.lost_touch = False  # this session has ended because its controller was not heard
        #: Whether others measure on this machine's processors, and want the device between cases.
        self._shared = False
        self.exit: Optional[str] = None
        channel.setcallback(self._receive, endmarker=None)

    def _receive(self, text: Optional[str]) -> None:
        """Take an order in execnet's thread; a controller that is gone ends the case as well."""
        self._heard = time.monotonic()
        order = [GONE, {}] if text is None else json.loads(text)
        if order[0] == GONE:
            self._leave()
        else:
            self._orders.put(order)

    def _leave(self) -> None:
        """End the session; a case that is measured ends as by Ctrl-C, and gives back its device."""
        self.lost_touch = True
        self._orders.put([GONE, {}])
        if self._measuring:
            os.kill(os.getpid(), signal.SIGINT)

    def watch(self) -> None:
        """End the session once the controller has said nothing for long: run in a thread."""
        while time.monotonic() - self._heard < MOST_SILENCE:
            time.sleep(WATCH_SECONDS)
        self._leave()

    def send(self, name: str, **values: Any) -> None:
        """Tell the controller something; one that is gone hears nothing."""
        with contextlib.suppress(OSError):
            self._channel.send(json.dumps([name, values], default=str))

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> None:
        """Become a worker, which leaves the files of the run to its controller."""
        given = self.given
        config.workerinput = {  # type: ignore[attr-defined]
            "workerid": given.name,
            "workercount": given.members,
            "testrunuid": given.run,
        }
        option = config.option
        pytest_benchmark_adapter.leave_files_alone(config)
        option.dist, option.tx, option.numprocesses = "no", [], None
        option.report, option.history, option.resume, option.maxfail = None, False, False, 0
        option.usepdb = False
        # The controller selects: this host's cache knows what failed in other runs.
        option.lf = option.stepwise = option.stepwise_skip = False
        if option.basetemp:
            option.basetemp = f"{option.basetemp}-{given.name}"
        # Of a device without numbers the controller says that there is one.
        if given.device_id is not None and devices.choose(option.device) not in WITHOUT_NUMBER:
            option.device_id = given.device_id
        if given.results is not None:
            option.results_dir = given.results
        if given.baseline is not None:
            path = scratch.make("fleet") / "baseline.json"  # until this process ends
            path.write_text(given.baseline, encoding="utf-8")
            option.baseline = str(path)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Say what this host is, before anything is collected."""
        self.send("hello", facts=asdict(HostFacts.of(session.config)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Measure what is asked for until the controller has nothing more."""
        if session.testsfailed and not session.config.option.continue_on_collection_errors:
            raise session.Interrupted(self.problem or "its collection failed")
        items = {item.nodeid: item for item in session.items}
        self.send("collected", nodeids=list(items))
        spent = session.config.stash[spent_key]
        for name, values in self._each_order(spent):
            if name == "begin":
                self._begin(session.config, **values)
            elif name == "run":
                self._run(items[values["nodeid"]])
        return True

    def _each_order(self, spent: TimeSpent) -> Iterator[List[Any]]:
        """Yield orders until the last one."""
        while True:
            with spent.during("wait"):
                order = self._orders.get()
            if order[0] == GONE:
                pytest.exit("the controller is no longer heard")
            if order[0] == "end":
                return
            yield order

    def _begin(
        self, config: pytest.Config, order: List[str], suspects: List[str], shared: bool
    ) -> None:
        """Take what the whole run is about, and have the journal's lines travel from here on."""
        self._shared = shared
        run = run_of(config)  # also without a case so far: a test may turn out to measure
        run.order, run.results.suspects = order, suspects
        run.journal = Relay(run, self)

    def _run(self, item: pytest.Item) -> None:
        """Run a case; the device stays leased and attached unless others of the machine want it."""
        self.send("begun")
        run = item.config.stash.get(run_key, None)
        if run is not None and case_of(item) is not None:
            run.add({"type": "begin", "case": item.nodeid})
        # pytest tears down what the next item does not need. Which item that is, nobody knows yet:
        # one of any file needs no more than the session, where the device is.
        following = None if self._shared else item.session
        self._measuring = True
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        self._measuring = False
        closing = []
        if run is not None:
            closing, run.closing = run.closing, []
        self.send("done", nodeid=item.nodeid, closing=closing)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep why a file could not be collected."""
        if report.failed:
            said = str(report.longrepr).strip().splitlines()
            self.problem = f"{report.nodeid} cannot be collected: {said[-1] if said else ''}"

    def pytest_internalerror(self, excrepr: Any) -> None:
        """Keep what went wrong in pytest or in a plugin."""
        self.problem = reason_of(str(excrepr))

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hand over how a part of a test went."""
        config = self._config
        data = config.hook.pytest_report_to_serializable(config=config, report=report)
        self.send("report", data=data)

    def pytest_configure(self, config: pytest.Config) -> None:
        """Keep what a hook of reports is not given."""
        self._config = config

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Keep why this session ends early."""
        self.exit = str(excinfo.value) or "interrupted"

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Close the journal of this host; all else that ends a run is the controller's."""
        config = session.config
        spent = config.stash[spent_key].of_run()
        self.send("spent", seconds=spent)
        run = config.stash.get(run_key, None)
        if run is None:
            return
        if isinstance(run.journal, Relay):
            with contextlib.suppress(OSError):
                run.journal.own.append(_end(int(exitstatus), spent))
        del config.stash[run_key]


def _end(code: int, spent: Dict[str, float]) -> Dict[str, Any]:
    return {"type": "end", "exit_code": code, "time": time.time(), "spent": spent}


def main(channel: Any, **given: Any) -> None:
    """Run a session that measures for a fleet; the last thing it says is how it ended."""
    handover = Handover(**given)
    os.chdir(handover.start)
    os.environ.pop("PYTEST_ADDOPTS", None)  # its words are among those handed over
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it may have been ignored
    member = Member(channel, handover)
    threading.Thread(target=member.watch, daemon=True).start()
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = int(pytest.main(handover.words, plugins=[member]))
    why = member.exit or member.problem or reason_of(said.getvalue())
    member.send("ended", code=code, why=why, lost_touch=member.lost_touch)


def reason_of(said: str) -> str:
    """Return why a session ended, from what pytest has said; of a traceback its end."""
    last = said.strip()[-MOST_SAID:]
    if TRACEBACK in said:
        lines = [line.strip() for line in last.splitlines()]
        place = next((line for line in reversed(lines) if line.startswith("File ")), "")
        who = "pytest or a plugin (-p no:NAME leaves one out)"
        return f"{who} fails there: {lines[-1]} ({place})"
    return last[len(ERROR) :] if last.startswith(ERROR) else last
