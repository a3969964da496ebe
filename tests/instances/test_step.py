"""One step of several processes: how a case combines their replies."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple
from unittest.mock import Mock

import pytest

from ipubench.fixtures.data.feeds import ArrayFeed
from ipubench.fixtures.instances.instances_step import InstancesStep
from ipubench.fixtures.instances.plan import Launcher, Plan
from ipubench.fixtures.runtimes.step import BatchWork, Loading, RoundRules, ask
from ipubench.plugins.measure.meter import in_items
from tests.support.fake_device import FakeDevice
from tests.support.fake_runtime import FakeStep


class Members:
    """Two instances with given replies."""

    def __init__(self, **answers: List[Any]) -> None:
        self.answers, self.idle, self.pids = answers, True, [11, 12]
        self.orders: List[Tuple[str, Any]] = []

    def command(self, name: str, argument: Any = None) -> List[Any]:
        self.orders.append((name, argument))
        return self.answers.get(name, [None, None])

    def command_each(self, name: str, arguments: Sequence[Any]) -> List[Any]:
        return self.command(name, arguments)

    def close(self) -> None:
        self.orders.append(("hang up", None))

    def stop(self) -> None:
        self.orders.append(("stop", None))


def step_of(members: Any, one_job: bool = False, hosts: Tuple[str, ...] = ()) -> InstancesStep:
    """Return the step of these instances."""
    plan = Plan(Launcher("processes", (), hosts), 2, ((0,), (1,)), 2, one_job=one_job)
    one = FakeStep(FakeDevice(0), ArrayFeed("synthetic", ()), 0.1)
    one.counted_processes = 3
    one.work = BatchWork(flops_per_batch=lambda: 6.0)
    one.rounds = RoundRules(most=lambda: 9)
    return InstancesStep(one, plan, members)


@pytest.mark.parametrize(
    ("compiled", "hits", "any_compiled", "hit"),
    [
        ((True, True), (False, False), True, False),
        ((True, False), (False, True), True, False),
        ((False, False), (True, True), False, True),
        ((True, True), (None, None), True, None),  # they store no models
    ],
)
def test_a_model_counts_as_stored_if_all_instances_found_theirs(
    compiled: Any, hits: Any, any_compiled: bool, hit: Optional[bool]
) -> None:
    told = [{"compiled": done, "hit": found} for done, found in zip(compiled, hits)]
    step = step_of(Members(compile=told, note=[4.0, 9.0]))
    assert step.compile() == any_compiled
    if hit is None:
        assert step.model_cache is None
    else:
        assert step.model_cache.hit == hit and step.model_cache.note(5.0) == 4.0


def facts(host: str, **more: Any) -> Dict[str, Any]:
    return {
        "host": host,
        "cores": [0],
        "prefetched": 8,
        "burst": 4,
        "halves": False,
        "describe": {"engine": "fake"},
        "flops_per_item": 5.0,
        "weight_traffic": 7.0,
        **more,
    }


def test_instances_are_asked_for_facts_once_after_compiling() -> None:
    members = Members(compile=2 * [{"compiled": True, "hit": None}], facts=[facts("a"), facts("b")])
    step = step_of(members, hosts=("a", "b"))
    assert (step.loading, members.orders) == (Loading(), [])
    step.compile()
    assert step.loading == Loading(8, 4)
    # Each reads its own weights.
    assert (ask(step.work.flops_per_item), ask(step.work.flops_per_batch)) == (5.0, 2 * 6.0)
    assert ask(step.work.weight_traffic) == 2 * 7.0
    described = step.describe()
    assert described["engine"] == "fake"
    assert [place["host"] for place in described["instances"]["places"]] == ["a", "b"]
    assert [name for name, _ in members.orders] == ["compile", "facts"]
    untold = step_of(Members(facts=2 * [facts("a", weight_traffic=None)]))
    assert ask(untold.work.weight_traffic) is None


def test_values_of_all_instances_are_joined_and_the_first_limits_rounds() -> None:
    members = Members(
        latencies=[[1.0, 2.0], [3.0, 4.0]],
        device_memory=[10, 20],
        memory=[100, 200],
        most_rounds=[5, 6],
    )
    step = step_of(members)
    assert step.latencies() == [1.0, 3.0, 2.0, 4.0]
    assert (step.device_memory(), step.host_memory(), ask(step.rounds.most)) == (30, 300, 5)
    # The items are those of the job, not of each instance.
    assert (step.counted_processes, step_of(members, one_job=True).counted_processes) == (2 * 3, 1)
    without = step_of(Members(latencies=[[1.0], None], device_memory=[10, None]))
    assert without.latencies() is None and without.device_memory() is None


def test_all_instances_run_each_half_of_a_step() -> None:
    compiled = {"compiled": True, "hit": None}
    with_workers = [facts("a", halves=True), facts("b", halves=True)]
    members = Members(parts=[(3.0, 4.0), (9.0, 9.0)], compile=2 * [compiled], facts=with_workers)
    step = step_of(members)
    step.compile()
    halves = ask(step.loading.halves)
    assert halves is not None and [half.amount for half in halves] == [3.0, 4.0]
    members.orders.clear()
    for half in halves:
        half.prepare()
        half.run()
    assert members.orders == [("prepare_part", 0), ("part", 0), ("prepare_part", 1), ("part", 1)]


def test_each_instance_has_the_rate_of_its_calls_without_the_first() -> None:
    members = Members(
        facts=[facts("a"), facts("b")], data=[{"part": "1"}, {"part": "2"}], counters=[{"c": 1}, {}]
    )
    step = step_of(members)
    assert step.rounds.dropped == 1
    for batches, seconds in ((4, [2.0, 0.0]), (8, [8.0, 1.0]), (8, [4.0, 2.0]), (8, [2.0, 0.0])):
        step.batches_per_step = batches
        members.answers["run"] = seconds
        step()
    found = step.counters()
    assert found["c"] == 1 and step.feed.describe() == {"part": "1"}
    # With calls of eight batches the first one does not count, nor does one that took no time.
    assert found["instances"] == [
        {"host": "a", "pid": 11, "rate": 3.0, "first_rate": 2.0},
        {"host": "b", "pid": 12, "rate": 4.0, "first_rate": None},
    ]
    # A batch of both has 10 images; each instance's rate counts its 5.
    assert [one["rate"] for one in in_items(found, 10)["instances"]] == [15.0, 20.0]
    assert [one["first_rate"] for one in in_items(found, 10)["instances"]] == [10.0, None]
    members.answers["run"] = [2.0, 2.0]
    step.batches_per_step = 1
    step()
    assert [one["rate"] for one in step.counters()["instances"]] == [None, None]
    members.answers["finish"] = [[{"loss": 1.0}, ["one"]], [{"loss": 2.0}, []]]
    assert step.finish() == ({"loss": 1.0}, ["one"])


def test_the_record_names_the_unreadable_images_of_all_instances() -> None:
    data = [{"part": "1 of 2", "corrupt": ["a"]}, {"part": "2 of 2", "corrupt": ["a", "b"]}]
    members = Members(data=data, counters=[{}, {}])
    members.pids = []
    step = step_of(members)
    step.counters()
    assert step.feed.describe() == {"part": "1 of 2", "corrupt": ["a", "b"]}


def test_the_first_instance_writes_its_graph_and_each_writes_a_trace(tmp_path: Path) -> None:
    members = Members()
    step_of(members).save_graph(tmp_path)
    step_of(members).profile(tmp_path)
    traces = [str(tmp_path / f"instance-{number}") for number in (1, 2)]
    assert members.orders == [("save_graph", [str(tmp_path), None]), ("profile", traces)]


@pytest.mark.parametrize("idle", [True, False])
def test_waiting_instances_exit_and_others_are_terminated(
    idle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = Members()
    members.idle = idle
    step = step_of(members)
    closed = Mock()
    monkeypatch.setattr(step._step, "close", closed)
    step.close()
    asked = ["close", "hang up"] if idle else []
    assert [name for name, _ in members.orders] == [*asked, "stop"]
    closed.assert_called_once_with()
