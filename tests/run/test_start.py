"""How a run begins: with a new journal or with an earlier run's."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest

from ipubench.fixtures.case.cases import Case, case_key, config_hash
from ipubench.fixtures.machine import scratch
from ipubench.plugins.record import host_process
from ipubench.plugins.record.files import json_lines
from ipubench.plugins.record.structs import as_plain
from ipubench.plugins.results import lines as journal_lines
from ipubench.plugins.run import journal, resume
from ipubench.plugins.run.machine import Machine
from ipubench.plugins.run.recording import Recording
from ipubench.plugins.selection.selected import Selection
from tests.support.command_line import given_options
from tests.support.fake_cases import Fake
from tests.support.stored import a_benchmark, changed

CASE, PLAIN = "bench.py::bench[one]", "test.py::test"
RUN: Dict[str, Any] = {"type": "run", "format": 2, "command": ["-k", "one"], "circumstances": {}}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in journal_lines.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(scratch, "remove_leftovers", lambda: None)


def config_in(folder: Path, results: str = "results", **option: Any) -> Any:
    """Return the configuration of a run that began in a folder."""
    given = given_options(results_dir=str(folder / results), **option)
    params = SimpleNamespace(args=["-k", "one", *(["--resume"] if option.get("resume") else [])])
    return SimpleNamespace(option=given, invocation_params=params, rootpath=folder, stash={})


def recording(config: Any, **known: Any) -> Recording:
    """Return a run that has not begun."""
    return Recording(config, Selection({}, "cpu"), **known)


def start(run: Recording) -> List[Any]:
    """Begin it with a case and an ordinary test; return the earlier results."""
    return journal.start(run, items_of(run.config))


def items_of(config: Any) -> List[Any]:
    """Return a case and an ordinary test."""
    case = {case_key: Case(Fake("one"), "one")}
    return [
        SimpleNamespace(nodeid=CASE, config=config, stash=case),
        SimpleNamespace(nodeid=PLAIN, config=config, stash={}),
    ]


def keep(folder: Path, second: int, *lines: Dict[str, Any]) -> Path:
    """Leave a journal of that second."""
    path = folder / f"run-20261126T12000{second}-1.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_a_new_run_has_a_journal_with_its_first_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: List[int] = []
    monkeypatch.setattr(scratch, "remove_leftovers", lambda: removed.append(1))
    monkeypatch.setattr(host_process, "git_revision", lambda _: "0123abc")
    monkeypatch.chdir(tmp_path)
    config = config_in(Path(), "Mess ergebnisse/für mich")
    digests = {"the baseline": "a digest", "the policy": "another"}
    run = recording(config, depends=digests)
    assert start(run) == []
    assert (run.order, run.note, removed) == ([CASE], "", [1])
    assert run.results_dir == tmp_path / "Mess ergebnisse" / "für mich"
    (first,) = json_lines(run.path)
    assert first["circumstances"] == {"git": "0123abc", "the working tree": None, **digests}
    assert (first["type"], first["format"], first["command"]) == ("run", 2, ["-k", "one"])


def test_a_command_is_quoted_for_a_shell() -> None:
    words = ["PYTEST_ADDOPTS=-k 'a or b'", "DATASETS_DIR=/my data", "-k", "c and d", "A=$B"]
    shown = journal_lines.RunLine(1, words).shown_command
    assert shlex.split(shown) == [*words[:2], "pytest", *words[2:]]
    assert shown.startswith("PYTEST_ADDOPTS='") and shown.endswith(" 'A=$B'")
    again = journal_lines.RunLine(1, ["-q", "DATASETS_DIR=/data"])
    assert again.shown_command == "pytest -q DATASETS_DIR=/data"


@pytest.mark.parametrize("below", ["", "/of/mine"])
def test_a_file_in_place_of_the_results_folder_is_named(tmp_path: Path, below: str) -> None:
    (tmp_path / "a file").touch()
    config = config_in(tmp_path, f"a file{below}")
    with pytest.raises(pytest.UsageError) as caught:
        start(recording(config))
    assert f"{tmp_path}/a file is a file" in str(caught.value)


def test_the_latest_readable_run_with_this_command_line_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    keep(folder, 1, RUN)
    keep(folder, 6, {**RUN, "circumstances": ["others wrote it"]})
    meant = keep(folder, 2, RUN, {"type": "outcome", "case": CASE, "outcome": "failed"})
    keep(folder, 3, {**RUN, "command": ["-k", "two"]})
    keep(folder, 4, {**RUN, "format": 3})
    secret = keep(folder, 5, RUN)

    def read(path: Path) -> List[Any]:
        if path == secret:
            raise PermissionError(13, "Permission denied")
        return list(journal_lines.read_lines(path))

    monkeypatch.setattr(journal, "read_lines", read)
    config = config_in(tmp_path, resume=True)
    run = recording(config)
    assert start(run) == []
    assert run.path == meant and run.note == f"resuming {meant}: 0 cases are done"
    assert run.results.outcomes == {} and json_lines(meant)[-1]["type"] == "resume"


def test_results_are_judged_by_their_latest_conditions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was resumed with another baseline has compared all its cases with that one."""
    monkeypatch.setattr(host_process, "git_revision", lambda _: "now")
    monkeypatch.setattr(resume, "same_case", lambda *_: True)
    folder = tmp_path / "results"
    folder.mkdir()
    there = {"record.device.fingerprint": "here", "record.conditions": {}, "fullname": CASE}
    benchmark = as_plain(changed(a_benchmark([1.0]), there))
    lines: List[Dict[str, Any]] = [
        {**RUN, "circumstances": {"git": "before", "the baseline": "a", "the policy": "p"}},
        {
            "type": "resume",
            "kept": [],
            "circumstances": {"git": "now", "the baseline": "b", "the policy": "p"},
        },
        {"type": "case", "benchmark": benchmark},
        {"type": "outcome", "case": CASE, "outcome": "passed"},
    ]
    here = Machine("here", "", [], {}, {})
    for second, digests, note in (
        (1, {"the baseline": "b", "the policy": "p"}, "1 case is done"),
        (
            2,
            {"the baseline": "b"},
            "0 cases are done; 1 measured again, because the policy changed",
        ),
        (
            3,
            {"the baseline": "c", "the policy": "q"},
            "0 cases are done; 1 measured again, because the baseline and the policy changed",
        ),
    ):
        path = keep(folder, second, *lines)
        config = config_in(tmp_path, resume=True)
        run = recording(config, depends=digests, machines=[here])
        done = start(run)
        assert run.note == f"resuming {path}: {note}"
        assert [item.nodeid for item in done] == ([CASE] if second == 1 else [])
        last = json_lines(path)[-1]
        assert last["circumstances"] == {"git": "now", "the working tree": None, **digests}
        assert last["kept"] == run.results.resumed


