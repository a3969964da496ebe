"""Each case is measured once, by a member that can, however members come and go."""

from __future__ import annotations

from typing import Dict, List, Set, Tuple

from hypothesis import given
from hypothesis import strategies as st

from ipubench.plugins.fleet.schedule import MOST_LOSSES, Schedule, Task

NAMES = ("a", "b", "c", "d")


def task(key: str, members: str) -> Task:
    return Task(key, frozenset(members))


def joined(schedule: Schedule, members: str) -> Schedule:
    for name in members:
        schedule.join(name)
    return schedule


def keys(given_out: List[Tuple[str, Task]]) -> Dict[str, str]:
    return {member: one.key for member, one in given_out}


def test_a_member_takes_first_what_fewest_can() -> None:
    tasks = [task("any1", "ab"), task("any2", "ab"), task("only", "a")]
    schedule = joined(Schedule(tasks), "ab")
    assert keys(schedule.assign()) == {"a": "only", "b": "any1"}
    schedule.done("b")
    assert keys(schedule.assign()) == {"b": "any2"}
    assert not schedule.assign()
    schedule = joined(Schedule(tasks[::-1]), "ab")
    assert keys(schedule.assign()) == {"a": "only", "b": "any2"}


def test_what_a_lost_member_had_goes_to_another_that_was_idle() -> None:
    schedule = joined(Schedule([task("one", "ab")]), "ab")
    assert keys(schedule.assign()) == {"a": "one"}
    assert schedule.leave("a") == (task("one", "ab"), True)
    assert keys(schedule.assign()) == {"b": "one"}
    schedule.done("b")
    assert schedule.left == 0


def test_a_case_that_costs_two_members_is_handed_out_no_more() -> None:
    schedule = joined(Schedule([task("one", "abc"), task("two", "abc")]), "a")
    schedule.assign()
    schedule.leave("a")
    joined(schedule, "b")
    assert keys(schedule.assign()) == {"b": "one"}
    assert schedule.leave("b") == (task("one", "abc"), False)
    assert schedule.left == 1
    joined(schedule, "c")
    assert keys(schedule.assign()) == {"c": "two"}


def test_a_case_that_nobody_had_begun_costs_no_member() -> None:
    schedule = joined(Schedule([task("one", "abc")]), "a")
    for name in "abcabc":
        schedule.join(name)
        schedule.assign()
        assert schedule.leave(name, begun=False) == (task("one", "abc"), True)
    joined(schedule, "a")
    assert keys(schedule.assign()) == {"a": "one"}


def test_a_stranded_case_may_go_to_those_that_should_not_but_could() -> None:
    wanted = Task("one", frozenset("a"), frozenset("ab"))
    schedule = joined(Schedule([wanted, task("two", "b")]), "ab")
    schedule.leave("a")
    assert schedule.stranded() == [wanted]
    assert keys(schedule.assign()) == {"b": "two"}
    schedule.done("b")
    assert not schedule.assign()
    schedule.widen(wanted)
    assert schedule.stranded() == [] and schedule.left == 1
    assert keys(schedule.assign()) == {"b": "one"}
    schedule.done("b")
    assert schedule.left == 0


def test_stranded_cases_are_those_that_nobody_there_can_take() -> None:
    schedule = joined(Schedule([task("one", "a"), task("two", "ab"), task("none", "")]), "ab")
    assert schedule.stranded() == [task("none", "")]
    schedule.give_up(task("none", ""))
    schedule.leave("a")
    assert schedule.stranded() == [task("one", "a")]
    schedule.join("a")
    assert schedule.stranded() == []


def test_members_of_one_machine_take_turns() -> None:
    tasks = [task(str(number), "abc") for number in range(4)]
    schedule = joined(Schedule(tasks, {"a": "m", "b": "m"}), "abc")
    assert keys(schedule.assign()) == {"a": "0", "c": "1"}
    assert not schedule.assign()
    schedule.done("a")
    assert set(keys(schedule.assign())) == {"b"}
    schedule.leave("b")
    assert keys(schedule.assign()) == {"a": "2"}


@given(
    st.lists(st.sets(st.sampled_from(NAMES), min_size=1), max_size=12),
    st.sets(st.sampled_from(NAMES)),
    st.data(),
)
def test_whatever_happens_each_case_ends_once_or_is_lost(
    members: List[Set[str]], together: Set[str], data: st.DataObject
) -> None:
    tasks = [Task(str(number), frozenset(some)) for number, some in enumerate(members)]
    turns = dict.fromkeys(together, "machine")
    schedule = Schedule(tasks, turns)
    there: Set[str] = set()
    running: Dict[str, Task] = {}
    ended: List[str] = []
    lost: Dict[str, int] = {}
    while schedule.left:
        for name, one in schedule.assign():
            assert name in there and name in one.members and name not in running
            running[name] = one
        assert len(set(running) & together) <= 1
        away = sorted(set(NAMES) - there)
        # A member that is away may come back; without one that could, what is left is stranded.
        moves = [("join", name) for name in away]
        moves += [("done", name) for name in sorted(running)]
        moves += [("leave", name) for name in sorted(there)]
        what, name = data.draw(st.sampled_from(moves))
        if what == "join":
            schedule.join(name)
            there.add(name)
        elif what == "done":
            ended.append(schedule.done(name).key)
            del running[name]
        else:
            found, waits = schedule.leave(name)
            there.discard(name)
            had = running.pop(name, None)
            assert found == had
            if found is not None:
                lost[found.key] = lost.get(found.key, 0) + 1
                assert waits == (lost[found.key] < MOST_LOSSES)
        stranded = {one.key for one in schedule.stranded()}
        waiting = {one.key for one in tasks} - set(ended) - {one.key for one in running.values()}
        waiting -= {key for key, count in lost.items() if count >= MOST_LOSSES}
        assert stranded == {
            one.key for one in tasks if one.key in waiting and not one.members & there
        }
    assert sorted([*ended, *(k for k, n in lost.items() if n >= MOST_LOSSES)]) == sorted(
        one.key for one in tasks
    )
