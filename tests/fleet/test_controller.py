"""Decisions of the controller of several workers, without workers."""

from __future__ import annotations

import queue
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, List, Optional, Tuple
from unittest import mock

import pytest

from ipubench.fixtures import devices
from ipubench.plugins.command_line.arguments import XDIST_KEY, workers_in_turns
from ipubench.plugins.command_line.role import Role
from ipubench.plugins.fleet import controller
from ipubench.plugins.fleet.distribution import Distribution
from ipubench.plugins.fleet.local_workers import LocalWorkers
from ipubench.plugins.fleet.worker import Relay, Worker
from ipubench.plugins.fleet.xdist_adapter import why_lost
from ipubench.plugins.results.lines import OutcomeLine
from ipubench.plugins.run.recording import Recording
from ipubench.plugins.selection.selected import Selection
from ipubench.plugins.state import run_key
from tests.support.command_line import given_options

CASES = ("one", "two", "three")


def recording(config: Any) -> Recording:
    """Return a run, attached to its configuration."""
    run = Recording(config, Selection({}, "cpu"))
    config.stash = {run_key: run}
    return run


@pytest.mark.parametrize(
    ("tx", "count"),
    [([], 0), (["popen", "popen"], 2), (["3*popen", "popen"], 4), (["*popen"], 1)],
)
def test_each_value_of_n_gives_its_number_of_workers(tx: List[str], count: int) -> None:
    assert controller.worker_total(tx) == count


@pytest.mark.parametrize(
    ("devices", "device_id", "variable", "count"),
    [("2", None, None, 2), ("2", 1, None, 1), ("0", None, None, 1), ("2", None, "7", None)],
)
def test_auto_gives_a_worker_per_available_device(
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
        option=given_options(device="fake", device_id=device_id),
    )
    assert controller.automatic_workers(config) == count


def local(count: int, device: str = "fake", device_id: Optional[int] = None) -> LocalWorkers:
    option = given_options(device=device, device_id=device_id)
    return LocalWorkers(mock.Mock(option=option), count)


