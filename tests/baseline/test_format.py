"""The format of a baseline: damage is one message."""

from __future__ import annotations

import copy
import json
import os
import re
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipubench.fixtures.machine.files import write_atomically
from ipubench.plugins.baseline import format as form
from ipubench.plugins.baseline import show, store
from ipubench.plugins.baseline.entries import by_case, differences, find, key_of, why_disturbed
from ipubench.plugins.baseline.format import BaselineError
from ipubench.plugins.baseline.rows import Report
from ipubench.plugins.baseline.run_facts import RunFacts
from ipubench.plugins.baseline.runs import read_run
from ipubench.plugins.baseline.store import load_all, save
from ipubench.plugins.benchmarks_yml.results import column_lines, csv_text
from ipubench.plugins.gate import rule as gate
from ipubench.plugins.record.files import JsonLinesFile
from ipubench.plugins.record.record import SCALARS, THROUGHPUT, processes_of, record_of
from ipubench.plugins.record.verdict import COMPARED, Verdict
from ipubench.plugins.report.markdown import markdown
from ipubench.plugins.report.page import page
from ipubench.plugins.report.terminal import summary
from ipubench.plugins.run.results import Run, SessionResults
from ipubench.plugins.web.templates import plotly_is_there
from tests.support.baselines import A, document, entry, load
from tests.support.reports import EXPORTS


def test_the_schema_is_a_schema_and_describes_the_newest_format() -> None:
    schema = json.loads(form.SCHEMA.read_text())
    form._validator().check_schema(schema)
    assert schema["properties"]["ipubench"]["properties"]["format"]["const"] == form.FORMAT


def test_the_quick_check_of_numbers_says_what_the_library_says() -> None:
    from jsonschema import Draft202012Validator

    schema = json.loads(form.SCHEMA.read_text())
    for value in (1, 0.5, 1e30, 1e-30, 1e-31, 0, -1, 1e31, True, "1", None, [1], 10**400):
        damaged = {**document(entry()), "ipubench": {"format": 2}}
        (benchmark,) = damaged["benchmarks"]
        record = record_of(benchmark)
        places: List[Any] = [
            (benchmark["stats"]["data"], 1),
            (record, "items_per_round"),
            (record, "compile_seconds"),
            (record["throughput"], "median"),
        ]
        for holder, key in places:
            sound, holder[key] = holder[key], value
            assert bool(form.problems(damaged)) != Draft202012Validator(schema).is_valid(damaged)
            holder[key] = sound


