"""The baseline format: a damaged file gives one message."""

from __future__ import annotations

import copy
import json
import math
import os
import re
from pathlib import Path
from typing import Any, Dict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipubench.fixtures.machine.files import write_atomically
from ipubench.plugins.baseline import format as form
from ipubench.plugins.baseline import show, store
from ipubench.plugins.baseline.entries import by_case, differences, find, key_of, why_disturbed
from ipubench.plugins.baseline.format import BaselineError
from ipubench.plugins.baseline.runs import read_run
from ipubench.plugins.baseline.store import load_all, save
from ipubench.plugins.benchmarks_yml.command_results import column_lines, csv_text
from ipubench.plugins.gate import stored as gate
from ipubench.plugins.record.record import SCALARS, THROUGHPUT, processes_of
from ipubench.plugins.record.structs import as_plain
from ipubench.plugins.record.verdict import COMPARED, Verdict
from ipubench.plugins.report.markdown import markdown
from ipubench.plugins.report.page import page
from ipubench.plugins.report.terminal import summary
from ipubench.plugins.results.run_facts import RunFacts
from ipubench.plugins.results.run_results import RunResults
from ipubench.plugins.web.templates import is_installed
from tests.support.baselines import A, document, entry, load
from tests.support.reports import EXPORTS
from tests.support.stored import changed, record_of


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
        (b'{"ipubench": {"format": 2}, "benchmarks": [{}]}', "case number 1: .*`fullname`"),
    ],
)
def test_a_file_that_is_not_a_baseline_is_one_message(path: Path, content: Any, said: str) -> None:
    save(path.with_name("other.json"), document(entry()))
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(BaselineError, match=said) as caught:
        load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_data_that_no_reader_accepts_is_not_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_text()
    for place, value in (("stats.data", []), ("record.throughput.median", math.nan)):
        with pytest.raises(BaselineError, match=place.partition("record.")[2] or place):
            save(path, document(changed(entry("b"), {place: value})))
    for bound in ("MOST_BYTES", "MOST_VALUES"):
        with monkeypatch.context() as patch:
            patch.setattr(form, bound, 30)
            with pytest.raises(BaselineError, match="fewer cases"):
                store.write(path, document(entry("b")))
            with pytest.raises(BaselineError, match="fewer cases"):
                load(path)
    assert path.read_text() == before


def test_a_pipe_is_not_a_baseline(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(BaselineError, match="not a regular file"):
        load(path)


# Includes strings that are valid in JSON but not in UTF-8.
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
# No deadline: an example reads and writes files, which may take long on a busy machine.
in_the_same_file = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def check_that_it_is_refused_or_serves(path: Path) -> None:
    """Load a file: expect either one message or that the suite can use it."""
    try:
        loaded = load_all(path)
    except BaselineError as error:
        assert str(path) in str(error)
        return
    rule = gate.StoredRule({THROUGHPUT: 0.05, **dict.fromkeys(SCALARS, 0.1)})
    found = differences(loaded, loaded, 0.05)
    report = read_run(path)
    report.judge({one.key.nodeid: one.verdict for one in found}, "main", "gate 5.0%")
    assert summary(report, RunResults(), 80) or not loaded
    assert column_lines(loaded) is not None and csv_text(loaded) is not None
    exported = [make(report) for make in EXPORTS.values()]
    for text in (*exported, markdown(report), page(report) if is_installed() else ""):
        write_atomically(path.with_name("export"), text)
    for benchmark in loaded:
        assert find(by_case(loaded), *key_of(benchmark)) is not None
        assert gate.judge(benchmark, benchmark, rule).kind in COMPARED
        assert list(show.details(benchmark))
        assert processes_of(benchmark) and why_disturbed(benchmark) is not None
    assert list(show.overview(loaded)) or not loaded


IPU: Dict[str, Any] = {"kind": "ipu", "name": "C600", "fingerprint": "ipu/C600", "details": {}}
RESNET: Dict[str, Any] = {"model": "resnet50", "mode": "inference", "system": "pod4"}


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"contention": {"enough": True}}, "contention"),
        ({"contention": {"enough": False, "lost": [0.5]}}, "contention"),
        ({"contention": []}, "contention"),
        ({"spec": {"entry": "x"}}, "spec"),
        ({"rounds": {}}, "rounds"),
        ({"config": None}, "config"),
        ({"input": {"loader": None}}, "input.loader"),
        ({"throughput": {}}, "throughput"),
        ({"items_per_round": 0}, "items_per_round"),
        ({"compile_seconds": -1}, "compile_seconds"),
        ({"compile_seconds": True}, "compile_seconds"),
        ({"time": "today"}, "time"),
        ({"git": "../../evil"}, "git"),
        ({"processes": [{}]}, "processes[0]"),
        ({"device": "x" * 999}, "device"),
        ({"processes": []}, ""),
        ({"data": {"corrupt": 3}}, ""),
        ({"effective": {"instances": 3}, "implausible": True, "compile": "cached"}, ""),
        ({"device": IPU, "config": {}}, ""),
        ({"device": IPU, "config": RESNET}, ""),
        ({"device": IPU, "config": {**RESNET, "micro_batch_size": 0, "group_dim": "x"}}, ""),
        ({"device": IPU, "config": {**RESNET, "system": None, "mode": "training"}}, ""),
        ({"device": IPU, "config": {"model": [], "mode": {}, "batch_size": "x"}}, ""),
        ({"config": {"data": [], "instances": "many", "name": 3}}, ""),
    ],
)
def test_what_a_reader_needs_is_there_or_its_place_is_said(
    path: Path, changes: Dict[str, Any], place: str
) -> None:
    stored = json.loads(path.read_text())
    record = stored["benchmarks"][0]["extra_info"]["ipubench"]
    record["throughput"]["unit"] = "images/s"
    record.update(copy.deepcopy(changes))
    path.write_text(json.dumps(stored))
    if place:
        with pytest.raises(BaselineError, match=re.escape(f"{A}: {place}: ")) as caught:
            load(path)
        assert len(str(caught.value)) < 600
    check_that_it_is_refused_or_serves(path)


