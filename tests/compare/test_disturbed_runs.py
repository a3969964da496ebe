"""Runs next to other programs, which the fake device imitates, and within a time limit."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List

import pytest

from ipubench.fixtures.case.cases import case_key
from ipubench.plugins.command_line.arguments import XDIST_KEY
from ipubench.plugins.run import gate_time
from tests.support.command_line import given_options
from tests.support.harness import Project

CASE = ["-k", "beta-synthetic"]
GATE = [*CASE, "--baseline=main", "--gate=5%"]
SAVE = [*CASE, "--baseline-save=main", "--processes=4"]
SLOW = {"IPUBENCH_FAKE_SLOWDOWN": "1.5"}
BUSY = {"IPUBENCH_FAKE_TAKEN": "0.6"}
BESIDE = {"IPUBENCH_FAKE_BESIDE": "2"}


@pytest.fixture(scope="module")
def baselines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a baseline of a quiet machine."""
    project = Project(tmp_path_factory.mktemp("measured"))
    outcome = project.run(*SAVE).assert_code(0)
    outcome.line("3 fresh processes for each of 1 case")
    outcome.line("  beta-synthetic: fresh process 3: 4,000 items/s (")
    return project.folder / "baselines"


def test_equal_code_next_to_a_busy_neighbour_is_inconclusive(stored: Project) -> None:
    outcome = stored.run(*GATE, env=BUSY).assert_code(6)
    outcome.line("1 inconclusive")
    line = outcome.line("1 of 1 case is open")
    assert line.endswith("; --wait-for-quiet=2min may decide")
    said = " ".join(outcome.text.split())
    assert re.search(r"disturbed 4 of 4 processes, .*(59|60)%", said)
    outcome.line("fresh process 3: 1,600 items/s, disturbed (")
    (record,) = stored.records().values()
    assert record["rounds"]["stopped_by"] == "disturbed"


def test_a_run_next_to_other_machines_is_not_compared_with_an_undisturbed_one(
    stored: Project, tmp_path: Path
) -> None:
    """Equal code takes twice as long, and no system counter explains it."""
    outcome = stored.run(*GATE, *SAVE[2:], env=BESIDE).assert_code(1)
    outcome.line("): 1 inconclusive")
    outcome.line("1 inconclusive, whose entries stay")
    outcome.line("no baseline was written: no case was left")
    said = " ".join(outcome.text.split())
    assert "4 of 4 processes " in said and re.search(r"1\.00 ms, .* 0\.50 ms ", said)
    # A file without an entry keeps nothing. Runs measured in the same state are compared.
    outcome = stored.run(*GATE, "--baseline-save=beside", "--processes=4", env=BESIDE)
    assert "entries stay" not in outcome.assert_code(6).text
    again = [*CASE, "--baseline=beside", "--gate=5%"]
    stored.run(*again, env={**BESIDE, **SLOW}).assert_code(1).line("has become slower")


CHANGING = """
from itertools import cycle

from tests.support.fake_device import FakeDevice

states = cycle([1, 1, 2, 1])
FakeDevice.look = lambda self: lambda: 0.5 * next(states)
"""


def test_a_change_of_the_machine_state_is_not_blamed_on_other_programs(stored: Project) -> None:
    """One of three rounds finds another state, while no program used the CPU."""
    stored.add_to_conftest(CHANGING)
    outcome = stored.run(*GATE, "--budget=0.01").assert_code(6)
    outcome.line("1 inconclusive")
    outcome.line("beta-synthetic: the machine ")


