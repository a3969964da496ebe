"""Stored baselines: written whole, read with suspicion, changed by one process at a time."""

from __future__ import annotations

import copy
import json
import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, FrozenSet, Iterator, List

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipubench.fixtures.machine.files import user_path, write_atomically
from ipubench.plugins.baseline import format as form
from ipubench.plugins.baseline import history, show, store
from ipubench.plugins.baseline.entries import (
    Key,
    differences,
    find,
    gone,
    key_of,
    measured,
    why_disturbed,
)
from ipubench.plugins.baseline.exports import EXPORTS
from ipubench.plugins.baseline.format import BaselineError
from ipubench.plugins.baseline.rows import Report
from ipubench.plugins.baseline.run_facts import RunFacts
from ipubench.plugins.baseline.runs import read_run, why_damaged
from ipubench.plugins.baseline.store import baseline_path, load_all, save
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
from tests.support.baselines import FORMAT_1, document, entry, load, old_document
from tests.support.harness import ROOT

A, B = "bench_x.py::bench_x[a]", "bench_x.py::bench_x[b]"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save(tmp_path / "baselines" / "main.json", document(entry()))
    return tmp_path / "baselines" / "main.json"


def keys(path: Path) -> List[Key]:
    return [key_of(benchmark) for benchmark in load_all(path)]


def test_a_name_is_a_file_in_baselines_and_a_slash_makes_it_a_path() -> None:
    root = Path("root")
    assert baseline_path("main", root) == root / "baselines" / "main.json"
    assert baseline_path("./main.json", root) == Path("main.json")


def test_what_was_saved_is_loaded(path: Path) -> None:
    assert load(path) == {A: entry()}
    assert json.loads(path.read_text())["ipubench"] == {"format": 2}


def test_saving_leaves_nothing_behind_but_its_lock(path: Path) -> None:
    save(path, document(entry()))
    assert {file.name for file in path.parent.iterdir()} <= {"main.json", ".main.json.lock"}


def test_a_benchmark_without_processes_stands_for_itself(path: Path) -> None:
    fresh = entry("b")
    (kept,) = record_of(fresh).pop("processes")
    save(path, document(fresh))
    assert record_of(load(path)[B])["processes"] == [kept]


# Saving into a file that is there.


def test_saving_replaces_the_cases_that_were_measured_and_keeps_the_others(path: Path) -> None:
    save(path, document(entry("b")))
    save(path, document(entry(slower=2)))
    assert load(path) == {A: entry(slower=2), B: entry("b")}


def test_saving_keeps_what_other_machines_measured(path: Path) -> None:
    save(path, document(entry(machine="cpu/y")))
    assert keys(path) == [Key(A, "h", "cpu/x"), Key(A, "h", "cpu/y")]


def test_saving_a_changed_case_replaces_its_old_configuration(path: Path) -> None:
    save(path, document(entry(config_hash="changed")))
    assert keys(path) == [Key(A, "changed", "cpu/x")]


def test_saving_into_a_damaged_file_leaves_it_alone(path: Path) -> None:
    path.write_text("{")
    with pytest.raises(BaselineError, match="is not valid JSON"):
        save(path, document(entry()))
    assert path.read_text() == "{"


def test_a_failed_save_keeps_the_old_file(path: Path) -> None:
    before = path.read_text()
    with pytest.raises(TypeError):
        save(path, {**document(entry()), "machine_info": {"x": object()}})
    assert path.read_text() == before
    assert {file.name for file in path.parent.iterdir()} <= {"main.json", ".main.json.lock"}


def test_what_could_not_be_read_again_is_not_written(path: Path) -> None:
    before = path.read_text()
    nothing = entry("b")
    nothing["stats"]["data"] = []
    with pytest.raises(BaselineError, match=r"was not written.*bench_x\[b\]: stats.data: \[\]"):
        save(path, document(nothing))
    assert path.read_text() == before


def test_a_number_that_json_has_not_becomes_null(path: Path) -> None:
    strange = entry()
    record_of(strange)["counters"] = {"loss": math.nan, "losses": (math.inf, 1.0)}
    save(path, document(strange))
    assert record_of(load(path)[A])["counters"] == {"loss": None, "losses": [None, 1.0]}
    assert "NaN" not in path.read_text() and "Infinity" not in path.read_text()


def test_a_figure_that_is_no_number_is_refused(path: Path) -> None:
    strange = entry()
    record_of(strange)["throughput"]["median"] = math.nan
    with pytest.raises(BaselineError, match="throughput.median: None is not of type 'number'"):
        save(path, document(strange))


def test_a_folder_that_cannot_be_made_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BaselineError, match="cannot be written"):
        save(tmp_path / "file" / "main.json", document(entry()))


@pytest.mark.parametrize("name", [".", "/"])
def test_a_path_without_a_name_is_one_message(name: str) -> None:
    with pytest.raises(BaselineError, match="names no file"):
        save(Path(name), document(entry()))


LONG = "x" * 300


