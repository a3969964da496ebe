"""A report of runs on several machines keeps each machine's result."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any, Dict, List

import pytest
from msgspec.structs import replace

from ipubench.plugins.baseline import store
from ipubench.plugins.baseline.__main__ import main as baseline
from ipubench.plugins.baseline.entries import key_of
from ipubench.plugins.baseline.format import Document
from ipubench.plugins.baseline.runs import read_run
from ipubench.plugins.record.structs import Benchmark, as_plain
from ipubench.plugins.report.__main__ import main
from ipubench.plugins.results.run_facts import RunFacts, superseded
from ipubench.plugins.run.journal import FORMAT
from tests.support.baselines import document, entry
from tests.support.reports import EXPORTS, verdict
from tests.support.stored import changed

pytest.importorskip("jinja2", reason="pip install jinja2")

A = "bench_x.py::bench_x[a]"
X, Y = "cpu/x", "cpu/y"


def shard(folder: Path, machine: str, *cases: Benchmark, kind: str = "", **said: Any) -> Path:
    """Write a run's results on a machine: its cases, all with one verdict."""
    names = [case.fullname for case in cases]
    facts = RunFacts(
        name=folder.name,
        started=1.0,
        selected=names,
        outcomes=dict.fromkeys(names, "passed"),
        verdicts=dict.fromkeys(names, verdict(kind, 100, -0.1)) if kind else {},
        machines=dict.fromkeys(names, machine),
        baseline="main.json" if kind else "",
        exit_code=0,
    )
    store.write(folder / "baseline.json", Document.of(document(), cases, [replace(facts, **said)]))
    return folder


