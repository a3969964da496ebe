"""What a worker of `-n N` hands to its controller, and when it runs a case."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List

import pytest

from ipubench.fixtures.devices.lease import INHERIT_VARIABLE
from ipubench.plugins.processes.worker import PART, Handover, Relay, Worker, workers_in_turns
from ipubench.plugins.run.results import Run, SessionResults, run_key
from ipubench.plugins.run.time_spent import TimeSpent, spent_key

A, B, C = (f"bench.py::bench[{name}]" for name in "abc")


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    """A worker that shares its host, with the files of its controller."""
    found = Worker.__new__(Worker)
    option = SimpleNamespace(results_dir="results")
    config: Any = SimpleNamespace(stash={spent_key: TimeSpent()}, option=option)
    found.config, found.output, found.shared = config, {}, True
    found.selection = tmp_path / "selection"
    (tmp_path / "host").touch()
    with (tmp_path / "host").open("rb+") as found.host:
        yield found


def chosen(worker: Worker, *nodeids: str, journal: Any = None) -> None:
    """Have the controller select these."""
    given = {"nodeids": nodeids, "journal": journal, "order": [A, B], "suspects": [B]}
    worker.selection.write_text(json.dumps(given))


def test_a_worker_runs_what_was_selected_in_that_order_and_knows_the_run(
    worker: Worker, tmp_path: Path
) -> None:
    chosen(worker, B, A, "gone", journal=str(tmp_path / "results" / "run.jsonl"))
    items: List[Any] = [SimpleNamespace(nodeid=nodeid) for nodeid in (A, B, C)]
    first, second = items[:2]
    around: Any = worker.pytest_collection_modifyitems(items)
    next(around)
    assert items == [second, first]
    items.pop()  # by a plugin of the project
    for item in (first, second):
        item.nodeid += "@group"
    assert list(around) == [] and items == [second, first]
    worker.pytest_collection_finish()
    assert [item._nodeid for item in items] == [B, A]
    run = worker.config.stash[run_key]
    assert (run.order, run.results.suspects) == ([A, B], [B])
    assert worker.config.option.results_dir == str(tmp_path / "results")


def test_a_worker_waits_until_its_controller_has_selected(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.selection.touch()

    def flock(file: Any, how: int) -> None:
        assert how == fcntl.LOCK_SH
        chosen(worker, A)

    system = SimpleNamespace(flock=flock, LOCK_SH=fcntl.LOCK_SH)
    monkeypatch.setattr("ipubench.plugins.processes.worker.fcntl", system)
    items: List[Any] = [SimpleNamespace(nodeid=nodeid) for nodeid in (B, A)]
    list(worker.pytest_collection_modifyitems(items))
    assert [item.nodeid for item in items] == [A]


def test_a_worker_ends_with_its_controller_whose_devices_it_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: List[str] = []
    module = "ipubench.plugins.processes.worker"
    monkeypatch.setattr(f"{module}.end_with_parent", lambda: done.append("ends with it"))
    leave = "pytest_benchmark_adapter.leave_files_alone"
    monkeypatch.setattr(f"{module}.{leave}", lambda config: done.append("writes no files"))
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    monkeypatch.setenv(INHERIT_VARIABLE, "1")
    host = tmp_path / "host"
    host.touch()
    cleanups: List[Any] = []
    option = SimpleNamespace(device_id=None)
    config: Any = SimpleNamespace(option=option, workeroutput={}, add_cleanup=cleanups.append)
    worker = Worker(config, Handover("selection", str(host), 4711, 5, True))
    assert (done, option.device_id) == (["ends with it", "writes no files"], 5)
    assert os.environ[INHERIT_VARIABLE] == "4711" and "PYTEST_XDIST_WORKER" not in os.environ
    assert config.workeroutput == {PART: worker.output} and worker.shared
    cleanups[0]()
    assert worker.host.closed
    with pytest.raises(pytest.exit.Exception, match="has ended") as caught:
        Worker(config, Handover("selection", str(tmp_path / "gone"), 4711, None, True))
    assert caught.value.returncode == pytest.ExitCode.INTERRUPTED and option.device_id == 5


def test_a_worker_that_has_measured_nothing_adds_nothing_to_a_report(worker: Worker) -> None:
    chosen(worker, A)
    assert list(worker.pytest_collection_modifyitems([])) == [None]
    report = SimpleNamespace(user_properties=[])
    worker.pytest_runtest_logreport(report)
    assert report.user_properties == []


def test_each_line_travels_once_with_the_next_report(worker: Worker) -> None:
    run = Run(Relay(Path("run.jsonl")), SessionResults())
    worker.config.stash[run_key] = run
    line: Dict[str, Any] = {"type": "outcome", "case": A, "outcome": "passed"}
    reports = [SimpleNamespace(user_properties=[]) for _ in range(4)]
    run.add(line)
    worker.pytest_runtest_logreport(reports[0])
    worker.pytest_runtest_logreport(reports[1])
    run.closing.append("compiled, not run")
    worker.pytest_runtest_logreport(reports[2])
    worker.pytest_runtest_logreport(reports[3])
    assert [report.user_properties for report in reports] == [
        [(PART, {"lines": [line], "closing": []})],
        [],
        [(PART, {"lines": [], "closing": ["compiled, not run"]})],
        [],
    ]
    worker.pytest_sessionfinish()
    assert "start" in worker.output["spent"] and run_key not in worker.config.stash


@pytest.mark.parametrize("shared", [True, False])
def test_one_worker_of_a_host_runs_a_case_at_a_time(worker: Worker, shared: bool) -> None:
    worker.shared = shared

    def is_free() -> bool:
        with Path(worker.host.name).open("rb+") as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    around: Any = worker.pytest_runtest_protocol()
    next(around)
    assert is_free() != shared
    assert list(around) == [] and is_free()


def test_only_workers_of_one_device_take_turns() -> None:
    given = {"selection": "", "host": "", "lease_holder": 1, "device_id": None}
    for part, count in (({**given, "shared": True}, 3), ({**given, "shared": False}, 1), (None, 1)):
        config: Any = SimpleNamespace(workerinput={PART: part, "workercount": 3})
        assert workers_in_turns(config) == count