def test_one_unchanged_machine_of_several_is_enough() -> None:
    """As in a fleet: the reason lists what changed on the best matching machine."""
    there = {"record.device.fingerprint": "a", "record.conditions": {"threads": 2}}
    benchmark = changed(a_benchmark([1.0]), there)
    same, other = (Machine("a", "", [], {"threads": n}, {}) for n in (2, 4))
    elsewhere = Machine("b", "", [], {"threads": 2}, {})

    def why(*machines: Machine) -> str:
        return resume.why_elsewhere(machines, benchmark)

    assert why(other, same) == why(same, other) == why(same, elsewhere) == ""
    assert why(elsewhere, other) == "threads changed (2 -> 4)"
    assert why(elsewhere) == resume.OTHER_DEVICE
    newer = Machine("a", "", [], {"threads": 2}, {"torch": "2"})
    assert "torch changed (None -> 2)" in why(newer)


def test_a_result_belongs_to_the_current_case_and_kind_of_device(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    case, plain = items_of(config)
    this = {"record.config_hash": config_hash(Fake("one"), frozenset())}

    def same(item: Any, other: Dict[str, Any]) -> bool:
        return resume.same_case("cpu", item, changed(a_benchmark([1.0]), {**this, **other}))

    assert same(case, {}) and not same(plain, {})
    for other in ({"record.config_hash": "another"}, {"record.device.kind": "cuda"}):
        assert not same(case, other)