def test_a_missing_baseline_names_the_others_and_how_to_write_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its name, or by its path where a name would mean another file."""
    ending = "there is no baseline .*other.json; .*--baseline-save=other; there are: main$"
    with pytest.raises(BaselineError, match=ending):
        load(path.with_name("other.json"))
    monkeypatch.chdir(path.parent)
    for other in (Path("../baselines/other"), Path("other.json")):
        said = str(other) if "/" in str(other) else f"./{other}"
        with pytest.raises(BaselineError, match=f"save={said}; there are: main.json$"):
            load(other)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not valid JSON"),
        ("", "is not valid JSON"),
        pytest.param("[" * 100000, "is not valid JSON", id="nested"),
        ('{"ipubench": {"format": 2}, "benchmarks": [NaN]}', "NaN is no finite number"),
        ("[]", "is not a baseline of this suite"),
        ('{"benchmarks": []}', "is not a baseline of this suite"),
        ('{"ipubench": {"format": true}, "benchmarks": []}', "is not a baseline of this suite"),
        ('{"ipubench": {"format": 99}, "benchmarks": []}', "has format 99, this version reads 2"),
        ('{"ipubench": {"format": 1}, "benchmarks": [{}]}', "has format 1, this version reads 2"),
        ('{"ipubench": {"format": 2}, "benchmarks": [{}]}', "case number 1: 'fullname' is a req"),
    ],
)
def test_a_file_that_is_no_baseline_is_one_message(path: Path, content: str, message: str) -> None:
    path.write_text(content)
    with pytest.raises(BaselineError, match=message):
        load(path)


def test_a_journal_in_place_of_a_baseline_is_not_to_be_deleted(path: Path) -> None:
    journal = path.with_name("run-1.jsonl")
    journal.write_text('{"type": "run", "format": 1}\n{"type": "end"}\n')
    with pytest.raises(BaselineError, match="run-1.jsonl is no baseline, but the journal of a run"):
        load(journal)


def test_a_file_in_which_all_is_wrong_is_refused_at_once(path: Path) -> None:
    """Naming each of its 200,000 rounds took 20 seconds."""
    stored = json.loads(path.read_text())
    record_of(stored["benchmarks"][0])["processes"][0]["seconds"] = [-1] * 200_000
    path.write_text(json.dumps(stored))
    started = time.process_time()
    with pytest.raises(BaselineError, match="seconds.0: -1 is less"):
        load(path)
    assert time.process_time() - started < 10


def test_a_file_of_too_many_values_is_one_message(path: Path) -> None:
    path.write_text("[" + "[]," * form.MOST_VALUES + "[]]")
    with pytest.raises(BaselineError, match="cannot be read: it has more than 2,500,000 values"):
        load(path)


@pytest.mark.parametrize(
    ("bound", "said"),
    [("MOST_VALUES", "has more than 1,000 values"), ("MOST_BYTES", "is larger than 0 MiB")],
)
def test_what_no_reader_would_take_is_not_written(
    path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, said: str
) -> None:
    before = path.read_text()
    assert len(before) > 1000 > before.count(",")
    monkeypatch.setattr(form, bound, 1000)
    large = entry("b")
    large["stats"]["data"] *= 200
    with pytest.raises(BaselineError, match=f"main.json was not written, .*it {said}; keep fewer"):
        store.write(path, document(large))
    assert path.read_text() == before


def test_what_is_nested_too_deeply_to_be_read_is_not_written(path: Path) -> None:
    before = path.read_text()
    deep = entry("b")
    nested: Any = {}
    for _ in range(70):
        nested = {"x": nested}
    for value in (nested, 10**200):
        record_of(deep)["counters"] = {"value": value}
        with pytest.raises(BaselineError, match="could not be read again: it .* more than"):
            save(path, document(deep))
        assert path.read_text() == before


def test_a_pipe_is_no_baseline(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(BaselineError, match="main.json cannot be read: it is no regular file"):
        load(path)


def test_a_file_of_other_bytes_is_one_message(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BaselineError, match="cannot be read"):
        load(path)


def _drop_unit(record: Dict[str, Any]) -> None:
    del record["throughput"]["unit"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_drop_unit, "throughput: 'unit' is a required property"),
        (lambda r: r.update(items_per_round=0), "items_per_round: 0 is less than the min"),
        (lambda r: r.update(time="today"), "time: 'today' does not match"),
        (lambda r: r.update(processes=[]), "processes: \\[\\]"),
        (lambda r: r["processes"][0].update(seconds=[1, -1]), "processes.0.seconds.1: -1 is less"),
        (lambda r: r.update(device="x" * 999), "device: \\.\\.\\.x+' is not of type 'object'"),
    ],
)
def test_damage_is_named_with_its_case_and_place(
    path: Path, damage: Callable[[Dict[str, Any]], None], message: str
) -> None:
    stored = json.loads(path.read_text())
    damage(record_of(stored["benchmarks"][0]))
    path.write_text(json.dumps(stored))
    where = r"main.json is damaged: bench_x.py::bench_x\[a\]: extra_info.ipubench."
    with pytest.raises(BaselineError, match=where + message + ".*restore it") as error:
        load(path)
    assert len(str(error.value)) < 600


def test_a_case_that_is_stored_twice_is_damage(path: Path) -> None:
    stored = {**document(entry(), entry()), "ipubench": {"format": 2}}
    path.write_text(json.dumps(stored))
    with pytest.raises(BaselineError, match="stored twice for cpu/x"):
        load(path)


# Also of what JSON can say and UTF-8 cannot.
texts = st.text(max_size=5) | st.just("\ud800")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
documents = st.fixed_dictionaries(
    {"ipubench": st.just({"format": 2}) | st.just({"format": 1}) | json_values},
    optional={"benchmarks": st.lists(json_values, max_size=3) | json_values},
)
# One example reads and writes files: how long that takes is the machine's business.
in_the_same_file = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def check_that_it_is_refused_or_serves(path: Path) -> None:
    """Load a file: either one message, or all that the suite does with it works."""
    try:
        loaded = load_all(path)
    except BaselineError as error:
        assert str(path) in str(error)
        return
    rule = gate.Rule({THROUGHPUT: 0.05, **dict.fromkeys(SCALARS, 0.1)})
    found = differences(loaded, loaded, 0.05)
    report = Report.of(*read_run(path))
    report.judge({one.key.nodeid: one.verdict.as_dict() for one in found})
    results = SessionResults({benchmark["fullname"]: benchmark for benchmark in loaded})
    assert summary(Run(JsonLinesFile(path), results), 80) or not loaded
    assert column_lines(loaded) is not None and csv_text(loaded) is not None
    exported = [make(report.document) for make in EXPORTS.values()]
    for text in (*exported, markdown(report), page(report) if plotly_is_there() else ""):
        write_atomically(path.with_name("export"), text)
    for benchmark in loaded:
        assert find(by_case(loaded), *key_of(benchmark)) is not None
        assert gate.judge(benchmark, benchmark, rule).kind in COMPARED
        assert list(show.details(benchmark))
        assert processes_of(benchmark) and why_disturbed(benchmark) is not None
    assert list(show.overview(loaded)) or not loaded


IPU: Dict[str, Any] = {"kind": "ipu", "name": "C600", "fingerprint": "ipu/C600"}
RESNET: Dict[str, Any] = {"model": "resnet50", "mode": "inference", "system": "pod4"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"contention": {"enough": True}}, "contention: 'lost' is a dependency of 'enough'"),
        ({"contention": {"enough": False, "lost": [0.5]}}, "'limit' is a dependency of"),
        ({"contention": []}, "contention: [] is not of type 'object'"),
        ({"data": {"corrupt": 3}}, "data.corrupt: 3 is not of type 'array'"),
        ({"spec": {"entry": "x"}}, "spec: 'variant' is a required property"),
        ({"rounds": {}, "implausible": True}, ""),
        ({"effective": {"instances": 3}, "input": {"loader": None}, "compile": "cached"}, ""),
        ({"device": IPU, "config": {}}, ""),
        ({"device": IPU, "config": RESNET}, ""),
        ({"device": IPU, "config": {**RESNET, "micro_batch_size": 0, "group_dim": "x"}}, ""),
        ({"device": IPU, "config": {**RESNET, "system": None, "mode": "training"}}, ""),
        ({"device": IPU, "config": {"model": []}, "framework": None}, ""),
        ({"device": IPU, "config": None}, "config: None is not of type 'object'"),
    ],
)
def test_what_a_reader_needs_is_there_or_is_said(
    path: Path, changes: Dict[str, Any], said: str
) -> None:
    stored = json.loads(path.read_text())
    record = record_of(stored["benchmarks"][0])
    record["throughput"]["unit"] = "images/s"
    record.update(changes)
    path.write_text(json.dumps(stored))
    if said:
        with pytest.raises(BaselineError, match=re.escape(said)):
            load(path)
    check_that_it_is_refused_or_serves(path)


@pytest.mark.parametrize("field", ["started", "ended"])
@pytest.mark.parametrize("moment", [1e30, -1, "1", 1e12])
def test_a_time_of_no_calendar_is_damage(path: Path, field: str, moment: Any) -> None:
    stored = json.loads(path.read_text())
    stored["ipubench"]["runs"] = [{field: moment}]
    path.write_text(json.dumps(stored))
    with pytest.raises(BaselineError, match=f"ipubench.runs.0.{field}: "):
        load(path)
    stored["ipubench"]["runs"] = [{field: 1e11}]
    path.write_text(json.dumps(stored))
    check_that_it_is_refused_or_serves(path)


@in_the_same_file
@given(data=st.data())
def test_any_damage_is_one_message_or_no_damage(path: Path, data: st.DataObject) -> None:
    """Replace or drop any one value of a good file."""
    new = {**document(entry(processes=2)), "ipubench": {"format": 2}}
    new["machine_info"] = {}
    record_of(new["benchmarks"][0]).update(
        compute={"flops_per_item": 1e6, "achieved": 1e9, "peak": 2e9, "share": 0.5},
        input={"loader": 1e3, "model": 1e4, "unit": "items/s", "limit": "loader"},
        framework="torch",
        contention={"lost": [0.0] * 5 + [0.5], "limit": 0.02, "enough": True, "kept": [True] * 6},
        compile="cached",
        compile_saved_seconds=3.5,
        counters={"loss": 0.5},
        data={"mode": "real", "corrupt": ["a.jpg"]},
        spec={
            "entry": "e",
            "variant": "v",
            "columns": [["rate", 1.5]],
            "seconds": 3.0,
            "git": None,
        },
    )
    record_of(new["benchmarks"][0])["effective"]["instances"] = {"asked": 4, "ran": 2}
    record_of(new["benchmarks"][0])["rounds"]["shortened"] = 0.5
    record_of(new["benchmarks"][0])["processes"][1].update(clean=False, lost=0.5)
    facts = RunFacts(
        started=1.0,
        ended=2.0,
        selected=[A],
        outcomes={A: "passed"},
        verdicts={A: Verdict("pass", change=0.1, processes=3).as_dict()},
        exit_code=0,
    )
    new["ipubench"] = {"format": 2, "runs": [facts.as_dict()]}
    assert not form.problems(new)
    good = copy.deepcopy(new)
    node: Any = good
    while True:
        key = data.draw(
            st.sampled_from(list(node) if isinstance(node, dict) else [*range(len(node))])
        )
        if not isinstance(node[key], (dict, list)) or not node[key] or data.draw(st.booleans()):
            if data.draw(st.booleans()):
                del node[key]
            else:
                node[key] = data.draw(json_values)
            break
        node = node[key]
    path.write_text(json.dumps(good))
    check_that_it_is_refused_or_serves(path)


@in_the_same_file
@given(content=st.binary(max_size=200))
def test_any_bytes_are_one_message(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(BaselineError):
        load(path)


@in_the_same_file
@given(value=json_values | documents)
def test_any_json_is_one_message_or_a_baseline(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))
    check_that_it_is_refused_or_serves(path)
