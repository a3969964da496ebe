"""What the controller of `-n N` and its workers decide, without any of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional

import pytest

from ipubench.plugins.processes import controller
from ipubench.plugins.processes.controller import Controller
from ipubench.plugins.processes.worker import PART, Worker
from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.record.files import JsonLinesFile, read_lines
from ipubench.plugins.run.progress import progress_key
from ipubench.plugins.run.results import Run, SessionResults, run_key


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