def rows_of(folder: Path) -> List[Dict[str, str]]:
    with (folder / "results.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def kinds_of(folder: Path) -> Dict[str, str]:
    return {row["case"]: row["verdict"] for row in rows_of(folder)}


def promoted(tmp_path: Path, *words: str, code: int) -> Dict[str, Benchmark]:
    """Promote the joined report of shards; return machine -> its entry in the new baseline."""
    out, target = tmp_path / "out", tmp_path / "main.json"
    main([str(tmp_path / "one"), str(tmp_path / "two"), f"--out={out}"])
    assert baseline(["promote", str(out / "baseline.json"), str(target), *words]) == code
    entries = store.load_all(target) if target.exists() else []
    return {key_of(one).fingerprint: one for one in entries}


def test_each_machine_has_a_row_with_its_own_verdict(tmp_path: Path) -> None:
    one = shard(tmp_path / "one", X, entry("a"), entry("b"), kind="pass")
    two = shard(tmp_path / "two", Y, entry("a", machine=Y, slower=2), kind="regressed")
    out = tmp_path / "out"
    assert main([str(one), str(two), f"--out={out}"]) == 1
    assert kinds_of(out) == {
        f"{A} on {X}": "pass",
        f"{A} on {Y}": "regressed",
        "bench_x.py::bench_x[b]": "pass",
    }
    names = {row["name"]: row["fingerprint"] for row in rows_of(out)}
    assert names == {f"a on {X}": X, f"a on {Y}": Y, "b": X}
    assert len(store.load_all(out / "baseline.json")) == 3
    assert set(json.loads((out / "bencher.json").read_text())) == set(kinds_of(out))
    page = (out / "report.html").read_text()
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert {row["id"] for row in data["rows"]} == set(data["details"]) == set(kinds_of(out))
    # The report's document gives the same report.
    assert main([str(out), f"--out={tmp_path / 'again'}"]) == 1
    assert kinds_of(tmp_path / "again") == kinds_of(out)


def test_a_failure_on_one_machine_keeps_the_result_of_another(tmp_path: Path) -> None:
    one = shard(tmp_path / "one", X, entry("a"))
    failed: Dict[str, Any] = {
        "outcomes": {A: "failed"},
        "reasons": {A: "no such file"},
        "selected": [A],
    }
    two = shard(tmp_path / "two", Y, entry("b", machine=Y), **failed)
    out = tmp_path / "out"
    assert main([str(one), str(two), f"--out={out}"]) == 1
    found = kinds_of(out)
    assert (found[f"{A} on {X}"], found[f"{A} on {Y}"]) == ("measured", "failed")
    (row,) = [row for row in rows_of(out) if row["case"] == f"{A} on {Y}"]
    assert (row["name"], row["function"], row["reasons"]) == (
        f"a on {Y}",
        "bench_x",
        "no such file",
    )
    # If the machine is unknown, a failure in either stays.
    nobody = shard(tmp_path / "three", Y, **failed)
    assert main([str(one), str(nobody), f"--out={out}"]) == 1
    assert kinds_of(out) == {A: "failed"}


def test_each_machine_is_promoted_by_its_own_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shard(tmp_path / "one", X, entry("a"), kind="pass")
    shard(tmp_path / "two", Y, entry("a", machine=Y, slower=2), kind="regressed")
    assert promoted(tmp_path, code=4) == {}
    assert f"1 case of {tmp_path / 'out/baseline.json'} regressed ({A} on {Y});" in (
        capsys.readouterr().err
    )
    history = tmp_path / "history"
    entries = promoted(tmp_path, "--accept=*=mask fixed", f"--history={history}", code=0)
    files = history.glob("*/*.json")
    kept = {key_of(one).fingerprint: one for path in files for one in store.load_all(path)}
    for found in (entries, kept):
        assert not found[X].record.accepted
        (accepted,) = found[Y].record.accepted
        assert accepted.reason == "mask fixed"


def test_a_failure_on_one_machine_promotes_the_result_of_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shard(tmp_path / "one", X, entry("a"))
    shard(tmp_path / "two", Y, entry("a", machine=Y), outcomes={A: "failed"}, exit_code=1)
    history = tmp_path / "history"
    assert set(promoted(tmp_path, f"--history={history}", code=1)) == {X}
    assert f"{A} on {Y}" in capsys.readouterr().out
    assert len(list(history.glob("*/*.json"))) == 1


def test_each_machine_is_compared_with_its_own_entry(tmp_path: Path) -> None:
    entries = [entry("a", processes=6), entry("a", machine=Y, slower=2, processes=6)]
    store.write(tmp_path / "before.json", document(*entries))
    now = [entry("a", slower=1.5, processes=6), entry("a", machine=Y, slower=2, processes=6)]
    store.write(tmp_path / "now.json", document(*now))
    out = tmp_path / "out"
    words = [str(tmp_path / "now.json"), f"--out={out}", f"--baseline={tmp_path / 'before.json'}"]
    assert main([*words, "--gate=5%"]) == 1
    assert kinds_of(out) == {f"{A} on {X}": "regressed", f"{A} on {Y}": "pass"}


def test_journals_of_two_machines_in_one_folder_are_two_results(tmp_path: Path) -> None:
    for number, machine in enumerate((X, Y)):
        benchmark = as_plain(changed(entry("a", machine=machine), {"record.processes": ()}))
        lines: List[Dict[str, Any]] = [
            {"type": "run", "format": FORMAT, "command": [], "started": float(number)},
            {"type": "selected", "cases": [A]},
            {"type": "case", "benchmark": benchmark},
            {"type": "outcome", "case": A, "outcome": "passed"},
            {"type": "end", "exit_code": 0},
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / f"run-2026010{number}T000000-1.jsonl").write_text(text)
    stored = read_run(tmp_path)
    assert [key_of(one).fingerprint for one in stored.benchmarks] == [X, Y]
    assert [run.machines for run in stored.runs] == [{A: X}, {A: Y}]


def test_a_run_of_another_machine_replaces_nothing() -> None:
    first = RunFacts(started=1.0, outcomes={"a": "failed"}, machines={"a": X})
    other = RunFacts(started=2.0, outcomes={"a": "passed"}, machines={"a": Y})
    again = RunFacts(started=3.0, outcomes={"a": "passed"}, machines={"a": X})
    unknown = RunFacts(started=4.0, outcomes={"a": "failed"})
    assert superseded([first, other]) == [first, other]
    assert superseded([first, other, again]) == [other, again]
    assert superseded([first, other, again, unknown]) == [unknown]


def test_exports_name_the_machine_if_needed() -> None:
    cases = [entry("a"), entry("b"), entry("a", machine=Y)]
    metrics = json.loads(EXPORTS["bencher"](document(*cases).report()))
    assert set(metrics) == {f"{A} on {X}", f"{A} on {Y}", "bench_x.py::bench_x[b]"}
    (row,) = document(entry("a")).report().rows()
    assert (row.id, row.name) == (A, "a")
