"""The format of a baseline: damage is one message."""

from __future__ import annotations

import copy
import json
import math
import os
import re
from pathlib import Path
from typing import Any, Dict, List

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
from ipubench.plugins.record.record import SCALARS, THROUGHPUT, processes_of, record_of
from ipubench.plugins.record.verdict import COMPARED, Verdict
from ipubench.plugins.report.markdown import markdown
from ipubench.plugins.report.page import page
from ipubench.plugins.report.terminal import summary
from ipubench.plugins.run.results import Recording, SessionResults
from ipubench.plugins.selection.selected import Selection
from ipubench.plugins.web.templates import is_installed
from tests.support.baselines import A, document, entry, load
from tests.support.reports import EXPORTS


def test_the_schema_describes_the_newest_format() -> None:
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


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there are: other"),
        (b"{", "JSON"),
        (b"", "JSON"),
        pytest.param(b"[" * 100000, "JSON", id="nested"),
        (b'{"type": "run", "format": 1}\n{"type": "end"}\n', "JSON"),  # a journal
        (b"\xff\xfe\x00", "utf-8"),
        (b'{"ipubench": {"format": 2}, "benchmarks": [NaN]}', "NaN"),
        (b"[]", "no baseline|not a baseline"),
        (b'{"benchmarks": []}', "not a baseline"),
        (b'{"ipubench": {"format": true}, "benchmarks": []}', "not a baseline"),
        (b'{"ipubench": {"format": 99}, "benchmarks": []}', "format 99"),
        (b'{"ipubench": {"format": 1}, "benchmarks": [{}]}', "format 1"),
        (b'{"ipubench": {"format": 2}, "benchmarks": [{}]}', "case number 1: 'fullname'"),
    ],
)
def test_a_file_that_is_no_baseline_is_one_message(path: Path, content: Any, said: str) -> None:
    save(path.with_name("other.json"), document(entry()))
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(BaselineError, match=said) as caught:
        load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_in_which_all_is_wrong_is_refused_with_the_first_problems(path: Path) -> None:
    stored = json.loads(path.read_text())
    record_of(stored["benchmarks"][0])["processes"][0]["seconds"] = [-1] * 200_000
    assert len(form.problems(stored)) == form.MOST_PROBLEMS


def test_what_no_reader_would_take_is_not_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_text()
    nothing = entry("b")
    nothing["stats"]["data"] = []
    no_figure = entry("b")
    record_of(no_figure)["throughput"]["median"] = math.nan
    for damaged, said in ((nothing, "stats.data"), (no_figure, "throughput.median")):
        with pytest.raises(BaselineError, match=said):
            save(path, document(damaged))
    for bound in ("MOST_BYTES", "MOST_VALUES"):
        with monkeypatch.context() as patch:
            patch.setattr(form, bound, 30)
            with pytest.raises(BaselineError, match="fewer cases"):
                store.write(path, document(entry("b")))
            with pytest.raises(BaselineError, match="fewer cases"):
                load(path)
    assert path.read_text() == before


def test_a_pipe_is_no_baseline(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(BaselineError, match="no regular file"):
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
    config: Any = None
    results = SessionResults({benchmark["fullname"]: benchmark for benchmark in loaded})
    assert summary(Recording(config, Selection({}, "cpu"), results=results), 80) or not loaded
    assert column_lines(loaded) is not None and csv_text(loaded) is not None
    exported = [make(report.document) for make in EXPORTS.values()]
    for text in (*exported, markdown(report), page(report) if is_installed() else ""):
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
        ({"throughput": {}}, "throughput: 'unit' is a required property"),
        ({"items_per_round": 0}, "items_per_round: 0 is less"),
        ({"time": "today"}, "time: 'today' does not match"),
        ({"git": "../../evil"}, "git: '../../evil' does not match"),
        ({"processes": []}, "processes: []"),
        ({"device": "x" * 999}, "device: ..."),
    ],
)
def test_what_a_reader_needs_is_there_or_is_said(
    path: Path, changes: Dict[str, Any], said: str
) -> None:
    stored = json.loads(path.read_text())
    record = record_of(stored["benchmarks"][0])
    record["throughput"]["unit"] = "images/s"
    record.update(copy.deepcopy(changes))
    path.write_text(json.dumps(stored))
    if said:
        with pytest.raises(BaselineError, match=re.escape(said)) as caught:
            load(path)
        assert A in str(caught.value) and len(str(caught.value)) < 600
    check_that_it_is_refused_or_serves(path)


def test_what_is_twice_or_of_no_calendar_is_damage(path: Path) -> None:
    good = {**document(entry()), "ipubench": {"format": 2}}
    damaged: Dict[str, Any]
    for damaged in (
        {**good, "benchmarks": 2 * good["benchmarks"]},
        *({**good, "ipubench": {"format": 2, "runs": [{"started": t}]}} for t in (-1, "1", 1e12)),
    ):
        path.write_text(json.dumps(damaged))
        with pytest.raises(BaselineError, match="is damaged"):
            load(path)


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
