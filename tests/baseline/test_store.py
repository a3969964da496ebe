"""Storing baselines: atomic writes, one writer at a time."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

from ipubench.plugins.baseline import history, store
from ipubench.plugins.baseline.entries import Key, key_of
from ipubench.plugins.baseline.format import BaselineError
from ipubench.plugins.baseline.store import baseline_path, load_all, save
from tests.support.baselines import A, B, document, entry, load
from tests.support.harness import ROOT
from tests.support.stored import changed


def keys(path: Path) -> List[Key]:
    return [key_of(benchmark) for benchmark in load_all(path)]


def test_a_name_is_a_file_in_baselines_and_a_slash_makes_it_a_path() -> None:
    root = Path("root")
    assert baseline_path("main", root) == root / "baselines" / "main.json"
    assert baseline_path("main.json", root) == root / "baselines" / "main.json"
    assert baseline_path("./main.json", root) == Path("main.json")


def test_a_saved_baseline_is_loaded(path: Path) -> None:
    assert load(path) == {A: entry()}
    assert json.loads(path.read_text())["ipubench"]["format"] == 2


def test_a_file_saved_by_a_windows_editor_is_loaded(path: Path) -> None:
    path.write_text(path.read_text().replace("\n", "\r\n"), encoding="utf-8-sig")
    assert load(path) == {A: entry()}


def test_a_benchmark_without_processes_counts_as_one_process(path: Path) -> None:
    (kept,) = entry("b").record.processes
    save(path, document(changed(entry("b"), {"record.processes": ()})))
    assert load(path)[B].record.processes == [kept]


def test_a_failed_save_keeps_the_old_file(path: Path) -> None:
    before = path.read_text()
    with pytest.raises(TypeError):
        save(path, changed(document(entry()), {"machine_info": {"x": object()}}))
    assert path.read_text() == before
    assert {file.name for file in path.parent.iterdir()} <= {"main.json", ".main.json.lock"}


def test_a_non_finite_number_becomes_null(path: Path) -> None:
    counters = {"loss": math.nan, "losses": (math.inf, 1.0)}
    strange = changed(entry(), {"record.counters": counters})
    save(path, document(strange))
    assert load(path)[A].record.counters == {"loss": None, "losses": [None, 1.0]}
    assert "NaN" not in path.read_text() and "Infinity" not in path.read_text()


@pytest.mark.parametrize(
    "name", [".", "/", "~nobody2/main.json", f"./{300 * 'x'}", "file/main.json"]
)
def test_an_unwritable_path_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BaselineError):
        save(baseline_path(name if "/" in name else f"./{name}", Path()), document(entry()))


def test_saving_replaces_this_machines_entries_of_the_measured_cases(path: Path) -> None:
    save(path, document(entry("b")))
    save(path, document(entry(machine="cpu/y")))
    save(path, document(entry(config_hash="changed", slower=2)))
    assert keys(path) == [Key(A, "changed", "cpu/x"), Key(A, "h", "cpu/y"), Key(B, "h", "cpu/x")]
    before = path.read_text()
    path.write_text("{")
    with pytest.raises(BaselineError):
        save(path, document(entry()))
    assert path.read_text() == "{" != before


def test_a_locked_file_is_one_message(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LOCK_SECONDS", 0.01)
    with store._locked(path), pytest.raises(BaselineError, match="locked"):
        save(path, document(entry()))


def test_a_link_stays_and_its_target_is_changed(path: Path) -> None:
    shared = path.parent / "shared" / "main.json"
    shared.parent.mkdir()
    path.rename(shared)
    path.symlink_to("shared/main.json")
    save(path, document(entry("b")))
    store.change(path, lambda old: [*old, entry("c")])
    assert path.is_symlink() and len(load_all(shared)) == 3
    store.write(path, document(entry("d")))
    assert path.is_symlink() and len(load_all(shared)) == 1
    # A dangling link creates its target.
    shared.unlink()
    save(path, document(entry()))
    assert path.is_symlink() and load(shared) == {A: entry()}


def test_concurrent_writers_lose_nothing(path: Path) -> None:
    """Two real processes each read, change and write the file six times."""
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


def test_a_killed_writer_leaves_the_old_baseline(path: Path) -> None:
    """It dies while it replaces the file; until then the new content has another name."""
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
    found, _, notes = history.read(path.parent.parent, lambda nodeid: True, 9)
    assert len(found) == 1 and not notes
    with pytest.raises(BaselineError, match="there are: main$"):
        load(path.with_name("other.json"))