@pytest.mark.parametrize("name", ["~nobody2/main.json", f"./{LONG}", f"./{LONG}/main.json"])
def test_a_path_that_cannot_be_looked_at_is_one_message(name: str) -> None:
    with pytest.raises(BaselineError, match="no home folder for ~nobody2|cannot be read|written"):
        store.exists(baseline_path(name, Path()))
    with pytest.raises(BaselineError, match="no home folder for ~nobody2|cannot be read|written"):
        save(baseline_path(name, Path()), document(entry()))


def test_a_users_path_has_his_home_in_it() -> None:
    assert user_path("~/x") == Path.home() / "x"
    with pytest.raises(OSError, match="no home folder for ~nobody2"):
        user_path("~nobody2/x")


def test_a_folder_is_no_baseline(path: Path) -> None:
    for use in (load, lambda folder: save(folder, document(entry()))):
        with pytest.raises(BaselineError, match="cannot be read"):
            use(path.parent)


def test_a_file_that_another_process_holds_is_one_message(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LOCK_SECONDS", 0.01)
    with store._locked(path), pytest.raises(BaselineError, match="locked by another process"):
        save(path, document(entry()))


def test_processes_that_change_a_file_at_once_lose_nothing(path: Path) -> None:
    """Two real processes, each reading, changing and writing six times."""
    program = (
        "import sys; from pathlib import Path\n"
        "from ipubench.plugins.baseline.store import change, save\n"
        "from tests.support.baselines import *\n"
        "path, me = Path(sys.argv[1]), sys.argv[2]\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "for number in range(6):\n"
        "    new = entry(f'{me}-{number}')\n"
        "    if number % 2: save(path, document(new))\n"
        "    else: change(path, lambda old: [*old, new])\n"
    )
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(path), str(number)],
            cwd=str(ROOT),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(2)
    ]
    for worker in workers:
        assert worker.stdout is not None and worker.stdout.readline() == b"ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write(b"go\n")
        worker.stdin.flush()
    for worker in workers:
        worker.communicate(timeout=120)
        assert worker.returncode == 0
    assert len(load(path)) == 1 + 2 * 6


def test_what_a_killed_process_left_is_no_baseline(path: Path) -> None:
    """It is killed while it replaces a file; the half has a name of its own until then."""
    program = (
        "import os, sys; from pathlib import Path\n"
        "from ipubench.plugins.baseline.store import save\n"
        "from tests.support.baselines import *\n"
        "os.fsync = lambda file: os.kill(os.getpid(), 9)\n"
        "save(Path(sys.argv[1]), document(entry('b')))\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    assert subprocess.run(command, cwd=str(ROOT), check=False).returncode == -9
    (left,) = path.parent.glob(".*.main.json")
    assert load(path) == {A: entry()} and left.exists()
    assert store.baselines_in(path.parent) == [path]
    found, notes = history.read(path.parent.parent, lambda nodeid: True, 9)
    assert len(found) == 1 and not notes
    with pytest.raises(BaselineError, match="there are: main$"):
        load(path.with_name("other.json"))


# Which entry a case is compared with.


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Key(A, "h", "cpu/x"), ("h", "cpu/x")),
        (Key(A, "g", "cpu/y"), ("g", "cpu/y")),
        (Key(A, "other", "cpu/y"), ("g", "cpu/y")),
        (Key(A, "g", "cpu/z"), ("g", "cpu/y")),
        (Key(A, "other", "cpu/z"), ("h", "cpu/x")),  # the newest
    ],
)
def test_the_exact_entry_is_found_or_the_most_alike(wanted: Key, found: Any) -> None:
    benchmarks = [
        entry(time="2026-01-03T00:00:00Z"),
        entry(machine="cpu/y", config_hash="g"),
        entry("b", config_hash="other", machine="cpu/z"),
    ]
    benchmark = find(benchmarks, *wanted)
    assert benchmark is not None and key_of(benchmark) == Key(A, *found)


def test_a_case_that_is_not_there_is_new() -> None:
    assert find([entry()], B, "h", "cpu/x") is None


def test_load_returns_the_newest_entry_of_each_case(path: Path) -> None:
    save(path, document(entry(machine="cpu/y", time="2027-01-01T00:00:00Z")))
    assert key_of(load(path)[A]).fingerprint == "cpu/y"


def test_a_run_keeps_its_credible_cases_with_all_their_processes() -> None:
    results = SessionResults()
    for name, implausible in (("a", False), ("b", True)):
        benchmark = entry(name)
        record_of(benchmark).update(implausible=implausible)
        del record_of(benchmark)["processes"]
        results.benchmarks[benchmark["fullname"]] = benchmark
    results.fresh[A] = [entry(slower=2)]
    (kept,) = measured(results)
    assert kept["fullname"] == A
    assert [process["fresh"] for process in record_of(kept)["processes"]] == [False, True]


class LookedInto(Dict[str, Any]):
    """A dictionary of a whole run, of which one case is looked up and nothing else."""

    def _whole(self, *args: Any) -> Any:
        raise AssertionError("all cases of the run are walked through for one of them")

    __iter__ = keys = values = items = copy = _whole


