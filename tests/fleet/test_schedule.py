"""Each case is measured once, by a suitable worker, however workers come and go."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Dict, List, Set, Tuple

from hypothesis import given
from hypothesis import strategies as st

from ipubench.fixtures.case.cases import case_key
from ipubench.plugins.fleet.schedule import Placing, Schedule, Task, sharing
from tests.support.stored import a_benchmark, changed

NAMES = ("a", "b", "c", "d")


def task(key: str, workers: str) -> Task:
    return Task(key, frozenset(workers))


def scheduled(tasks: List[Task]) -> Schedule:
    return Schedule(tasks, NAMES)


def joined(schedule: Schedule, workers: str) -> Schedule:
    for name in workers:
        schedule.join(name)
    return schedule


def keys(given_out: List[Tuple[str, Task]]) -> Dict[str, str]:
    return {worker: one.nodeid for worker, one in given_out}


def test_a_worker_takes_first_the_cases_that_fewest_can_run() -> None:
    tasks = [task("any1", "ab"), task("any2", "ab"), task("only", "a")]
    schedule = joined(scheduled(tasks), "ab")
    assert keys(schedule.assign()) == {"a": "only", "b": "any1"}
    schedule.done("b")
    assert keys(schedule.assign()) == {"b": "any2"}
    assert not schedule.assign()
    schedule = joined(scheduled(tasks[::-1]), "ab")
    assert keys(schedule.assign()) == {"a": "only", "b": "any2"}


def test_the_cases_of_a_lost_worker_go_to_an_idle_one() -> None:
    schedule = joined(scheduled([task("one", "ab")]), "ab")
    assert keys(schedule.assign()) == {"a": "one"}
    assert schedule.leave("a", 2) == (task("one", "ab"), True)
    assert keys(schedule.assign()) == {"b": "one"}
    schedule.done("b")
    assert schedule.left == 0


def test_a_case_that_kills_two_workers_is_not_retried() -> None:
    schedule = joined(scheduled([task("one", "abc"), task("two", "abc")]), "a")
    schedule.assign()
    assert schedule.leave("a", 0) == (task("one", "abc"), True)  # not its fault
    for name, waits in (("b", True), ("c", False)):
        joined(schedule, name)
        assert keys(schedule.assign()) == {name: "one"}
        assert schedule.leave(name, 2) == (task("one", "abc"), waits)
    assert schedule.left == 1
    joined(schedule, "c")
    assert keys(schedule.assign()) == {"c": "two"}


def test_a_stranded_case_goes_to_the_next_best_worker_or_is_lost() -> None:
    wanted = Task("one", frozenset("a"), frozenset("ab"))
    schedule = joined(scheduled([wanted, task("two", "b"), task("three", "a")]), "ab")
    assert schedule.stranded() == []
    assert keys(schedule.assign()) == {"a": "one", "b": "two"}
    schedule.leave("a", 2)
    assert schedule.stranded() == []  # it may come back
    schedule.workers.discard("a")
    assert schedule.stranded() == [task("three", "a")]
    schedule.done("b")
    assert keys(schedule.assign()) == {"b": "one"}
    schedule.done("b")
    assert schedule.left == 0


def test_workers_of_one_machine_alternate() -> None:
    tasks = [task(str(number), "abc") for number in range(4)]
    schedule = joined(Schedule(tasks, NAMES, {"a": "m", "b": "m"}), "abc")
    assert keys(schedule.assign()) == {"a": "0", "c": "1"}
    assert not schedule.assign()
    schedule.done("a")
    assert set(keys(schedule.assign())) == {"b"}
    schedule.leave("b", 2)
    assert keys(schedule.assign()) == {"a": "2"}


@given(
    st.lists(st.sets(st.sampled_from(NAMES), min_size=1), max_size=12),
    st.sets(st.sampled_from(NAMES)),
    st.data(),
)
def test_in_any_order_of_events_each_case_ends_once_or_is_lost(
    workers: List[Set[str]], together: Set[str], data: st.DataObject
) -> None:
    tasks = [task(str(number), "".join(some)) for number, some in enumerate(workers)]
    schedule = Schedule(tasks, NAMES, dict.fromkeys(together, "machine"))
    there: Set[str] = set()
    running: Dict[str, Task] = {}
    ended: List[str] = []
    while schedule.left:
        for name, one in schedule.assign():
            assert name in there and name in one.workers and name not in running
            running[name] = one
        assert len(set(running) & together) <= 1
        moves = [("join", name) for name in sorted(schedule.workers - there)]
        moves += [("done", name) for name in sorted(running)]
        moves += [(what, name) for name in sorted(there) for what in ("leave", "gone")]
        what, name = data.draw(st.sampled_from(moves))
        if what == "join":
            schedule.join(name)
            there.add(name)
        elif what == "done":
            ended.append(schedule.done(name).nodeid)
            del running[name]
        else:
            found, waits = schedule.leave(name, 2)
            assert found == running.pop(name, None)
            there.discard(name)
            if found is not None and not waits:
                ended.append(found.nodeid)
        if what == "gone":
            schedule.workers.discard(name)
            ended += [one.nodeid for one in schedule.stranded()]
    assert sorted(ended) == sorted(one.nodeid for one in tasks)


def facts(fingerprint: str, machine: str, device: str) -> Any:
    return SimpleNamespace(fingerprint=fingerprint, machine=machine, leases=[device])


def item(nodeid: str, ipus: int = 0) -> Any:
    config = SimpleNamespace(ipus=ipus, instances=1)
    return SimpleNamespace(nodeid=nodeid, stash={case_key: SimpleNamespace(config=config)})


def test_a_case_goes_where_it_exists_has_its_devices_and_was_measured_before() -> None:
    hosts = {name: facts(of, "m", name) for name, of in zip("abc", ("old", "new", "new"))}
    entries = [
        changed(a_benchmark([1.0]), {"fullname": name, "record.device.fingerprint": of})
        for name, of in (("one", "new"), ("two", "gone"))
    ]
    collected = {"a": ["one", "two"], "b": ["one"], "c": ["one", "two"]}
    placing = Placing(collected, {"a": 4, "b": 1, "c": 4}, hosts, entries)
    every, both = frozenset("abc"), frozenset("ac")
    assert placing.task(item("one")) == Task("one", frozenset("bc"), every)
    assert placing.task(item("two")) == Task("two", both, both)
    assert placing.task(item("one", ipus=4)) == Task("one", frozenset("c"), both)
    assert placing.able(item("two", ipus=8)) == []


def test_workers_share_a_device_of_one_machine() -> None:
    hosts = {"a": facts("", "m", "cpu"), "b": facts("", "m", "cpu"), "c": facts("", "n", "cpu")}
    assert sharing({**hosts, "d": facts("", "", "cpu")}) == dict.fromkeys("ab", "cpu of m")
