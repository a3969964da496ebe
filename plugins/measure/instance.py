"""`--ipubench-instance=ADDRESS`: this pytest process is one of several that run a case together.

The run at that address measures. This process builds the same step and executes its commands. Only
the fixture `instances` sets this option.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, Generator, List, Optional

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.devices import borrow
from ipubench.fixtures.instances.instance import Instance
from ipubench.fixtures.instances.protocol import LEFT_OUT
from ipubench.fixtures.machine import scratch
from ipubench.fixtures.pytest_fixtures import shared_of
from ipubench.fixtures.runtimes.data_parallel import job_variables
from ipubench.fixtures.runtimes.declared import finished
from ipubench.fixtures.runtimes.step import Step, Work, ask
from ipubench.plugins.command_line.arguments import inspection_arguments
from ipubench.plugins.measure.base import BatchFacts, CaseRun, StepMeter
from ipubench.plugins.measure.inspection import device_reports, folder_of, profile, write_graph
from ipubench.plugins.measure.rounds import timed_call
from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.record.host_process import PeakMemory
from ipubench.plugins.state import Run


def join_instances(config: pytest.Config) -> Optional[Instance]:
    """Become an instance if another run has started this process as one.

    This has to happen before any framework is imported.
    """
    address = options_of(config).instance
    if address is None:
        return None
    try:
        instance = Instance(address, os.environ)
    except CaseError as error:
        raise pytest.UsageError(str(error)) from None
    shared_of(config).part = (instance.rank, instance.count)
    try:
        instance.set_up()
    except CaseError as error:
        raise pytest.UsageError(str(error)) from None
    if instance.exchange:
        os.environ.update(job_variables(instance.exchange, instance.rank, instance.count))
    config.pluginmanager.register(FailureReporter(instance))
    if not instance.is_first_on_other_host:
        # The run, or the first instance on the host, holds the device for all instances.
        borrow(os.getppid())
    return instance


def direct_instances(run: Run) -> None:
    """Give the fixture ``instances`` the command that starts an instance."""

    def command(nodeid: str, address: str) -> List[str]:
        return instance_command(run, nodeid, address, scratch.make("cache"))

    shared_of(run.config).command = command


def instance_command(run: Run, nodeid: str, address: str, cache_dir: Path) -> List[str]:
    """Return the command that runs one case as an instance of the run at an address."""
    from ipubench.plugins.processes.remote_case import RemoteCase

    own = run.selection.folders.get(nodeid, "")
    case = RemoteCase(run, nodeid, arguments=inspection_arguments(run.config, own))
    return case.command(run.results_dir, cache_dir, address)


class InstanceMeter(StepMeter):
    """The meter of an instance: executes the commands of the controlling run on the step."""

    def __init__(self, case_run: CaseRun, instance: Instance) -> None:
        super().__init__(case_run)
        self._instance = instance

    def work_on(self, step: Step, facts: BatchFacts) -> None:
        """Execute commands until the controlling run sends the last one."""
        pytest_benchmark_adapter.leave_out(self.benchmark)
        with self._own_reports():
            completed = self._instance.serve_commands(self._commands(step))
        if not completed:
            pytest.exit("the run that started this instance is gone", returncode=1)

    def _own_reports(self) -> ContextManager[None]:
        """With ``--profile``: have the device write its reports into this instance's folder."""
        root = options_of(self.config).profile
        if root is None:
            return contextlib.nullcontext()
        from ipubench.fixtures.instances.instances_step import instance_folder

        folder = instance_folder(folder_of("--profile", root, self.item), self._instance.rank)
        return device_reports(self.device, folder)

    def _commands(self, step: Step) -> Dict[str, Callable[[Any], Any]]:
        memory = PeakMemory()

        def run(batches: int) -> float:
            step.batches_per_step = batches
            return timed_call(step, self.device.clock)

        def facts(_: Any) -> Dict[str, Any]:
            return {
                "describe": step.describe(),
                "flops_per_item": ask(step.work.flops_per_item),
                "weight_traffic": ask(step.work.weight_traffic),
                "prefetched": step.loading.prefetched,
                "burst": step.loading.burst,
                "halves": step.loading.halves is not None,
                "host": socket.gethostname(),
                "cores": sorted(os.sched_getaffinity(0)),
            }

        def compile_(_: Any) -> Dict[str, Any]:
            compiled = step.compile()
            cache = step.model_cache
            return {"compiled": compiled, "hit": None if cache is None else cache.hit}

        def note(seconds: float) -> Optional[float]:
            return None if step.model_cache is None else step.model_cache.note(seconds)

        halves: List[Work] = []

        def parts(_: Any) -> List[float]:
            halves[:] = ask(step.loading.halves) or ()
            return [half.amount for half in halves]

        def prepare_rounds(_: Any) -> None:
            if step.prepare_rounds is not None:
                step.prepare_rounds(lambda text: None)

        def save_graph(folder: Optional[str]) -> None:
            if folder is not None:
                write_graph(step, Path(folder))

        return {
            "build": lambda _: step.build(),
            "compile": compile_,
            "note": note,
            "facts": facts,
            "prepare_rounds": prepare_rounds,
            "run": run,
            "most_rounds": lambda _: ask(step.rounds.most),
            "latencies": lambda _: ask(step.latencies),
            "parts": parts,
            "prepare_part": lambda number: halves[number].prepare(),
            "part": lambda number: halves[number].run(),
            "memory": lambda _: memory.read(),
            "device_memory": lambda _: ask(step.device_memory),
            "counters": lambda _: ask(step.counters) or {},
            "finish": lambda _: finished(step),
            "data": lambda _: step.feed.describe(),
            "save_graph": save_graph,
            "profile": lambda folder: profile(step, Path(folder)),
            "close": lambda _: self.close(),
        }


class FailureReporter:
    """Reports a failure anywhere in the case to the controlling run."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, Any, None]:
        """Report the exception of a failed case; the whole report is in the log.

        After a skipped test, a process with more tests continues; and one that leaves its case out
        has not failed.
        """
        yield
        value = getattr(call.excinfo, "value", None)
        goes_on = isinstance(value, pytest.skip.Exception) and (
            len(item.session.items) > 1 or str(value) == LEFT_OUT
        )
        if call.excinfo is not None and goes_on:
            self._instance.skip(str(call.excinfo.value), item.nodeid)
        elif call.excinfo is not None:
            self._send(call.excinfo.value, item.nodeid)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Report why the session ends early, for example because there is no device."""
        self._send(excinfo.value)

    def _send(self, error: BaseException, case: str = "") -> None:
        expected = isinstance(error, (CaseError, pytest.exit.Exception))
        self._instance.fail(str(error) if expected else f"{type(error).__name__}: {error}", case)