def test_a_case_of_a_journal_is_checked_without_the_others() -> None:
    """Of 5,000 cases this took 20 seconds: all of them were copied for each."""
    benchmark = entry("a")
    results = SessionResults(
        benchmarks=LookedInto({A: benchmark}),
        fresh=LookedInto({A: [entry("a")]}),
        verdicts=LookedInto({A: {"kind": "pass"}}),
        outcomes=LookedInto({A: "passed"}),
        reasons=LookedInto({A: "why"}),
        profiles=LookedInto({A: {"here": []}}),
    )
    assert why_damaged(results, A) == ""
    results.verdicts[A] = {"kind": 3}
    assert "verdicts.bench_x" in why_damaged(results, A)


class Walked(FrozenSet[str]):
    """A set that counts how often all of it is looked at."""

    times = 0

    def __iter__(self) -> Iterator[str]:
        self.times += 1
        return super().__iter__()


def test_cases_that_are_gone_are_found_in_one_look_at_those_that_are_there() -> None:
    stored = [entry(f"{name}-noise0.02") for name in "abcdefgh"]
    for number, benchmark in enumerate(stored):
        record_of(benchmark)["overrides"] = ["noise"]
        benchmark["fullname"] = benchmark["fullname"].replace("bench_x[", f"bench_{number}[")
    spec = entry("command")
    record_of(spec)["spec"] = {}
    spec["fullname"] = "benchmarks.yml::bench_spec[command]"
    there = Walked(benchmark["fullname"].replace("-noise0.02", "") for benchmark in stored[1:])
    assert gone([*stored, spec], there) == [stored[0]]
    assert there.times <= 2


# Formats.


def test_a_real_file_of_format_1_is_migrated() -> None:
    benchmarks = load_all(FORMAT_1)
    assert [record_of(benchmark)["name"] for benchmark in benchmarks] == [
        "alpha-bs8-synthetic-noise0.05",
        "beta-synthetic-noise0.05",
        "beta-generated-noise0.05",
    ]
    record = record_of(benchmarks[0])
    (process,) = record["processes"]
    assert process["fresh"] is False
    assert process["seconds"] == pytest.approx([10 * v for v in benchmarks[0]["stats"]["data"]])
    assert process["items_per_round"] / sorted(process["seconds"])[3] == pytest.approx(
        796, rel=0.01
    )
    assert process["canaries"] == record["canary"]["seconds"]
    assert process["latency_p99_ms"] == record["latency"]["p99_ms"]


def test_a_migrated_file_is_written_in_the_newest_format(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(FORMAT_1.read_text())
    save(path, document(entry()))
    assert json.loads(path.read_text())["ipubench"]["format"] == form.FORMAT
    assert len(load(path)) == 4


def test_every_older_format_has_its_migration() -> None:
    assert sorted(form.MIGRATIONS) == list(range(1, form.FORMAT))


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


# Reading what is damaged.


def test_a_missing_baseline_names_the_others(path: Path) -> None:
    with pytest.raises(BaselineError, match="there is no baseline .*other.json.*there are: main"):
        load(path.with_name("other.json"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not valid JSON"),
        ("", "is not valid JSON"),
        ("[" * 100000, "is not valid JSON"),
        ('{"ipubench": {"format": 2}, "benchmarks": [NaN]}', "NaN is no finite number"),
        ("[]", "is not a baseline of this suite"),
        ('{"benchmarks": []}', "is not a baseline of this suite"),
        ('{"ipubench": {"format": true}, "benchmarks": []}', "is not a baseline of this suite"),
        ('{"ipubench": {"format": 99}, "benchmarks": []}', "has format 99, this version reads up"),
        ('{"ipubench": {"format": 1}, "benchmarks": [{}]}', "case number 1: 'fullname' is a req"),
    ],
)
def test_a_file_that_is_no_baseline_is_one_message(path: Path, content: str, message: str) -> None:
    path.write_text(content)
    with pytest.raises(BaselineError, match=message):
        load(path)


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
    report.judge({one.nodeid: one.verdict.as_dict() for one in found})
    results = SessionResults({benchmark["fullname"]: benchmark for benchmark in loaded})
    assert summary(Run(JsonLinesFile(path), results), 80) or not loaded
    assert column_lines(loaded) is not None and csv_text(loaded) is not None
    exported = [make(report.document) for make in EXPORTS.values()]
    for text in (*exported, markdown(report), page(report) if plotly_is_there() else ""):
        write_atomically(path.with_name("export"), text)
    for benchmark in loaded:
        assert find(loaded, *key_of(benchmark)) is not None
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
    """Replace or drop any one value of a good file, of either format."""
    new = {**document(entry(processes=2)), "ipubench": {"format": 2}}
    old = old_document()
    del old["benchmarks"][1:]
    for good in (new, old):
        good["machine_info"] = {}
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
    good = copy.deepcopy(data.draw(st.sampled_from([new, old])))
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