def test_a_disturbed_case_replaces_no_sound_entry(project: Project) -> None:
    save = [*CASE, "--baseline-save=main", "--processes=2"]
    outcome = project.run(*save, "--report=out", env=BUSY).assert_code(1)
    outcome.line("beta-synthetic: kept, but")
    reported = json.loads((project.folder / "out" / "baseline.json").read_text())
    names = [one["fullname"] for one in project.baseline()["benchmarks"]]
    assert names == [one["fullname"] for one in reported["benchmarks"]]
    project.run(*save, "--keep-disturbed", env=BUSY).assert_code(0).line("beta-synthetic: kept, ")
    outcome = project.run(*GATE).assert_code(6)
    outcome.line("1 inconclusive")
    outcome.line("in the baseline other programs")
    # No gate uses it, so an undisturbed measurement replaces it.
    outcome = project.run(*save, "--baseline=main").assert_code(0)
    outcome.line("baseline with 1 case written")
    outcome.line("finds slow-downs from ")
    sound = project.baseline()
    outcome = project.run(*save, env=BUSY).assert_code(1)
    outcome.line("1 case is not in")
    assert project.baseline() == sound


def test_a_baseline_replaces_disturbed_processes(project: Project) -> None:
    """Every second run of the case has a neighbour."""
    path = project.folder / "bench_fake.py"
    text = path.read_text()
    path.write_text(
        text.replace(
            "def bench_fake(config: Fake, device: Any, meter: Any) -> None:\n",
            "def bench_fake(config: Fake, device: Any, meter: Any) -> None:\n"
            '    with open("runs", "a+") as file:\n'
            '        file.write(".")\n'
            '        share = "0.6" if file.tell() % 2 else "0"\n'
            '        os.environ["IPUBENCH_FAKE_TAKEN"] = share\n',
        )
    )
    project.run(*SAVE).assert_code(0).line("baseline with 1 case written")
    (entry,) = project.baseline()["benchmarks"]
    clean = [one["clean"] for one in entry["extra_info"]["ipubench"]["processes"]]
    assert clean == [False, True, False, True, False, True]


def test_gate_time_ends_the_gate(stored: Project) -> None:
    outcome = stored.run(*GATE, "--gate-time=0.5s", env=SLOW).assert_code(6)
    outcome.line("1 inconclusive")
    outcome.line("; a longer --gate-time may decide")
    outcome.line("of --gate-time was over")
    assert "fresh" not in [line["type"] for line in stored.journal()]


def test_gate_time_stores_no_baseline_of_one_process(project: Project) -> None:
    words = ["-k", "beta", "--baseline-save=main", "--gate-time=1s"]
    # It is shorter than any process, which is clear before the first one.
    outcome = project.run(*words).assert_code(1)
    outcome.line("beta-synthetic]: --gate-time left time for 0 of 8")
    outcome.line("2 cases are not in the baseline because --gate-time was over before")
    outcome.line("no baseline was written: no case was left")
    assert not (project.folder / "baselines").exists()
    # The user asked for one process.
    project.run(*words, "--processes=1").assert_code(0).line("baseline with 2 cases written")


class Config:
    """The configuration that a run's time limit reads."""

    def __init__(self, gate_time: float, workers: int, shared: bool) -> None:
        measured = {"against": None, "processes": None, "baseline_save": None}
        self.option = given_options(gate_time=gate_time, **measured)
        part = {"workercount": workers, XDIST_KEY: {"in_turns": shared}}
        self.workerinput = part if workers else {}


@pytest.mark.parametrize(
    ("workers", "shared", "share"),
    [(0, False, 10.0), (4, False, 40.0), (4, True, 10.0)],
)
def test_alternating_workers_share_one_gate_time(workers: int, shared: bool, share: float) -> None:
    config: Any = Config(120.0, workers, shared)
    case = SimpleNamespace(stash={case_key: object()})
    items: List[Any] = [case] * 12
    assert gate_time.of_run(config, items).share(1) == pytest.approx(share)


def test_what_a_case_leaves_over_goes_to_the_others() -> None:
    time = gate_time.GateTime(30.0, 3)
    time.left -= 4.0
    time.end()
    assert time.share(1) == 13.0 and time.share(2) == 26.0
    assert gate_time.GateTime(None, 3).share(1) == math.inf
