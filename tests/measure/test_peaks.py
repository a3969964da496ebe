"""The measured peaks: once per machine, stored on disk, never lowered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Dict, List, Optional

import pytest

from ipubench.fixtures.data.feeds import ArrayFeed
from ipubench.fixtures.instances.instances_step import InstancesStep
from ipubench.fixtures.instances.plan import Launcher, Plan
from ipubench.fixtures.runtimes.step import BatchWork, ReferenceJobs, Work
from ipubench.plugins.measure.disturbance import Disturbance
from ipubench.plugins.measure.peaks import TRIES, Peaks, ceilings, describe_compute
from tests.support.fake_device import TAKEN_VARIABLE, FakeDevice
from tests.support.fake_runtime import FakeStep


class Bench:
    """Work whose rate follows a list of seconds per run."""

    def __init__(self, path: Optional[Path], fingerprint: str = "cpu/x") -> None:
        self.device = FakeDevice(0)
        self.peaks = Peaks(path, fingerprint, self.device.clock)
        self.made: List[float] = []

    def rate(self, seconds: float) -> Optional[float]:
        def make() -> Work:
            self.made.append(seconds)
            return Work(lambda: self.device.clock.advance(seconds), 10.0)

        return self.peaks.get("matmul", make)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "peaks.json"


def test_a_peak_is_measured_once_per_machine(path: Path) -> None:
    bench = Bench(path)
    assert bench.rate(0.5) == bench.rate(0.1) == pytest.approx(20)
    assert bench.made == [0.5]
    assert json.loads(path.read_text()) == {"cpu/x": {"matmul": pytest.approx(20)}}
    later = Bench(path)
    assert later.rate(0.1) == pytest.approx(20) and later.made == []
    assert Bench(path, "cpu/y").rate(0.25) == pytest.approx(40)


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"cpu/x": 3}', '{"cpu/x": {"matmul": "fast"}}', '{"cpu/x": {"matmul": -1}}'],
)
def test_a_damaged_cache_is_measured_again(path: Path, content: str) -> None:
    path.write_text(content)
    assert Bench(path).rate(0.5) == pytest.approx(20)
    assert json.loads(path.read_text())["cpu/x"]["matmul"] == pytest.approx(20)


def test_without_a_cache_the_session_keeps_the_value(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for path in (None, tmp_path / "file" / "peaks.json"):
        bench = Bench(path)
        assert bench.rate(0.5) == bench.rate(0.1) == pytest.approx(20)


def test_a_step_without_a_peak_has_none_of_another_step() -> None:
    device = FakeDevice(0)
    peaks = Peaks(None, "cpu/x", device.clock)
    one = FakeStep(device, ArrayFeed("synthetic", ()), 0.1, peak=10.0)
    assert ceilings(peaks, one)[0] == pytest.approx(10)
    other = FakeStep(device, ArrayFeed("synthetic", ()), 0.1)
    assert ceilings(peaks, other) == (None, None)
    facts, _ = describe_compute(peaks, other, 5.0, 1.0, 1.0)
    assert facts.achieved == 5.0 and facts.share is None


def test_a_disturbed_peak_is_not_stored(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TAKEN_VARIABLE, "0.5")
    device = FakeDevice(0)
    peaks = Peaks(path, "cpu/x", device.clock, lambda: Disturbance.of(device))
    assert peaks.get("matmul", lambda: Work(lambda: device.work(0.25), 10.0)) == pytest.approx(20)
    assert not path.exists()


@pytest.mark.parametrize(("taken", "implausible"), [("0", True), ("0.5", False)])
def test_a_disturbed_peak_makes_no_case_implausible(
    taken: str, implausible: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TAKEN_VARIABLE, taken)
    device = FakeDevice(0)
    made: List[float] = []

    def peak() -> Work:
        made.append(1.0)
        return Work(lambda: device.work(1.0), 10.0)

    step = FakeStep(device, ArrayFeed("synthetic", ()), 0.1)
    step.reference = ReferenceJobs(peak=peak)
    peaks = Peaks(None, "cpu/x", device.clock, lambda: Disturbance.of(device))
    facts, found = describe_compute(peaks, step, 20.0, 1.0, 1.0)
    assert found is implausible
    assert facts.peak_disturbed is not implausible
    assert len(made) == 1 + (1 if implausible else TRIES)


def test_a_peak_that_was_too_low_makes_no_case_implausible() -> None:
    """A rate above the first measurement of a peak may be below the next one."""
    device = FakeDevice(0)
    seconds = iter([2.0, 2.0])  # a dropped run and a timed one

    step = FakeStep(device, ArrayFeed("synthetic", ()), 0.1)
    step.reference = ReferenceJobs(
        peak=lambda: Work(lambda: device.clock.advance(next(seconds, 0.25)), 10.0)
    )
    facts, found = describe_compute(Peaks(None, "cpu/x", device.clock), step, 20.0, 1.0, 1.0)
    assert (facts.peak, facts.share, found) == (40.0, 0.5, False)


@pytest.mark.parametrize("exact", [True, False])
def test_a_peak_below_the_rate_of_a_case_is_measured_again(exact: bool) -> None:
    device, seconds = FakeDevice(0), iter([1.0, 1.0])

    step = FakeStep(device, ArrayFeed("synthetic", ()), 0.1)
    step.work = BatchWork(exact)
    step.reference = ReferenceJobs(
        peak=lambda: Work(lambda: device.clock.advance(next(seconds, 0.5)), 10.0)
    )
    facts, found = describe_compute(Peaks(None, "cpu/x", device.clock), step, 11.0, 1.0, 1.0)
    assert (facts.peak, facts.share, found) == (20.0, 0.55, False)


@pytest.mark.parametrize(("exact", "implausible"), [(True, True), (False, False)])
def test_work_with_shortcuts_may_exceed_the_peak(exact: bool, implausible: bool) -> None:
    step = FakeStep(FakeDevice(0), ArrayFeed("synthetic", ()), 0.1, peak=10.0)
    step.work = BatchWork(exact, weight_traffic=lambda: 400.0)
    peaks = Peaks(None, "cpu/x", step.device.clock)
    facts, found = describe_compute(peaks, step, 20.0, 1.0, 8.0)
    assert found is implausible
    assert (facts.peak, facts.share, facts.weight_bytes_per_item) == (10.0, 2.0, 50.0)


def test_the_work_of_several_hosts_is_not_compared_with_the_peak_of_one() -> None:
    class Members:
        def command(self, name: str, argument: object = None) -> List[Dict[str, object]]:
            return [{"weight_traffic": None}] * 2

    one = FakeStep(FakeDevice(0), ArrayFeed("synthetic", ()), 0.1, peak=10.0)
    peaks = Peaks(None, "cpu/x", one.device.clock)
    for hosts, expected in (((), (10.0, 2.0, True)), (("a", "b"), (None, None, False))):
        plan = Plan(Launcher("mpirun", ("mpirun",), hosts), 2, (), 2, one_job=False)
        step = InstancesStep(one, plan, Members())  # type: ignore[arg-type]
        facts, implausible = describe_compute(peaks, step, 20.0, 1.0, 1.0)
        assert (facts.peak, facts.share, implausible) == expected
