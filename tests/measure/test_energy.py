"""The energy of a case's rounds: its window, its record, its column and its gate."""

from __future__ import annotations

import csv
from typing import Any, List, Tuple

import pytest

from ipubench.fixtures.data.feeds import ArrayFeed
from ipubench.fixtures.runtimes.step import OwnClock, ask
from ipubench.plugins.measure.energy import EnergyWindow
from ipubench.plugins.measure.rounds import Limits, Rounds
from ipubench.plugins.measure.served import RoundsOnCommand
from ipubench.plugins.record.pytest_benchmark_adapter import EnoughRounds
from tests.support.fake_device import FakeCounter, FakeDevice
from tests.support.fake_runtime import FakeStep
from tests.support.harness import Project

WATTS = {"IPUBENCH_FAKE_WATTS": "50"}


def run(rounds: Rounds, step: FakeStep) -> List[float]:
    """Run the rounds, as pytest-benchmark does."""
    seconds: List[float] = []
    with pytest.raises(EnoughRounds):
        while True:
            rounds.before_round(seconds)
            before = step.device.clock()
            step()
            seconds.append(step.device.clock() - before)
    return seconds


def a_step(batch_seconds: float = 0.1) -> Tuple[FakeStep, EnergyWindow]:
    """Return a step on a device of 50 W."""
    device = FakeDevice(0)
    device.clock.advance(7.0)
    device.counter = FakeCounter(device.clock, 50.0)
    return FakeStep(device, ArrayFeed("synthetic", ()), batch_seconds), EnergyWindow.of(device)


def test_the_window_is_from_the_first_round_to_the_last() -> None:
    step, window = a_step()
    run(Rounds(Limits(steps=4), step.device.clock, ask(step.reference.canary), energy=window), step)
    found = window.describe(step, 8.0)
    assert found is not None and found.unknown == ""
    assert found.seconds == pytest.approx(0.4 + 3 * 0.001)  # the canaries between
    assert found.joules == pytest.approx(50 * found.seconds)
    assert found.per_item == pytest.approx(50 * found.seconds / 8)


def test_in_turns_the_other_process_uses_its_own_energy() -> None:
    step, window = a_step()
    left = [("round", None)] * 3 + [("record", "precision")]

    class Commands:
        def reply(self, value: Any) -> None:
            pass

        def wait_for_any(self, *_: str) -> Tuple[str, Any]:
            step.device.clock.advance(0.25)  # the other's round
            return left.pop(0)

    rounds = RoundsOnCommand(Limits(), step.device.clock, None, energy=window)
    rounds.commands = Commands()  # type: ignore[assignment]
    run(rounds, step)
    found = window.describe(step, 3.0)
    assert found is not None
    assert (found.seconds, found.per_item) == pytest.approx((0.3, 5.0))


@pytest.mark.parametrize("problem", ["short", "long", "still", "hosts", "setup"])
def test_a_window_that_shows_no_energy_of_items_has_a_reason(problem: str) -> None:
    step, window = a_step({"short": 0.002, "long": 300.0}.get(problem, 0.1))
    if problem == "still":
        window.counter = FakeCounter(step.device.clock, 0.0)
    if problem == "setup":
        step.clock = OwnClock(step.device.clock, lambda: 0.9)
    step.on_several_hosts = problem == "hosts"
    run(Rounds(Limits(steps=4), step.device.clock, None, energy=window), step)
    found = window.describe(step, 8.0)
    assert found is not None
    assert found.unknown and found.joules is None and found.per_item is None


def test_without_the_option_or_a_counter_nothing_is_recorded(project: Project) -> None:
    outcome = project.run("-k", "beta-synthetic", env=WATTS).assert_code(0)
    assert "energy" not in project.records()["beta-synthetic"] and "J/item" not in outcome.text
    project.refused("-k", "beta-synthetic", "--energy")


def test_the_record_the_table_and_the_exports_have_the_energy_of_an_item(project: Project) -> None:
    words = ("-k", "alpha-bs8-synthetic or beta-synthetic", "--budget=0.001", "--energy")
    outcome = project.run(*words, "--report=out", env=WATTS).assert_code(0)
    assert project.records()["beta-synthetic"]["energy"]["unknown"]  # of three rounds of 2 ms
    assert "beta-synthetic: no energy" in outcome.text
    record = project.records()["alpha-bs8-synthetic"]
    energy, rounds = record["energy"], record["rounds"]["count"]
    assert energy["source"] == "the fake device"
    assert energy["joules"] == pytest.approx(50 * energy["seconds"])
    items = rounds * record["items_per_round"]
    assert energy["per_item"] == pytest.approx(energy["joules"] / items)
    assert "J/item" in outcome.line("case  ")
    assert any("alpha-bs8-synthetic" in line and " mJ" in line for line in outcome.table)
    for name in ("summary.md", "report.html"):
        assert "J/item" in (project.folder / "out" / name).read_text(encoding="utf-8")
    with (project.folder / "out" / "results.csv").open(encoding="utf-8") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    assert float(rows["alpha-bs8-synthetic"]["energy (J/item)"]) == energy["per_item"]


def test_a_case_that_pytest_benchmark_measures_has_no_energy(project: Project) -> None:
    test = "def test_a(benchmark):\n    benchmark.pedantic(lambda: None, rounds=3)\n"
    (project.folder / "test_own.py").write_text(test, encoding="utf-8")
    outcome = project.run("test_own.py", "-k", "test_a", "--energy", env=WATTS).assert_code(0)
    assert "test_a: no energy" in outcome.text
    assert project.records()["test_a"]["energy"]["unknown"]


def test_the_gate_finds_more_energy_at_equal_speed(project: Project) -> None:
    words = ("-k", "beta-synthetic", "--budget=0.1")
    saved = project.run(*words, "--energy", "--baseline-save=main", "--processes=2", env=WATTS)
    saved.assert_code(0)
    gated = (*words, "--baseline=main", "--gate=energy:5%")
    project.run(*gated, env=WATTS).assert_code(0)
    outcome = project.run(*gated, env={"IPUBENCH_FAKE_WATTS": "75"}).assert_code(1)
    (verdict,) = (line["verdict"] for line in project.journal() if line["type"] == "verdict")
    (judged,) = verdict["also"]
    assert (verdict["metric"], judged["kind"], judged["unit"]) == ("energy", "regressed", "J")
    assert judged["change"] == pytest.approx(0.5)
    assert verdict["change"] == pytest.approx(0, abs=1e-9)
    assert "energy" in outcome.text
