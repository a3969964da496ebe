"""What a worker of `-n N` hands to its controller, and when it runs a case."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List

import pytest

from ipubench.plugins.processes.worker import PART, Relay, Worker, workers_in_turns
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


def test_without_a_journal_a_worker_records_nothing(worker: Worker) -> None:
    chosen(worker, A)
    assert list(worker.pytest_collection_modifyitems([])) == [None]
    report = SimpleNamespace(user_properties=[])
    worker.pytest_runtest_logreport(report)
    assert run_key not in worker.config.stash and report.user_properties == []


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
