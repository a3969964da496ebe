"""The words for what goes wrong with instances, and the log that they name."""

from __future__ import annotations

from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator, List, Tuple

import pytest

from ipubench.fixtures.instances import controller
from ipubench.fixtures.instances.controller import Instances
from ipubench.fixtures.instances.failures import Failures, InstanceError
from ipubench.fixtures.instances.plan import Launcher, Plan, alone
from ipubench.fixtures.instances.protocol import send


def launcher_in(folder: Path) -> Any:
    """Return a launcher that has ended."""
    how = "ended with exit code 3"
    return SimpleNamespace(name="mpirun", log=folder / "launcher.log", how_it_ended=lambda: how)


def test_before_they_have_begun_the_log_of_one_that_said_something_tells_why(
    tmp_path: Path,
) -> None:
    launcher = launcher_in(tmp_path)
    together = Failures(Plan(Launcher("mpirun", ()), 2, (), 2, one_job=False), tmp_path, [0, 0])
    said = "mpirun ended with exit code 3 before all instances had begun"
    assert together.not_begun(launcher) == (said, launcher.log)
    together.log(1).write_text("there is no such module\n")
    assert together.not_begun(launcher) == (said, together.log(1))
    by_itself = Failures(alone("the process there", tmp_path, {}), tmp_path, [0])
    assert by_itself.not_begun(launcher)[0] == (
        "the process there ended with exit code 3 before it had begun"
    )


def test_of_several_that_ended_the_first_is_named_with_what_is_known(tmp_path: Path) -> None:
    launcher = launcher_in(tmp_path)
    plan = Plan(Launcher("mpirun", ()), 3, (), 3, one_job=False)
    failures = Failures(plan, tmp_path, [77, 78, 79])
    what, log = failures.died([1, 2], launcher)
    assert what.startswith(
        "instance 2 of 3 (process 78) ended (mpirun ended with exit code 3) while the case ran, and"
    )
    assert log == failures.log(1)
    launcher.log.write_text("process 79 exited on signal 9 (Killed)\n")
    what, _ = failures.died([1, 2], launcher)
    assert what.startswith("instance 3 of 3 (process 79) was killed by SIGKILL while the case ran")


Pair = Tuple[Instances, List[Connection]]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """Two instances that have begun, and their ends of the connections; nothing runs."""
    near, far = zip(*(Pipe() for _ in range(2)))
    plan = Plan(Launcher("mpirun", ()), 2, (), 2, one_job=False)
    instances = Instances(plan, lambda address: [], tmp_path / "logs")
    instances._members.update(enumerate(near))
    yield instances, list(far)
    for end in far:
        end.close()
    instances.stop()


def test_why_one_failed_is_said_although_another_has_ended_by_then(pair: Pair) -> None:
    """What launched them has ended that one, before anybody looked at either."""
    instances, far = pair
    send(far[1], {"log": "half way"})
    send(far[1], {"error": "no memory"})
    for end in far:
        end.close()
    with pytest.raises(InstanceError, match=r"^instance 2 of 2 \(process 0\): no memory\. "):
        instances.order("run", 7)


def test_the_one_that_takes_too_long_is_named(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "WATCH_SECONDS", 0)
    instances, far = pair
    send(far[0], {"answer": 1})
    with pytest.raises(InstanceError, match=r"^instance 2 of 2 .* took too long \(run\)"):
        instances.order("run", 7, seconds=0.0)
    assert not instances.idle
