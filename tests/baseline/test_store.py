"""Stored baselines: written whole, and changed by one process at a time."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

from ipubench.fixtures.machine.files import user_path
from ipubench.plugins.baseline import history, store
from ipubench.plugins.baseline.entries import Key, key_of
from ipubench.plugins.baseline.format import BaselineError
from ipubench.plugins.baseline.store import baseline_path, load_all, save
from ipubench.plugins.record.record import record_of
from tests.support.baselines import A, B, document, entry, load
from tests.support.harness import ROOT


def keys(path: Path) -> List[Key]:
    return [key_of(benchmark) for benchmark in load_all(path)]


def test_a_name_is_a_file_in_baselines_and_a_slash_makes_it_a_path() -> None:
    root = Path("root")
    assert baseline_path("main", root) == root / "baselines" / "main.json"
    assert baseline_path("main.json", root) == root / "baselines" / "main.json"
    assert baseline_path("./main.json", root) == Path("main.json")


def test_what_was_saved_is_loaded(path: Path) -> None:
    assert load(path) == {A: entry()}
    assert json.loads(path.read_text())["ipubench"] == {"format": 2}


def test_a_file_as_editors_of_windows_leave_it_is_loaded(path: Path) -> None:
    path.write_text(path.read_text().replace("\n", "\r\n"), encoding="utf-8-sig")
    assert load(path) == {A: entry()}


def test_saving_leaves_nothing_behind_but_its_lock(path: Path) -> None:
    save(path, document(entry()))
    assert {file.name for file in path.parent.iterdir()} <= {"main.json", ".main.json.lock"}


def test_a_benchmark_without_processes_stands_for_itself(path: Path) -> None:
    fresh = entry("b")
    (kept,) = record_of(fresh).pop("processes")
    save(path, document(fresh))
    assert record_of(load(path)[B])["processes"] == [kept]


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


def test_a_lock_that_is_a_link_leaves_what_it_leads_to(path: Path) -> None:
    """A repository can have such a link beside its baselines."""
    precious = path.parent / "precious"
    precious.write_text("mine")
    precious.chmod(0o600)
    (path.parent / ".other.json.lock").symlink_to(precious)
    with pytest.raises(BaselineError, match="cannot be written"):
        save(path.with_name("other.json"), document(entry()))
    assert precious.read_text() == "mine" and precious.stat().st_mode & 0o777 == 0o600


def test_a_link_stays_and_the_file_that_it_leads_to_is_changed(path: Path) -> None:
    shared = path.parent / "shared" / "main.json"
    shared.parent.mkdir()
    path.rename(shared)
    path.symlink_to("shared/main.json")
    save(path, document(entry("b")))
    store.change(path, lambda old: [*old, entry("c")])
    assert path.is_symlink() and len(load_all(shared)) == 3
    store.write(path, document(entry("d")))
    assert path.is_symlink() and len(load_all(shared)) == 1
    # One that leads to no file yet makes it.
    shared.unlink()
    save(path, document(entry()))
    assert path.is_symlink() and load(shared) == {A: entry()}


def test_two_links_to_a_file_have_one_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LOCK_SECONDS", 0.01)
    links = [path.with_name("one.json"), path.with_name("other.json")]
    for link in links:
        link.symlink_to(path)
    with store._locked(links[0]), pytest.raises(BaselineError, match="locked by another process"):
        save(links[1], document(entry()))


def test_links_that_lead_to_each_other_make_room_for_a_file(path: Path) -> None:
    one, other = path.with_name("one.json"), path.with_name("other.json")
    one.symlink_to(other)
    other.symlink_to(one)
    store.check_writable(one)
    save(one, document(entry()))
    assert load(one) == {A: entry()}


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
    found, _, notes = history.read(path.parent.parent, lambda nodeid: True, 9)
    assert len(found) == 1 and not notes
    with pytest.raises(BaselineError, match="there are: main$"):
        load(path.with_name("other.json"))
