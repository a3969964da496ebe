"""What the controller of `-n N` and its workers decide, without any of them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, Optional, Type
from unittest.mock import Mock

import pytest

from ipubench.fixtures.case.cases import Case, case_key
from ipubench.fixtures.devices.base import DeviceError
from ipubench.fixtures.machine import scratch
from ipubench.plugins.processes import controller
from ipubench.plugins.processes.controller import Controller
from ipubench.plugins.processes.worker import PART, Handover, Worker
from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.record.files import JsonLinesFile, read_lines
from ipubench.plugins.run.progress import progress_key
from ipubench.plugins.run.results import Run, SessionResults, run_key
from ipubench.plugins.run.time_spent import spent_key
from tests.support.fake_cases import Fake


@pytest.mark.parametrize(
    ("tx", "count"),
    [([], 0), (["popen", "popen"], 2), (["3*popen", "popen"], 4), (["*popen"], 1)],
)
def test_each_word_for_workers_counts_as_many_as_it_says(tx: List[str], count: int) -> None:
    assert controller.worker_total(tx) == count


@pytest.mark.parametrize(
    ("devices", "device_id", "variable", "count"),
    [("2", None, None, 2), ("2", 1, None, 1), ("0", None, None, 1), ("2", None, "7", None)],
)
def test_auto_is_a_worker_for_each_device_that_may_be_used(
    devices: str,
    device_id: Optional[int],
    variable: Optional[str],
    count: Optional[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("IPUBENCH_FAKE_COUNT", devices)
    if variable is not None:
        monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", variable)
    config: Any = SimpleNamespace(
        args=["bench_fake.py"],
        invocation_params=SimpleNamespace(dir=Path("/")),
        option=SimpleNamespace(device="fake", device_id=device_id),
    )
    assert controller.pytest_xdist_auto_num_workers(config) == count


def test_what_needs_more_than_the_ipu_of_a_worker_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: List[Callable[[Any, Any], str]] = []
    monkeypatch.setattr(controller, "leave_out", lambda config, items, why: found.append(why))
    for device, count in (("ipu", 1), ("cuda", 2), ("ipu", 2)):
        ours = SimpleNamespace(device=device, count=count)
        manager = SimpleNamespace(getplugin={"ipubench-controller": ours}.get)
        config: Any = SimpleNamespace(pluginmanager=manager)
        controller.pytest_collection_modifyitems(config, [])
    (why,) = found
    for ipus, instances, said in ((1, 1, False), (2, 1, True), (1, 2, True)):
        case = SimpleNamespace(config=SimpleNamespace(ipus=ipus, instances=instances))
        assert bool(why(None, case)) == said


@pytest.mark.parametrize(("given", "code"), [(None, 2), (4, 4), (0, 0)])
def test_a_worker_says_how_its_session_was_ended(given: Optional[int], code: int) -> None:
    worker = Worker.__new__(Worker)
    worker.output = {}
    for error in (KeyboardInterrupt(), pytest.exit.Exception("there is no device", given)):
        assert worker.output == {}
        caught: Any = SimpleNamespace(value=error)
        worker.pytest_keyboard_interrupt(caught)
    assert worker.output == {"exit": {"message": "there is no device", "code": code}}


CASE = "bench.py::bench[one]"


@pytest.fixture
def directing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Controller:
    """A controller of workers whose run has one case."""
    journal = JsonLinesFile(tmp_path / "run.jsonl")
    assert journal.create()
    progress = SimpleNamespace(reported=lambda report: None, begin=lambda nodeid: None)
    found = Controller.__new__(Controller)
    config: Any = SimpleNamespace(
        stash={run_key: Run(journal, SessionResults()), progress_key: progress}
    )
    found.config, found.known, found.nodeids = config, {CASE}, {CASE, "test.py::test"}
    monkeypatch.setattr(pytest_benchmark_adapter, "adopt", lambda *_: None)
    return found


def report_of(when: str, *lines: Dict[str, Any], nodeid: str = CASE, said: str = "") -> Any:
    """Return what pytest-xdist hands on of a worker's report."""
    part = {"lines": list(lines), "closing": ["said once"]}
    properties = [("the user's", 1), *([(PART, part)] if lines else [])]
    return SimpleNamespace(nodeid=nodeid, when=when, user_properties=properties, longrepr=said)


