"""Stored baselines: written whole, read with suspicion."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, Dict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plugins import baseline
from plugins.baseline import BaselineError, baseline_path, load, save
from tests.test_gate import benchmark


def document() -> Dict[str, Any]:
    stored = benchmark([0.1] * 5)
    return {"benchmarks": [{**stored, "fullname": "bench_x.py::bench_x[a]", "name": "bench_x[a]"}]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save(tmp_path / "baselines" / "main.json", document())
    return tmp_path / "baselines" / "main.json"


def test_a_name_is_a_file_in_baselines_and_a_slash_makes_it_a_path() -> None:
    root = Path("root")
    assert baseline_path("main", root) == root / "baselines" / "main.json"
    assert baseline_path("./main.json", root) == Path("main.json")


def test_what_was_saved_is_loaded(path: Path) -> None:
    assert load(path) == {"bench_x.py::bench_x[a]": document()["benchmarks"][0]}


def test_saving_leaves_no_other_file_behind(path: Path) -> None:
    save(path, document())
    assert [entry.name for entry in path.parent.iterdir()] == ["main.json"]


def test_a_failed_save_keeps_the_old_file(path: Path) -> None:
    before = path.read_text()
    with pytest.raises(TypeError):
        save(path, {"benchmarks": [object()]})
    assert path.read_text() == before
    assert [entry.name for entry in path.parent.iterdir()] == ["main.json"]


def test_a_folder_that_cannot_be_made_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BaselineError, match="cannot be written"):
        save(tmp_path / "file" / "main.json", document())


def test_a_missing_baseline_names_the_others(path: Path) -> None:
    with pytest.raises(BaselineError, match="there is no baseline .*other.json.*there are: main"):
        load(path.with_name("other.json"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not valid JSON"),
        ("", "is not valid JSON"),
        ("[]", "is not a baseline of this suite"),
        ('{"benchmarks": []}', "is not a baseline of this suite"),
        ('{"ipubench": {"format": true}, "benchmarks": []}', "is not a baseline of this suite"),
        ('{"ipubench": {"format": 99}, "benchmarks": []}', "has format 99, this version reads up"),
        ('{"ipubench": {"format": 1}, "benchmarks": [{}]}', "its case number 1 lacks"),
    ],
)
def test_a_file_that_is_no_baseline_is_one_message(path: Path, content: str, message: str) -> None:
    path.write_text(content)
    with pytest.raises(BaselineError, match=message):
        load(path)


def test_a_file_of_other_bytes_is_one_message(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BaselineError, match="cannot be read"):
        load(path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_one_message_or_no_damage(path: Path, data: st.DataObject) -> None:
    """Replace any one value of a good file by anything: load never fails in another way."""
    good = {**copy.deepcopy(document()), "ipubench": {"format": baseline.FORMAT}}
    node: Any = good
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(node[key], (dict, list)) or not node[key] or data.draw(st.booleans()):
            node[key] = data.draw(json_values)
            break
        node = node[key]
    path.write_text(json.dumps(good))
    try:
        loaded = load(path)
    except BaselineError as error:
        assert str(path) in str(error)
    else:
        assert all(isinstance(nodeid, str) for nodeid in loaded)