@pytest.mark.parametrize("where", ["stats", "throughput", "processes"])
def test_rounds_that_contradict_their_own_rate_are_damage(path: Path, where: str) -> None:
    good = as_plain(document(entry(processes=2)))
    (benchmark,) = good["benchmarks"]
    record = record_of(benchmark)
    for factor, refused in ((1.0001, False), (1.2, True)):
        damaged = copy.deepcopy(good)
        (benchmark,) = damaged["benchmarks"]
        record = record_of(benchmark)
        if where == "throughput":
            record["throughput"]["median"] *= factor
        else:
            some = benchmark["stats"] if where == "stats" else record["processes"][0]
            key = "data" if where == "stats" else "seconds"
            some[key] = [value * factor for value in some[key]]
        path.write_text(json.dumps(damaged))
        if refused:
            with pytest.raises(BaselineError, match=f"{re.escape(str(path))} is damaged: .* give"):
                load(path)
        else:
            load(path)


def test_duplicates_and_impossible_dates_are_damage(path: Path) -> None:
    good = as_plain(document(entry()))
    damaged: Dict[str, Any]
    for damaged in (
        {**good, "benchmarks": 2 * good["benchmarks"]},
        *({**good, "ipubench": {"format": 2, "runs": [{"started": t}]}} for t in (-1, "1", 1e12)),
    ):
        path.write_text(json.dumps(damaged))
        with pytest.raises(BaselineError, match="is damaged"):
            load(path)


@pytest.mark.nightly
@in_the_same_file
@given(data=st.data())
def test_any_damage_is_one_message_or_harmless(path: Path, data: st.DataObject) -> None:
    """Replaces or drops one value of a valid file."""
    new = as_plain(document(entry(processes=2)))
    new["machine_info"] = {}
    record_of(new["benchmarks"][0]).update(
        compute={
            "flops_per_item": 1e6,
            "achieved": 1e9,
            "peak": 2e9,
            "share": 0.5,
            "copy_peak_bytes_per_s": None,
        },
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
        verdicts={A: Verdict("pass", change=0.1, processes=3)},
        exit_code=0,
    )
    new["ipubench"] = {"format": 2, "runs": [as_plain(facts)]}
    assert form.checked(new)
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


@pytest.mark.nightly
@in_the_same_file
@given(content=st.binary(max_size=200))
def test_any_bytes_are_one_message(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(BaselineError):
        load(path)


@pytest.mark.nightly
@in_the_same_file
@given(value=json_values | documents)
def test_any_json_is_one_message_or_a_baseline(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))
    check_that_it_is_refused_or_serves(path)
