"""An alternating process replies to each command in turn, and only while it is quiet."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, Callable, List, Optional, Tuple
from unittest.mock import Mock

import pytest

from ipubench.fixtures.data.feeds import ArrayFeed
from ipubench.fixtures.instances.protocol import LEFT_OUT
from ipubench.fixtures.machine.processor import running_on
from ipubench.plugins.measure import meter, served
from ipubench.plugins.measure.instance import FailureReporter
from ipubench.plugins.measure.peaks import Peaks
from ipubench.plugins.measure.rounds import Calibrated, Limits
from ipubench.plugins.measure.served import (
    Commands,
    RoundsOnCommand,
    ServedMeter,
    Work,
    wait_until_quiet,
)
from ipubench.plugins.record.pytest_benchmark_adapter import EnoughRounds
from tests.support.command_line import given_options
from tests.support.fake_device import FakeDevice
from tests.support.fake_runtime import FakeStep


class FakeInstance:
    """Gives commands as a controlling run does, and keeps the replies."""

    def __init__(self, *commands: Tuple[str, Any]) -> None:
        self._commands = list(commands)
        self.replies: List[Any] = []

    def next_command(self) -> Optional[Tuple[str, Any]]:
        return self._commands.pop(0) if self._commands else None

    def reply(self, value: Any) -> None:
        self.replies.append(value)


def commands_of(instance: Any) -> Commands:
    return Commands(instance)


def test_a_reply_is_sent_while_the_next_command_is_awaited_and_no_thread_spins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance = FakeInstance(("ready", None), ("warm_up", 7))
    monkeypatch.setattr(served, "wait_until_quiet", lambda: instance.replies.append("quiet"))
    commands = commands_of(instance)
    assert commands.wait("ready") is None and instance.replies == []
    commands.reply("built")
    assert commands.wait("warm_up") == 7 and instance.replies == ["quiet", "built"]


def test_each_round_replies_with_its_seconds_until_the_record_is_wanted() -> None:
    instance = FakeInstance(("round", None), ("round", None), ("record", "precision"))
    rounds = RoundsOnCommand(Limits(5.0), FakeDevice(0).clock, None)
    rounds.commands = commands_of(instance)
    rounds.before_round([])
    rounds.before_round([0.5])
    with pytest.raises(EnoughRounds):
        rounds.before_round([0.5, 0.25])
    first, *replies = instance.replies
    assert (first, [reply[0] for reply in replies]) == (None, [0.5, 0.25])
    assert all(used >= 0 and waited >= 0 for _, used, waited, _ in replies)
    assert rounds.stopped_by == "precision"


@pytest.mark.parametrize(("busy", "looks"), [(0, 1), (3, 4), (10**6, 150)])
def test_it_waits_for_threads_that_spin_after_their_work(
    busy: int, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They use the CPU during ``busy`` looks of two milliseconds each; 150 are the most."""
    done: List[float] = []
    clock = SimpleNamespace(
        monotonic=lambda: round(sum(done), 6),
        sleep=done.append,
        process_time=lambda: 0.002 * min(len(done), busy),
    )
    monkeypatch.setattr(served, "time", clock)
    wait_until_quiet()
    assert len(done) == looks


@pytest.mark.parametrize(("length", "rounds"), [(10, [0.1]), (20, [])])
def test_calibration_counts_as_rounds_if_both_processes_take_its_length(
    length: int, rounds: List[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def calibrate(step: Any, clock: Any, target: float, most_seconds: float) -> Calibrated:
        step.batches_per_step = 10
        return Calibrated([0.1], batches=30)

    monkeypatch.setattr(meter, "calibrate", calibrate)
    device, instance = FakeDevice(0), FakeInstance(("warm_up", [length, None]))
    config = SimpleNamespace(option=given_options(budget=5.0))
    case_run: Any = SimpleNamespace(
        item=SimpleNamespace(config=config), case=None, benchmark=None, device=device
    )
    made = ServedMeter(case_run, Peaks(None, "fake", device.clock), instance)  # type: ignore[arg-type]
    step = FakeStep(device, ArrayFeed("synthetic", ()), 0.01)
    assert made._choose_batches(step, calibrated=True) == Calibrated(rounds, batches=30)
    assert step.batches_per_step == length
    (reply,) = instance.replies
    assert (reply["batches"], reply["unfit"], reply["timed"]) == (10, "", 1.0)
    assert not made._adapts(step)


@pytest.mark.parametrize(("why", "fails"), [(LEFT_OUT, False), ("slower", True)])
def test_a_process_that_leaves_its_only_case_out_has_not_failed(why: str, fails: bool) -> None:
    instance = Mock()
    item: Any = SimpleNamespace(nodeid="test_a", session=SimpleNamespace(items=["test_a"]))
    call: Any = SimpleNamespace(excinfo=SimpleNamespace(value=pytest.skip.Exception(why)))
    list(FailureReporter(instance).pytest_runtest_makereport(item, call))
    assert (instance.fail.called, instance.skip.called) == (fails, not fails)


DATA = bytes(1 << 22)


def compute() -> None:
    """The interpreter's lock is free meanwhile, so that threads compute at the same time."""
    hashlib.sha256(DATA).digest()


def in_threads() -> None:
    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            pool.submit(compute)


def wait_and_compute_in_threads() -> None:
    """On average this keeps less than one CPU busy."""
    time.sleep(0.1)
    in_threads()


def start_a_program() -> None:
    subprocess.run([sys.executable, "-S", "-c", "0"], check=True)


@pytest.mark.parametrize(
    ("call", "alone"),
    [
        (compute, True),
        (in_threads, False),
        (wait_and_compute_in_threads, False),
        (start_a_program, False),
    ],
)
def test_a_call_computes_in_one_thread(
    call: Callable[[], None], alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Those of other tests.
    monkeypatch.setattr(served, "has_children", lambda: False)
    before = Work.so_far()
    call()
    assert Work.so_far().since(before).is_of_one_thread == alone


def test_a_program_that_outlives_the_call_may_compute() -> None:
    before = Work.so_far()
    with subprocess.Popen(["sleep", "60"]) as program:
        found = Work.so_far().since(before)
        alone = found.is_of_one_thread
        program.kill()
    assert not alone


def test_a_thread_that_a_case_has_started_leaves_its_cpu() -> None:
    """A pool that the first case fills serves the next ones."""
    before = os.sched_getaffinity(0)
    with ThreadPoolExecutor(1) as pool:
        with running_on({max(before)}):
            assert pool.submit(os.sched_getaffinity, 0).result() == {max(before)}
        assert pool.submit(os.sched_getaffinity, 0).result() == before


def test_a_case_is_on_its_cpu_until_it_ends() -> None:
    """The next case of the process begins on all CPUs, whatever happens to this one."""
    before = os.sched_getaffinity(0)
    seen = []
    with contextlib.suppress(ValueError), running_on({max(before)}):
        seen.append(os.sched_getaffinity(0))
        raise ValueError
    assert seen == [{max(before)}] and os.sched_getaffinity(0) == before