def test_the_case_of_a_worker_that_crashed_has_no_result_and_says_why(
    directing: Controller,
) -> None:
    measured: Dict[str, Any] = {"type": "case", "benchmark": {"fullname": CASE}}
    passed = {"type": "outcome", "case": CASE, "outcome": "passed"}
    for _ in range(2):
        report = report_of("call", measured, passed)
        directing.pytest_runtest_logreport(report)
        assert report.user_properties == [("the user's", 1)]
    run = directing.config.stash[run_key]
    assert run.closing == ["said once"] and list(run.results.benchmarks) == [CASE]
    # With the group of --dist=loadgroup, as pytest-xdist knows it.
    report = report_of("???", nodeid=f"{CASE}@g", said="worker 'gw0' crashed")
    directing.pytest_runtest_logreport(report)
    for results in (run.results, SessionResults.of(read_lines(run.journal.path))):
        assert results.outcomes == {CASE: "failed"}
        assert results.reasons == {CASE: "worker 'gw0' crashed"}
    assert run.results.benchmarks == {} and report.nodeid == CASE


def test_a_begun_case_is_noted_and_other_tests_are_not(directing: Controller) -> None:
    begun: List[str] = []
    progress: Any = directing.config.stash[progress_key]
    progress.begin = begun.append
    for nodeid in ("test.py::test", CASE):
        directing.pytest_runtest_logstart(nodeid)
    run = directing.config.stash[run_key]
    assert begun == list(run.results.running) == [CASE]
    directing.pytest_runtest_logreport(report_of("call", nodeid="test.py::test@g"))
    another = report_of("call", nodeid="test.py::test_another")
    for report in (report_of("???", nodeid="test.py::test"), another):
        directing.pytest_runtest_logreport(report)
    assert another.nodeid == "test.py::test_another"
    assert run.results.outcomes == {}