@pytest.mark.parametrize(
    ("count", "device_id", "there", "own"),
    [(2, None, "3", [0, 1]), (1, 5, "2", [5]), (2, None, "0", [None, None]), (2, None, "1", None)],
)
def test_each_worker_has_a_device(
    count: int,
    device_id: Optional[int],
    there: str,
    own: Optional[List[Optional[int]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("IPUBENCH_FAKE_COUNT", there)
    if own is None:
        with pytest.raises(pytest.UsageError, match=f"-n 2: .* {there} of --device=fake"):
            local(count)
        return
    crew = local(count, device_id=device_id)
    assert [crew.handover(name)["device_id"] for name in crew.names] == own
    assert not crew.turns and local(2, "cpu").turns == {"gw0": "host", "gw1": "host"}


def test_cases_that_need_more_than_a_workers_ipu_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for kind in ("ipu", "cuda"):
        monkeypatch.setattr(devices.of(kind), "device_ids", staticmethod(lambda: [0, 1]))
    found: List[Callable[[Any, Any], str]] = []
    selection: Any = SimpleNamespace(
        leave_out=lambda items, why: found.append(why), device="cpu", empty=False
    )
    for device, count in (("ipu", 1), ("cuda", 2), ("ipu", 2)):
        ours = SimpleNamespace(crew=local(count, device))
        config: Any = SimpleNamespace(
            pluginmanager=mock.Mock(getplugin=mock.Mock(return_value=ours)),
            option=given_options(launcher_args=None),
        )
        run: Any = SimpleNamespace(config=config, selection=selection, role=Role.CONTROLLER)
        controller.leave_out_larger(run, [])
    (why,) = found
    for ipus, instances, said in ((1, 1, False), (2, 1, True), (1, 2, True)):
        case = SimpleNamespace(config=SimpleNamespace(ipus=ipus, instances=instances))
        assert bool(why(None, case)) == said


def test_only_workers_of_one_device_alternate() -> None:
    for part, count in (({"in_turns": True}, 3), ({"in_turns": False}, 1), ({}, 1)):
        config: Any = SimpleNamespace(workerinput={XDIST_KEY: part, "workercount": 3})
        assert workers_in_turns(config) == count


class Node:
    """A worker like pytest-xdist's."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(spec=SimpleNamespace(worker=name))
        self.sent: List[str] = []

    def send_runtest_some(self, indices: List[int]) -> None:
        self.sent += [CASES[index] for index in indices]


def distributing(most_losses: int, restarts: Optional[str] = None) -> Tuple[Any, Any, List[Node]]:
    """Return the distribution of three cases to two workers, its failures, and the workers."""
    names = ["a", "b"]
    crew: Any = SimpleNamespace(names=names, most_losses=most_losses, facts={}, turns={})
    crew.devices = dict.fromkeys(names, 1)
    config: Any = SimpleNamespace(
        option=given_options(maxworkerrestart=restarts),
        stash={run_key: mock.Mock(baseline=None)},
    )
    controller = mock.Mock(has_ended=lambda key: False)
    items: List[Any] = [SimpleNamespace(nodeid=case, stash={}) for case in CASES]
    made = Distribution(config, crew, controller)
    made.items = items
    nodes = [Node(name) for name in names]
    for node in nodes:
        come(made, node)
    return made, controller.failed, nodes


def come(made: Distribution, node: Node) -> None:
    made.add_node(node)
    made.add_node_collection(node, CASES)
    if made.collection_is_completed:
        made.schedule()


def test_a_case_that_kills_a_local_worker_fails_and_the_worker_restarts() -> None:
    made, failed, (a, b) = distributing(most_losses=1)
    assert made.lost(a, "killed", None)
    failed.assert_called_once_with("one", mock.ANY)
    again = Node("a")
    come(made, again)
    assert (again.sent, b.sent) == (["three"], ["two"])
    assert made.lost(again, "killed", None)  # for the case, not for the worker
    assert not made.lost_workers


def test_a_case_of_a_lost_host_goes_to_another_and_then_fails() -> None:
    made, failed, (a, b) = distributing(most_losses=2)
    made.lost(a, "cut", None)
    made.mark_test_complete(b, 1)
    assert b.sent == ["two", "one"] and not failed.called
    assert not made.lost(b, "cut", None) or failed.called
    failed.assert_called_once_with("one", mock.ANY)


def test_a_case_that_has_ended_is_not_measured_again_when_its_worker_is_lost() -> None:
    made, failed, (a, b) = distributing(most_losses=2)
    made._controller.has_ended = lambda key: key == "one"
    made.lost(a, "cut", None)
    made.mark_test_complete(b, 1)
    made.mark_test_complete(b, 2)
    assert b.sent == ["two", "three"] and made.tests_finished
    assert not failed.called


@pytest.mark.parametrize(("restarts", "losses"), [("0", 1), (None, 2)])
def test_a_host_that_is_lost_repeatedly_is_abandoned(restarts: Optional[str], losses: int) -> None:
    made, failed, (a, b) = distributing(2, restarts)
    b.send_runtest_some = mock.Mock(side_effect=OSError)  # type: ignore[method-assign]
    for number in range(losses):
        assert made.lost(a, "cut", None) == (number + 1 < losses)
        a = Node("a")
        made.add_node(a)
    assert made.lost_workers == {"a": "cut"}
    made.failed_to_start(b, "gone")
    assert made.tests_finished or failed.called


def test_the_last_worker_to_quit_ends_the_run_with_its_reason() -> None:
    made, failed, (a, b) = distributing(most_losses=1)
    ended = {XDIST_KEY: {"exit": {"message": "no device", "code": 4}}}
    assert not made.lost(a, "it ended", ended)
    with pytest.raises(pytest.exit.Exception, match="no device") as caught:
        made.lost(b, "it ended", ended)
    assert caught.value.returncode == 4 and not failed.called


def test_a_worker_that_cannot_start_is_a_usage_error() -> None:
    made, _, _ = distributing(most_losses=1)
    made._schedule = None
    with pytest.raises(pytest.UsageError, match="worker a .*: no memory"):
        made.lost(Node("a"), why_lost("Traceback:\n  in main\nUsageError: no memory\n"), None)


@pytest.mark.parametrize(("given", "code"), [(None, 2), (4, 4), (0, 0)])
def test_a_worker_reports_how_its_session_ended(given: Optional[int], code: int) -> None:
    worker = Worker.__new__(Worker)
    worker.output = {}
    for error in (KeyboardInterrupt(), pytest.exit.Exception("no device", given)):
        assert worker.output == {}
        caught: Any = SimpleNamespace(value=error)
        worker.pytest_keyboard_interrupt(caught)
    assert worker.output == {"exit": {"message": "no device", "code": code}}


def test_a_worker_exits_if_its_controller_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker.__new__(Worker)
    worker.output, worker.last_message = {}, 0.0
    now = [0.0]
    clock = SimpleNamespace(
        monotonic=lambda: now[0], sleep=lambda seconds: now.append(now.pop() + seconds)
    )
    monkeypatch.setattr("ipubench.plugins.fleet.worker.time", clock)
    killed: List[float] = []
    monkeypatch.setattr("os.kill", lambda pid, number: killed.append(now[0]))
    worker._watch()
    assert killed == [90.0]
    worker.output["spent"] = {}
    worker._receive(None)  # after the session the controller closes the connection
    assert killed == [90.0]


def test_a_worker_runs_the_selection_in_its_order(tmp_path: Path) -> None:
    worker = Worker.__new__(Worker)
    worker.host, worker.selections = None, queue.Queue()
    run = recording(SimpleNamespace(option=given_options(results_dir="results")))
    worker.config = run.config
    journal = str(tmp_path / "results" / "run.jsonl")
    chosen = {"nodeids": ["two", "one", "gone"], "order": ["one", "two"], "suspects": ["two"]}
    worker.selections.put({**chosen, "journal": journal, "alone": False})
    first, second, _ = items = [SimpleNamespace(nodeid=case) for case in CASES]
    around: Any = worker.pytest_collection_modifyitems(items)  # type: ignore[arg-type]
    next(around)
    items.remove(first)  # by a plugin of the project
    assert list(around) == [] and items == [second, first] and not worker.alone
    assert (run.order, run.results.suspects) == (["one", "two"], ["two"])
    assert run.results_dir == tmp_path / "results"


def test_each_line_travels_once_with_the_next_report() -> None:
    worker = Worker.__new__(Worker)
    run = recording(SimpleNamespace())
    worker.config, worker.relay = run.config, Relay(Path("run.jsonl"))
    run.journal = worker.relay
    line = {"type": "outcome", "case": "one", "outcome": "passed"}
    reports = [SimpleNamespace(user_properties=[]) for _ in range(3)]
    run.add(OutcomeLine("one", "passed"))
    worker.pytest_runtest_logreport(reports[0])
    run.closing.append("compiled, not run")
    worker.pytest_runtest_logreport(reports[1])
    worker.pytest_runtest_logreport(reports[2])
    assert [report.user_properties for report in reports] == [
        [(XDIST_KEY, {"lines": [line], "closing": []})],
        [(XDIST_KEY, {"lines": [], "closing": ["compiled, not run"]})],
        [],
    ]


def test_an_interruption_before_the_session_starts_is_no_maxfail() -> None:
    """pytest calls the hook also when a signal comes while plugins are configured."""
    config: Any = SimpleNamespace()
    run = recording(config)
    made = controller.Controller.__new__(controller.Controller)
    made.config, made._xdist = config, None
    made.pytest_keyboard_interrupt(SimpleNamespace(value=KeyboardInterrupt()))  # type: ignore[arg-type]
    assert run.enough is False
