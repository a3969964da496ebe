"""Measures the controller's cases in a worker, on this machine or on a host.

The controller sends settings in xdist's ``workerinput`` and the selected cases over a channel. The
worker's results are in its reports, as plain data.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, Generator, List, Optional

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.command_line import PREFIX, options_of
from ipubench.fixtures.machine import scratch
from ipubench.plugins.command_line.arguments import XDIST_KEY
from ipubench.plugins.fleet.facts import HostFacts
from ipubench.plugins.fleet.xdist_adapter import run_items
from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.record.files import NoFile
from ipubench.plugins.record.host_process import end_with_parent
from ipubench.plugins.record.structs import Json
from ipubench.plugins.state import run_of

#: A controller that has been silent this long is gone: it sends THERE every few seconds.
MOST_SILENCE = 90.0
PULSE_SECONDS = 10.0
THERE = "there"


def become_worker(config: pytest.Config) -> None:
    """Become a worker if a controller of ours has started this session."""
    given = getattr(config, "workerinput", {}).get(XDIST_KEY)
    if given is not None:
        config.pluginmanager.register(Worker(config, given), "ipubench-worker")


def _replace_option(config: pytest.Config, name: str, value: object) -> None:
    """Give an option this worker's value, before its run begins."""
    setattr(config.option, PREFIX + name, value)


class Relay(NoFile):
    """A worker's journal: the reports carry its lines to the controller."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.lines: List[Json] = []

    def append(self, line: Json) -> None:
        """Keep a line for the next report."""
        self.lines.append(line)


class Worker:
    """Measures the cases that the controller sends, on the device that it has assigned."""

    def __init__(self, config: pytest.Config, given: Dict[str, Any]) -> None:
        """``given``: see Controller.pytest_configure_node."""
        self.config = config
        self.host: Optional[Dict[str, Any]] = given["host"]
        self.channel = given["channel"]
        self.selections: queue.Queue[Any] = queue.Queue()
        self.last_message = time.monotonic()
        self.alone = True  # no other worker needs the device between two cases
        self.output: Dict[str, Any] = {}
        self.relay = Relay(Path(options_of(config).results_dir))
        config.workeroutput[XDIST_KEY] = self.output  # type: ignore[attr-defined]
        # The processes that this worker starts must not take themselves for workers.
        for name in [name for name in os.environ if name.startswith("PYTEST_XDIST_")]:
            del os.environ[name]
        pytest_benchmark_adapter.leave_files_alone(config)
        # The controller counts failures and selects; a host's cache is about other runs.
        option = config.option
        option.maxfail, option.lf, option.stepwise, option.stepwise_skip = 0, False, False, False
        numbered = not devices.of(devices.choose(options_of(config).device)).without_number
        if given["device_id"] is not None and numbered:
            _replace_option(config, "device_id", given["device_id"])
        if self.host is None:
            devices.borrow(given["lease_holder"])
            # While it measures, a worker does not notice that the controller was killed.
            end_with_parent()
            return
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ssh may have it ignored
        if self.host["baseline"] is not None:
            path = scratch.make("fleet") / "baseline.json"  # until this process ends
            path.write_text(self.host["baseline"], encoding="utf-8")
            _replace_option(config, "baseline", str(path))

    def pytest_sessionstart(self) -> None:
        """Send the facts of this host before anything is collected."""
        facts = (
            None
            if self.host is None
            else asdict(HostFacts.of(self.config, run_of(self.config).selection.device))
        )
        self.channel.send(facts)
        self.channel.setcallback(self._receive, endmarker=None)
        if self.host is not None:
            threading.Thread(target=self._watch, daemon=True).start()

    def _receive(self, message: Any) -> None:
        self.last_message = time.monotonic()
        if message is None:
            self._leave()
        elif message != THERE:
            self.selections.put(message)

    def _watch(self) -> None:
        """End the session when the controller has been silent too long. Runs in a thread."""
        while time.monotonic() - self.last_message < MOST_SILENCE:
            time.sleep(PULSE_SECONDS)
        self._leave()

    def _leave(self) -> None:
        """End the session as Ctrl-C does, so that the case releases its device."""
        if "spent" not in self.output:
            os.kill(os.getpid(), signal.SIGINT)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_collection_modifyitems(
        self, items: List[pytest.Item]
    ) -> Generator[None, None, None]:
        """Wait for the controller's selection, and keep exactly its cases, in its order."""
        chosen = self.selections.get()
        self.alone = chosen["alone"]
        run = run_of(self.config)
        # The controller has no journal yet if only a running test turns out to measure.
        if chosen["journal"] is not None:
            self.relay = Relay(Path(chosen["journal"]))
            folder = self.relay.path.parent.absolute()
            if self.host is not None:
                folder = Path(options_of(self.config).results_dir, self.host["name"]).absolute()
            with contextlib.suppress(OSError):  # the code that writes there reports it
                folder.mkdir(parents=True, exist_ok=True)
            run.keep_results_in(folder)
        run.journal, run.order = self.relay, chosen["order"]
        run.results.suspects = chosen["suspects"]
        found = {item.nodeid: item for item in items}
        kept = [found[nodeid] for nodeid in chosen["nodeids"] if nodeid in found]
        yield
        # The controller's plugins have already left out and added cases.
        items[:] = kept

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Measure the controller's cases, one at a time.

        A device stays attached between two cases, unless other workers of its machine need it.
        """
        run_items(session, keep_fixtures=self.alone)
        return True

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Attach the lines for the journal to a report."""
        run = run_of(self.config)
        lines, self.relay.lines = self.relay.lines, []
        closing, run.closing = run.closing, []
        if lines or closing:
            report.user_properties.append((XDIST_KEY, {"lines": lines, "closing": closing}))

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Send the reason for pytest.exit: the controller then does not start the worker again."""
        if isinstance(excinfo.value, pytest.exit.Exception):
            code = excinfo.value.returncode
            self.output["exit"] = {
                "message": str(excinfo.value),
                "code": int(pytest.ExitCode.INTERRUPTED if code is None else code),
            }

    def pytest_sessionfinish(self) -> None:
        """Send the times of this worker; the controller does the work at the end of a run."""
        self.output["spent"] = run_of(self.config).spent.of_run()