def test_what_a_worker_measured_is_a_benchmark_of_this_session(
    directing: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    adopted: List[Any] = []
    monkeypatch.setattr(pytest_benchmark_adapter, "adopt", lambda _, one: adopted.append(one))
    shown: List[Any] = []
    progress: Any = directing.config.stash[progress_key]
    progress.reported = shown.append
    benchmark = {"fullname": CASE}
    again = {"type": "fresh", "benchmark": benchmark}
    report = report_of("call", {"type": "case", "benchmark": benchmark}, again)
    directing.pytest_runtest_logreport(report)
    assert adopted == [benchmark] and shown == [report]
    assert not hasattr(report, "ipubench_case")
    crash = report_of("???")
    directing.pytest_runtest_logreport(crash)
    assert crash.ipubench_case and shown == [report, crash]


class Node:
    """A worker as pytest-xdist has it; ``told`` is what it handed over at its end."""

    def __init__(self, name: str, **told: Any) -> None:
        self.workerinput: Dict[str, Any] = {"workerid": name}
        self.workeroutput = {PART: told} if told else {}


@pytest.fixture
def with_devices(directing: Controller) -> Iterator[Controller]:
    """The controller of two workers that have a device each."""
    directing.free, directing.taken, directing.started = [3, 5], {}, set()
    directing.lost, directing.shared = False, False
    option: Any = SimpleNamespace(dist="load", device_id=None)
    directing.config.option = option
    spent: Any = SimpleNamespace(workers=[])
    directing.config.stash[spent_key] = spent
    with scratch.nameless_file() as directing.selection, scratch.nameless_file() as directing.host:
        yield directing


def test_the_device_of_a_worker_that_crashed_is_that_of_the_next(with_devices: Controller) -> None:
    nodes = [Node("gw0"), Node("gw1")]
    for node in nodes:
        with_devices.pytest_configure_node(node)
        with_devices.pytest_testnodeready(node)
    with_devices.pytest_testnodedown(nodes[1], "Not properly terminated")
    another = Node("gw2")
    with_devices.pytest_configure_node(another)
    given = [Handover(**node.workerinput[PART]) for node in (*nodes, another)]
    assert [one.device_id for one in given] == [3, 5, 5]
    assert all((one.lease_holder, one.shared) == (os.getpid(), False) for one in given)
    assert len({path for one in given for path in (one.selection, one.host)}) == 2


@pytest.mark.parametrize("dist", controller.GROUPING)
def test_after_a_crash_groups_end_the_run_as_an_interruption(
    with_devices: Controller, dist: str
) -> None:
    with_devices.config.option.dist = dist
    with_devices.pytest_configure_node(Node("gw0"))
    for error in ("Not properly terminated", None):  # the other one ends well
        with_devices.started.add("gw0")
        with_devices.pytest_testnodedown(Node("gw0"), error)
    with pytest.raises(pytest.exit.Exception, match=f"--dist={dist} cannot go on") as caught:
        with_devices.pytest_configure_node(Node("gw2"))
    assert caught.value.returncode == pytest.ExitCode.INTERRUPTED


def test_what_a_worker_says_at_its_end_counts(with_devices: Controller) -> None:
    with_devices.pytest_testnodedown(Node("gw0", spent={"rounds": 3.0}), None)
    assert with_devices.config.stash[spent_key].workers == [{"rounds": 3.0}]
    ended = Node("gw1", spent={"start": 1.0}, exit={"message": "there is no device", "code": 4})
    with pytest.raises(pytest.exit.Exception, match="there is no device") as caught:
        with_devices.pytest_testnodedown(ended, None)
    assert caught.value.returncode == 4
    assert with_devices.config.stash[spent_key].workers[1:] == [{"start": 1.0}]
    with pytest.raises(pytest.UsageError, match="^the worker gw2 could not start: no memory$"):
        with_devices.pytest_testnodedown(Node("gw2"), "Traceback:\n  in main\nno memory\n")


@pytest.mark.parametrize(
    ("said", "code"),
    [("stopping after 2 failures", pytest.ExitCode.TESTS_FAILED), ("", pytest.ExitCode.OK)],
)
def test_a_run_that_x_ended_is_one_of_which_cases_failed(
    directing: Controller, said: str, code: pytest.ExitCode
) -> None:
    caught: Any = SimpleNamespace(value=KeyboardInterrupt(said))
    directing.pytest_keyboard_interrupt(caught)
    session: Any = SimpleNamespace(exitstatus=pytest.ExitCode.OK)
    directing.pytest_sessionfinish(session)
    assert session.exitstatus == code


def test_what_workers_are_to_run_is_handed_over_once_it_is_known(
    with_devices: Controller,
) -> None:
    run = with_devices.config.stash[run_key]
    run.order, run.results.suspects = [CASE], [CASE]
    case = SimpleNamespace(nodeid=CASE, stash={case_key: Case(Fake("one"), "one")})
    plain = SimpleNamespace(nodeid="test.py::test", stash={})
    session: Any = SimpleNamespace(
        items=[case, plain], testsfailed=0, perform_collect=lambda: None, Interrupted=ValueError
    )
    fcntl.flock(with_devices.selection, fcntl.LOCK_EX)
    assert with_devices.pytest_collection(session)
    with open(scratch.path_of(with_devices.selection), "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # which a worker waits for
        assert json.load(file) == {
            "nodeids": [CASE, "test.py::test"],
            "journal": str(run.journal.path),
            "order": [CASE],
            "suspects": [CASE],
        }
    assert (with_devices.known, with_devices.nodeids) == ({CASE}, {CASE, "test.py::test"})
    session.testsfailed = 1
    with_devices.config.option.continue_on_collection_errors = True
    assert with_devices.pytest_collection(session)
    with_devices.config.option.continue_on_collection_errors = False
    with pytest.raises(ValueError, match="1 error during collection"):
        with_devices.pytest_collection(session)


@pytest.mark.parametrize(
    ("count", "device_id", "found", "own"),
    [
        (2, None, [3, 5, 7], [3, 5]),
        (1, 5, [3, 5], []),
        (2, None, [], []),
        (3, None, [1, 2, 3], [1, 2, 3]),
    ],
)
def test_each_worker_has_a_device_of_its_own(
    directing: Controller, count: int, device_id: Optional[int], found: List[int], own: List[int]
) -> None:
    directing.count, directing.device = count, "cuda"
    option: Any = SimpleNamespace(device_id=device_id)
    directing.config.option = option
    assert directing._own_devices(found) == own
    directing.count = len(found) + 1
    if found:
        with pytest.raises(pytest.UsageError, match=r"^-n \d|^--device-id=5 with -n \d"):
            directing._own_devices(found)


def test_devices_are_held_and_workers_wait_before_any_of_them_starts(
    with_devices: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_devices.device, with_devices.held = "fake", contextlib.ExitStack()
    with_devices.config.option.affinity = "cores"
    held: List[List[str]] = []

    def hold(config: Any, names: List[str]) -> Any:
        held.append(names)
        return contextlib.nullcontext()

    monkeypatch.setattr(controller, "hold", hold)
    with with_devices.held:
        with_devices.pytest_sessionstart()
        assert held == [["fake-3", "fake-5"]]
        path = scratch.path_of(with_devices.selection)
        with open(path, "rb") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


@pytest.mark.parametrize("error", [DeviceError, scratch.ScratchError])
def test_without_a_device_or_room_for_a_file_no_worker_starts(
    with_devices: Controller, error: Type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_devices.device, with_devices.held = "fake", contextlib.ExitStack()
    with_devices.config.option.affinity = "cores"
    monkeypatch.setattr(controller, "hold", Mock(side_effect=error("no room, or no device")))
    with pytest.raises(pytest.UsageError, match="^no room, or no device$"):
        with_devices.pytest_sessionstart()
